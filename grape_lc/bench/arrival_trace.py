"""Arrival times out of a file of recorded requests.

Two forms are read: a table (``.csv``) with a column ``arrival_s`` of seconds, and JSON lines
(``.jsonl``) with a ``timestamp`` of whole milliseconds in each. All other fields are left alone.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import isfinite
from pathlib import Path
from typing import Any, TextIO

from grape_lc.errors import ConfigError


def read_arrival_times(path: Path) -> list[float]:
    """Arrival times in seconds, in ascending order.

    Raises ConfigError for a file that cannot be read, is of neither form, or has fewer than two
    arrivals.
    """
    if path.suffix not in _READERS:
        raise ConfigError(
            f"{path} is no trace of arrivals: .csv with arrival_s, or .jsonl with timestamp"
        )
    try:
        with path.open(encoding="utf-8", newline="") as file:
            times = _READERS[path.suffix](file)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, csv.Error, RecursionError) as error:
        raise ConfigError(f"{path} is no trace of arrivals: {error}") from error
    if len(times) < 2:
        raise ConfigError(f"{path} has {len(times)} arrivals; a gap takes two")
    return times


def spread(stamps: Sequence[int]) -> list[float]:
    """Seconds from milliseconds that are known to a coarser grain only.

    The grain is taken to be the least gap between two stamps. What shares a stamp is spread
    evenly over it: a trace that was written every three seconds would else be one of bursts. Where
    stamps are exact that gap is short, and nothing moves by more.
    """
    ordered = sorted(stamps)
    apart = [after - before for before, after in pairwise(ordered) if after > before]
    grain = min(apart, default=0)
    times: list[float] = []
    for stamp, same in groupby(ordered):
        count = len(list(same))
        times.extend((stamp + grain * place / count) / 1000 for place in range(count))
    return times


def _from_table(file: TextIO) -> list[float]:
    rows = csv.DictReader(file)
    if "arrival_s" not in (rows.fieldnames or ()):
        raise ValueError(f"no column arrival_s among {', '.join(rows.fieldnames or ()):.200}")
    return sorted(_number(row, "arrival_s", rows.line_num) for row in rows)


def _from_lines(file: TextIO) -> list[float]:
    return spread(list(_stamps(file)))


def _stamps(file: TextIO) -> Iterator[int]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        record = json.loads(line)
        stamp = record.get("timestamp") if isinstance(record, dict) else None
        if type(stamp) is not int:
            raise ValueError(f"line {number} has no timestamp of whole milliseconds")
        yield stamp


def _number(row: Mapping[str, Any], name: str, line: int) -> float:
    try:
        value = float(row[name])
    except (TypeError, ValueError):
        value = float("nan")
    if not isfinite(value):
        raise ValueError(f"line {line}: {name} is no number: {row[name]!r:.40}")
    return value


_READERS: Mapping[str, Callable[[TextIO], list[float]]] = {
    ".csv": _from_table,
    ".jsonl": _from_lines,
}
