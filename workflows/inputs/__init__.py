"""Programming problems for the example agents, and their loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

OWN_PROBLEMS = Path(__file__).parent / "problems.jsonl"


class Problem(NamedTuple):
    """One programming problem: a name that is unique in its file, a title, the statement."""

    id: str
    title: str
    text: str


def load_problems(source: Path | str | None = None) -> list[Problem]:
    """Problems of a JSONL file, or of all such files in a directory, in a fixed order.

    A line is a JSON object; those that have a ``question_content`` (the field name of
    LiveCodeBench) are taken, with ``question_title`` and ``id`` or ``question_id`` where
    present. Other lines, and files without any, are passed over.

    source: None for the problems that come with this package.
    Raises FileNotFoundError when ``source`` does not exist, and ValueError when a line is not
    JSON or no line holds a problem.
    """
    path = OWN_PROBLEMS if source is None else Path(source)
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
    elif path.is_file():
        files = [path]
    else:
        raise FileNotFoundError(f"no file or directory {path}")
    problems = [problem for file in files for problem in _read(file)]
    if not problems:
        names = ", ".join(file.name for file in files) or "no .jsonl file"
        raise ValueError(f"no line with question_content in {path} ({names})")
    return problems


def _read(file: Path) -> list[Problem]:
    problems = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record: Any = json.loads(line)
            except json.JSONDecodeError as error:
                raise ValueError(f"{file}, line {number}: {error}") from error
            if not isinstance(record, dict) or "question_content" not in record:
                continue
            name = record.get("id") or record.get("question_id") or f"{file.stem}/{number}"
            title = record.get("question_title") or name
            problems.append(Problem(str(name), str(title), str(record["question_content"])))
    return problems
