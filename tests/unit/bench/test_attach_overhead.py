"""The script that measures what attach costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "attach_overhead"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_each_case_is_measured_in_pairs() -> None:
    done = run("--pairs", "3", "--runs", "2", "learned", "foreign")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert head.split()[0] == "case"
    assert [row.split()[0] for row in rows] == ["learned", "foreign"]
    for row in rows:
        plain, extra, low, high, share = map(float, row.split()[1:])
        assert plain > 0
        assert low <= extra <= high
        assert abs(share - 100 * extra / plain) < 1


def test_an_unknown_case_is_refused_with_those_that_are_known() -> None:
    done = run("nothing")
    assert done.returncode == 2
    assert "learning, misses, learned, foreign" in done.stderr
