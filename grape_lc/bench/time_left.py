"""How long the rest of a comparison will take, from what is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Kind = tuple[str, str]
"""Runs of a kind take about as long: the workload, and its rate or what else sets its pace."""


class Planned(NamedTuple):
    """A run that is to be made: its kind, and the key of its engine."""

    kind: Kind
    engine: str


def starts_needed(engines: Sequence[str], open_engines: Sequence[str], most: int) -> int:
    """How many engines have to be started to use ``engines`` in this order.

    open_engines: those that are open, the one unused longest first. most: that may be.
    """
    held, starts = list(open_engines), 0
    for engine in engines:
        if engine in held:
            held.remove(engine)
        else:
            starts += 1
            del held[: max(len(held) - most + 1, 0)]
        held.append(engine)
    return starts


def expected(kind: Kind, seen: Mapping[Kind, Sequence[float]]) -> float | None:
    """Seconds of a run: the mean of its kind, else of its workload, else of all; None: of none."""
    near = [s for (workload, _), runs in seen.items() if workload == kind[0] for s in runs]
    every = [s for runs in seen.values() for s in runs]
    for seconds in (seen.get(kind, ()), near, every):
        if seconds:
            return sum(seconds) / len(seconds)
    return None


def time_left(
    plan: Sequence[Planned],
    seen: Mapping[Kind, Sequence[float]],
    starts: Sequence[float],
    open_engines: Sequence[str],
    most: int,
) -> float | None:
    """Seconds that the runs of ``plan`` will take in this order; None before any is done.

    seen: seconds of the runs that were made, by kind. starts: seconds of every engine start.
    open_engines, most: as ``starts_needed`` takes them.
    """
    each = [expected(planned.kind, seen) for planned in plan]
    known = [seconds for seconds in each if seconds is not None]
    if len(known) < len(each):
        return None
    start = sum(starts) / len(starts) if starts else 0.0
    needed = starts_needed([planned.engine for planned in plan], open_engines, most)
    return sum(known) + start * needed
