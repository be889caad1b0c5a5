"""Settings and fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from grape_lc.engine.models import resolve_model

# Before anything imports vLLM or torch, in this process or in one that it starts. One thread: two
# make decode times erratic. The rest keeps an engine small, quiet and off the network.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}.items():
    os.environ.setdefault(_name, _value)


# How long an example takes says more about the machine's load than about the code. Where changes
# are judged the same examples are drawn each time; elsewhere others, to find what these do not.
settings.register_profile(
    "no deadline",
    deadline=None,
    derandomize=os.environ.get("CI") == "true",
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("no deadline")

# Files of tests that use no engine of the session, only their own. All others with an engine share
# those of the session, and some have one of their own besides. Each of the two groups runs in one
# worker, so that no more than five engines are open.
_OWN_ENGINES = frozenset(
    {
        "tests/contract/test_real_model.py",
        "tests/engine/test_bench.py",
        "tests/engine/test_demo.py",
        "tests/engine/test_life.py",
        "tests/engine/test_notebook.py",
        "tests/engine/test_profile.py",
        "tests/unit/test_models.py",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in tests/engine needs an engine."""
    for item in items:
        if "tests/engine/" in item.path.as_posix():
            item.add_marker(pytest.mark.engine)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups of tests that stay in one worker. (xdist's own marks for them need pytest < 9.2.)"""
    from xdist.scheduler import LoadGroupScheduling

    class ByEngines(LoadGroupScheduling):  # type: ignore[misc,unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if path in _OWN_ENGINES:
                return "own engines"
            if path.startswith("tests/engine/"):
                return "shared engines"
            # What its tests share takes long to make.
            return path if path.endswith(("/test_sandbox.py", "/test_served.py")) else nodeid

    return ByEngines(config, log) if config.getvalue("dist") == "loadgroup" else None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/*.jsonl anew")


@pytest.fixture(scope="session")
def model_path() -> str:
    """Folder of the embedded model, made first if this machine does not have it yet."""
    return resolve_model(None, progress=print)


@pytest.fixture(autouse=True)
def own_graphs_folder(tmp_path: Path) -> Iterator[None]:
    """What the runs of a test teach is not kept for other tests, nor for the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPE_LC_GRAPHS", f"{tmp_path}-graphs")
        yield
