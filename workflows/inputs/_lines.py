"""Reads collections of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple


class Line(NamedTuple):
    """An object of a collection, and the name it has there if it brings none: ``file/line``."""

    name: str
    record: dict[str, Any]


def read_lines(source: Path | str, field: str) -> list[Line]:
    """The objects of a JSONL file, or of all such files in a directory, that have ``field``.

    In a fixed order: files by name, lines as they stand. Other lines are passed over, and so
    are files without any.

    Raises FileNotFoundError when ``source`` does not exist, and ValueError when a line is not
    JSON or no line has the field.
    """
    path = Path(source)
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
    elif path.is_file():
        files = [path]
    else:
        raise FileNotFoundError(f"no file or directory {path}")
    found = [line for file in files for line in _read(file) if field in line.record]
    if not found:
        names = ", ".join(file.name for file in files) or "no .jsonl file"
        raise ValueError(f"no line with {field} in {path} ({names})")
    return found


def _read(file: Path) -> Iterator[Line]:
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                record: Any = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{file}, line {number}: {error}") from error
            if isinstance(record, dict):
                yield Line(f"{file.stem}/{number}", record)
