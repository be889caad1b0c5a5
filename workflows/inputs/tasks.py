"""Short tasks for the synthetic agent, made of words; or those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ._lines import read_lines
from .words import subject_of, text_of

TASKS = 200
"""Built-in tasks."""

_TOKENS = 40


class Task(NamedTuple):
    """A task: a name that is unique in its file, and the text."""

    id: str
    text: str


def load_tasks(source: Path | str | None = None) -> list[Task]:
    """Tasks of a JSONL file, or of all such files in a directory, in a fixed order.

    Lines with a ``task`` are taken, with ``id`` where present.

    source: None for the built-in ones, which are the same on every machine.
    Raises FileNotFoundError when ``source`` does not exist, and ValueError when a line is not
    JSON or no line holds a task.
    """
    if source is None:
        return [_built_in(number) for number in range(1, TASKS + 1)]
    return [
        Task(str(record.get("id") or name), str(record["task"]))
        for name, record in read_lines(source, "task")
    ]


def _built_in(number: int) -> Task:
    name = f"task-{number:03d}"
    # The number comes first, so that no two tasks begin alike.
    about = f"Task {number}: write about {subject_of(name)}."
    return Task(name, f"{about} {text_of(_TOKENS, name)}")
