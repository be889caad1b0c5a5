"""The policy runs in a bare interpreter: inside vLLM, in a simulator, in a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_needs_the_standard_library_only():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import grape_lc.scheduler.controller; "
        "found = {n.partition('.')[0] for n in sys.modules}; "
        "print(sorted(found - set(sys.stdlib_module_names) - {'grape_lc', '__main__'}))"
    )
    # -S: no site-packages at all; -I: nothing of this environment.
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(ROOT)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"
