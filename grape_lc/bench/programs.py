"""Whether a program that a model wrote passes the public tests of its problem."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from grape_lc.bench.confined import Bounds, Outcome, run_confined

_BLOCK = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)


class PublicTest(Protocol):
    """One test, as ``ProblemTest`` of the example workflows' inputs describes it."""

    @property
    def given(self) -> str:
        """Standard input, or a JSON object of arguments."""

    @property
    def expected(self) -> str:
        """What is printed, or JSON of what is returned."""

    @property
    def function(self) -> str | None:
        """The function that is called; None for a program that is run."""

    @property
    def code(self) -> str | None:
        """Python that checks the function, instead of arguments and result."""


class ProgramScore(NamedTuple):
    """How many tests were run, how many were passed, and what went wrong in the others."""

    tests: int
    passed: int
    failures: tuple[str, ...]


def program_of(answer: str) -> str:
    """The program in a model's answer: its first block of code that is not empty, else all of it.

    A block that an answer's end cuts off counts as well.
    """
    blocks = (match.group(2) for match in _BLOCK.finditer(answer))
    return next((block for block in blocks if block.strip()), answer)


def check_program(
    program: str,
    tests: Sequence[PublicTest],
    bounds: Bounds = Bounds(),  # noqa: B008 - a NamedTuple does not change
) -> ProgramScore:
    """Run a program on each test, one after the other, confined.

    Printed text is compared line by line without white space at the ends; results of functions
    as JSON. A result ``{"error": ...}`` is also met by an exception.
    Raises ValueError when what a test of a function gives or expects is not JSON.
    """
    failures = []
    for number, test in enumerate(tests, start=1):
        fault = _fault(program, test, bounds)
        if fault:
            failures.append(f"test {number}: {fault}")
    return ProgramScore(len(tests), len(tests) - len(failures), tuple(failures))


def _fault(program: str, test: PublicTest, bounds: Bounds) -> str:
    """What is wrong with the program on this test; empty if nothing is."""
    if test.function is None:
        outcome = run_confined(program, test.given, bounds=bounds)
        if outcome.trouble:
            return outcome.trouble
        shown, wanted = _lines(outcome.output), _lines(test.expected)
        return "" if shown == wanted else _differs(shown, wanted)
    arguments = None if test.code is not None else json.loads(test.given)
    case = {"function": test.function, "arguments": arguments, "code": test.code}
    outcome = run_confined(program, case=case, bounds=bounds)
    answered = _answered(outcome)
    if isinstance(answered, str):
        return answered
    if "missing" in answered:
        return f"no function {answered['missing']}"
    if test.code is not None:
        return ""
    wanted_value = json.loads(test.expected)
    if "raised" in answered:
        fails = isinstance(wanted_value, dict) and set(wanted_value) == {"error"}
        return "" if fails else str(answered["raised"])
    result = answered["result"]
    return "" if result == wanted_value else _differs(result, wanted_value)


def _answered(outcome: Outcome) -> dict[str, Any] | str:
    """What calling the function came to, or in words what kept it from coming to anything."""
    if outcome.trouble:
        return outcome.trouble
    try:
        answered = json.loads(outcome.output)
    except (ValueError, RecursionError):
        # It left before the call was over, by os._exit(0) say.
        return "ended without a result"
    return answered if isinstance(answered, dict) else "ended without a result"


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def _differs(found: object, wanted: object) -> str:
    return f"gave {_short(found)}, not {_short(wanted)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
