"""The flow layer stands on pydantic alone, and on little else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import grape_lc.flow

ROOT = Path(grape_lc.flow.__file__).parents[2]

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import grape_lc.flow
print(json.dumps(sorted(sys.modules)))
"""


def test_imports_are_few():
    argv = [sys.executable, "-c", PROGRAM, str(ROOT)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=True)
    modules = json.loads(done.stdout)
    assert len(modules) < 400  # 243 with pydantic; how long they take is up to the machine
    own = {name for name in modules if name.startswith("grape_lc.")}
    others = {n for n in own if not n.startswith("grape_lc.flow")}
    assert others <= {"grape_lc.errors", "grape_lc.limits", "grape_lc.strict_json"}
    foreign = {name.partition(".")[0] for name in modules} & {
        *("langchain_core", "langgraph", "vllm", "torch", "numpy", "httpx", "rich", "typer")
    }
    assert not foreign


def test_everything_public_is_named_and_there():
    names = grape_lc.flow.__all__
    assert len(names) == len(set(names))
    missing = [name for name in names if not hasattr(grape_lc.flow, name)]
    assert not missing
