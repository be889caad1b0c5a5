from __future__ import annotations

from typing import Any

import pytest

from grape_lc.bench.confined import Bounds
from grape_lc.bench.programs import check_program, program_of
from grape_lc.workflow_package import load_workflow

load_workflow("code")
from grape_lc._workflows.inputs import ProblemTest  # type: ignore[import-not-found]  # noqa: E402

PRINTS = [ProblemTest("2\n", "4\n"), ProblemTest("3", " 9 ")]
RETURNS = [
    ProblemTest('{"n": 2}', "[2, 4]", "pair"),
    ProblemTest('{"n": -1}', '{"error": "<0"}', "pair"),
]
CHECKS = [ProblemTest("", "", "half", "def check(candidate):\n    assert candidate(4) == 2\n")]


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("Text\n~~~\ny\n~~~\n```\nz\n```", "y\n"),
        ("```\n\n```\n```py\nz\n```", "z\n"),
        ("  ```python\n  x\n  ```", "  x\n"),
        ("````\n```\nx\n```\n````\n", "```\nx\n```\n"),
        ("```python\ncut off", "cut off"),
        ("x = 1", "x = 1"),
        ("", ""),
    ],
)
def test_the_program_is_the_first_block(answer: str, program: str):
    assert program_of(answer) == program


@pytest.mark.parametrize(
    ("program", "tests", "passed", "said"),
    [
        ("print(int(input()) ** 2)", PRINTS, 2, []),
        ("print(int(input()) * 2)", PRINTS, 1, ["test 2: gave ['6'], not ['9']"]),
        ("print(4 /", PRINTS, 0, ["SyntaxError", "SyntaxError"]),
        ("def pair(n):\n    if n < 0: raise ValueError\n    return n, 2 * n", RETURNS, 2, []),
        ("def pair(n): return {'error': '<0'} if n < 0 else [n, 4]", RETURNS, 2, []),
        ("def pair(n): return [n]", RETURNS, 0, ["gave [2], not [2, 4]", "gave [-1]"]),
        ("def pair(n): raise KeyError(n)", RETURNS, 1, ["test 1: KeyError: 2"]),
        ("x = 1", RETURNS, 0, ["no function pair"] * 2),
        ("import os; os._exit(0)", RETURNS, 0, ["ended without a result"] * 2),
        ("def half(n): return n / 2", CHECKS, 1, []),
        ("def half(n): return n", CHECKS, 0, ["AssertionError"]),
        ("def quarter(n): return n / 2", CHECKS, 0, ["no function half"]),
    ],
)
def test_programs_are_run_on_every_test(program: str, tests: Any, passed: int, said: list[str]):
    score = check_program(program, tests)
    assert (score.tests, score.passed) == (len(tests), passed)
    assert len(score.failures) == len(said)
    for failure, part in zip(score.failures, said, strict=True):
        assert part in failure


def test_bounds_are_passed_on():
    score = check_program("while True: pass", PRINTS[:1], Bounds(wall_s=0.5, cpu_s=60))
    assert score.failures == ("test 1: took too long",)
