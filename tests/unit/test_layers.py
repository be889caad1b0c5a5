"""Who imports what, seen by the linter and by fresh interpreters."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def fresh(code: str, *flags: str) -> str:
    """What a fresh interpreter prints for ``code``; the checkout is its first path."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"
    argv = [sys.executable, *flags, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_layer_contracts_hold():
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def imported(path: Path) -> set[str]:
    """Top-level names of all absolute imports of a file, those inside functions included."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_in_the_engine_layer_only_vllm_modules_import_vllm():
    heavy = {
        path.name
        for path in (ROOT / "grape_lc" / "engine").glob("*.py")
        if imported(path) & {"torch", "transformers", "vllm"}
    }
    assert {"vllm_convert.py", "vllm_engine.py"} <= heavy
    assert all(name.startswith("vllm_") for name in heavy), heavy


IMPORT = """
import json
before = set(sys.modules)
import grape_lc
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_the_package_imports_next_to_nothing():
    """Modules are counted: how long their import takes is up to the machine and its load."""
    modules = json.loads(fresh(IMPORT))
    assert len(modules) < 80, modules  # any of the libraries that we stand on has more
    foreign = {"httpx", "langchain_core", "langgraph", "numpy", "pydantic", "rich", "torch", "vllm"}
    assert not foreign & {name.partition(".")[0] for name in modules}


IMPORT_ALL = """
import importlib, json, pkgutil
import grape_lc
inside = ("grape_lc.engine.vllm_", "grape_lc.runtime.host")
names = [m.name for m in pkgutil.walk_packages(grape_lc.__path__, "grape_lc.")]
names = [name for name in names if not name.startswith(inside) and "_workflows" not in name]
for name in names:
    importlib.import_module(name)
print(json.dumps([names, sorted({"torch", "transformers", "vllm"} & set(sys.modules))]))
"""


def test_nothing_that_runs_in_the_users_process_imports_vllm():
    names, heavy = json.loads(fresh(IMPORT_ALL))
    assert {"grape_lc.engine.models", "grape_lc.flow.taskflow", "grape_lc.runtime"} <= set(names)
    assert heavy == []


IMPORT_SCHEDULER = """
import importlib, json, pkgutil
import grape_lc.scheduler
names = [m.name for m in pkgutil.walk_packages(grape_lc.scheduler.__path__, "grape_lc.scheduler.")]
for name in names:
    importlib.import_module(name)
known = sys.stdlib_module_names | {"__main__"}
foreign = [name for name in sys.modules if name.partition(".")[0] not in known]
print(json.dumps([names, sorted(foreign)]))
"""


def test_the_scheduler_runs_on_a_bare_interpreter():
    names, foreign = json.loads(fresh(IMPORT_SCHEDULER, "-S", "-I"))
    assert "grape_lc.scheduler.policy" in names
    assert set(foreign) == {"grape_lc", "grape_lc.scheduler", *names}
