"""The pace of a machine: how much slower than usual it was when a step was measured.

A machine that does other work too takes half as long again for the same step, for a few seconds at
a time. Against that more repeats help little: those of a step lie close together. But other steps,
measured just before and after it, tell how slow the machine was then.

    pace of a step = median, over its neighbours in time, of seconds / F(load)

Neighbours are steps of *other* loads, so what F gets wrong about a step stays its error. Scheduling
lives with the same thing in the same way: a factor follows the latest steps (``refresh``).
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Sequence
from itertools import islice
from statistics import median

NEIGHBOURS = 10
"""Steps before a step, and after it, that tell its pace."""


def paces(
    ratios: Sequence[float],
    kinds: Sequence[Hashable],
    unknown: Container[Hashable] = frozenset(),
) -> list[float]:
    """The pace of each step, 1 for the median one; 1 for all if there are no neighbours.

    ratios: seconds over F(load), in the order in which the steps ran. kinds: what load each had.
    unknown: loads whose ratios are not to be used, since F was not fitted to them.
    """
    count = len(ratios)
    found = []
    for index, kind in enumerate(kinds):
        near: list[float] = []
        for places in (range(index - 1, -1, -1), range(index + 1, count)):
            others = (
                ratios[place]
                for place in places
                if kinds[place] != kind and kinds[place] not in unknown
            )
            near += islice(others, NEIGHBOURS)
        found.append(median(near) if near else 1.0)
    usual = median(found) if found else 1.0
    return [pace / usual for pace in found]
