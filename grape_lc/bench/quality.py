"""How good the answers of a run are, where it is known what they should be.

A scorer gets the final states of a run's programs by the names of their cases, and returns counts
that may be added over runs. Which scorer an example has, ``examples`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grape_lc.bench.answers import contains, exact_match
from grape_lc.bench.programs import PublicTest, check_program, program_of

Counts = dict[str, float]
States = Mapping[str, Mapping[str, Any]]
Scorer = Callable[[States], Counts]

QUALITY: Mapping[str, tuple[str, str]] = {
    "answers_exact": ("answers_checked", "answers that match"),
    "answers_containing": ("answers_checked", "answers that contain it"),
    "tests_passed": ("tests_run", "public tests passed"),
    "programs_solved": ("programs_tested", "programs that pass all of theirs"),
    "tool_failures": ("tool_calls", "tool calls that failed"),
    "tool_duplicates": ("tool_calls", "tool calls that repeat another"),
}
"""Counts, what each is out of, and its title."""


def answer_scorer(
    expected: Mapping[str, str], key: str, short: Callable[[str], str]
) -> Scorer | None:
    """Compares the texts under ``key`` with the expected answers; None if there are none.

    A match is judged by what ``short`` makes of a text, containing by all of it. Programs
    without an expected answer do not count.
    """

    def score(states: States) -> Counts:
        texts = {name: str(state[key]) for name, state in states.items() if name in expected}
        return {
            "answers_checked": len(texts),
            "answers_exact": sum(exact_match(short(t), expected[n]) for n, t in texts.items()),
            "answers_containing": sum(contains(t, expected[n]) for n, t in texts.items()),
        }

    return score if expected else None


def program_scorer(tests: Mapping[str, Sequence[PublicTest]], key: str) -> Scorer | None:
    """Runs the programs in the texts under ``key`` on their public tests, confined.

    None if no problem has any.
    """

    def score(states: States) -> Counts:
        scores = [
            check_program(program_of(str(state[key])), tests[name])
            for name, state in states.items()
            if name in tests
        ]
        return {
            "tests_run": sum(score.tests for score in scores),
            "tests_passed": sum(score.passed for score in scores),
            "programs_tested": len(scores),
            "programs_solved": sum(score.passed == score.tests for score in scores),
        }

    return score if tests else None
