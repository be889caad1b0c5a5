"""The example workflows are found in a checkout, under a name that collides with nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grape_lc.errors import ConfigError
from grape_lc.workflow_package import load_workflow, workflow_names

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_is_a_workflow_that_imports():
    names = workflow_names()
    assert names == tuple(sorted(path.stem for path in ROOT.glob("workflows/[!_]*.py")))
    for name in names:
        module = load_workflow(name)
        assert module.__name__ == f"grape_lc._workflows.{name}"
        assert callable(module.build)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"no workflow 'codes'.*\bcode\b"):
        load_workflow("codes")


def test_a_package_named_workflows_that_came_first_is_left_alone(tmp_path):
    """As in an environment with LlamaIndex, and laid out as a wheel lays the files out."""
    package = tmp_path / "site" / "grape_lc"
    shutil.copytree(ROOT / "grape_lc", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "workflows", package / "_workflows")
    other = tmp_path / "site" / "workflows"
    other.mkdir()
    (other / "__init__.py").write_text("theirs = True\n")
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from grape_lc.workflow_package import load_workflow, workflow_names\n"
        "import workflows; assert workflows.theirs\n"
        "for name in workflow_names(): print(load_workflow(name).__file__)\n"
        "assert load_workflow('code').load_problems()\n"
        "assert load_workflow('summary').load_documents()\n"
        "assert load_workflow('search').load_questions()\n"
    )
    argv = [sys.executable, "-c", code, str(tmp_path / "site")]
    done = subprocess.run(
        argv, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    names = workflow_names()
    assert {"code", "search", "summary"} <= set(names)
    assert [Path(line) for line in done.stdout.splitlines()] == [
        package / "_workflows" / f"{name}.py" for name in names
    ]
