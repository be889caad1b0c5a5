"""Programming problems, and the public tests of those that have some."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from ._lines import read_lines

OWN_PROBLEMS = Path(__file__).parent / "problems.jsonl"


class Problem(NamedTuple):
    """One programming problem: a name that is unique in its file, a title, the statement."""

    id: str
    title: str
    text: str


class ProblemTest(NamedTuple):
    """One public test of a problem.

    given, expected: what a program reads from standard input and prints. With ``function``, a
        JSON object of that function's arguments, and JSON of what it returns; an object with
        the one key ``error`` says that it raises.
    code: instead of both, Python that defines ``check(candidate)``, which raises
        AssertionError on a function that is wrong.
    """

    given: str
    expected: str
    function: str | None = None
    code: str | None = None


def load_problems(source: Path | str | None = None) -> list[Problem]:
    """Problems of a JSONL file, or of all such files in a directory, in a fixed order.

    A line is a JSON object; those that have a ``question_content`` (the field name of
    LiveCodeBench) are taken, with ``question_title`` and ``id`` or ``question_id`` where
    present. Other lines, and files without any, are passed over.

    source: None for the problems that come with this package.
    Raises FileNotFoundError when ``source`` does not exist, and ValueError when a line is not
    JSON or no line holds a problem.
    """
    problems = []
    for name, record in _records(source):
        title = str(record.get("question_title") or name)
        problems.append(Problem(name, title, str(record["question_content"])))
    return problems


def load_problem_tests(source: Path | str | None = None) -> dict[str, list[ProblemTest]]:
    """Public tests by the names of the problems of ``load_problems``, where there are any.

    They are read from ``public_test_cases``: objects with ``input`` and ``output``, and with
    ``function`` and ``test_code`` where a function is tested.
    Raises as ``load_problems`` does.
    """
    tests = {}
    for name, record in _records(source):
        cases = [
            ProblemTest(
                str(case.get("input", "")),
                str(case.get("output", "")),
                case.get("function"),
                case.get("test_code"),
            )
            for case in record.get("public_test_cases") or ()
        ]
        if cases:
            tests[name] = cases
    return tests


def _records(source: Path | str | None) -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(record.get("id") or record.get("question_id") or name), record)
        for name, record in read_lines(
            OWN_PROBLEMS if source is None else source, "question_content"
        )
    ]
