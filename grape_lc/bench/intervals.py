"""How sure a ratio is: bootstrap intervals of paired ratios.

Both sides of a pair were measured in one repeat, with the same programs at the same times, so
what a repeat does to both alike falls out. Resampled are whole repeats, or whole programs of a
repeat (``program_gains``), never single gaps: gaps of one run depend on each other.

The interval is the percentile interval of the mean log-ratio (Efron and Tibshirani, An
Introduction to the Bootstrap, 1993, chapter 13). With few pairs it is too narrow: for three it
is at most the range of the three ratios, which holds the median ratio of all repeats three
times in four.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

from grape_lc.bench.metrics import percentile

FEW_PAIRS = 6
"""Below this number of pairs an interval is too narrow to lean on."""

UNSTEADY = 0.1
"""Coefficient of variation above which a figure is said to vary between repeats."""

_EXACT_UP_TO = 5
_RESAMPLES = 4_000

T = TypeVar("T")


class Ratio(NamedTuple):
    """A ratio, its 95% interval, and the number of pairs behind it.

    low, high: None where there is no interval, as with fewer than two pairs.
    """

    ratio: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def shown(self) -> bool:
        """Whether the interval leaves out 1, that is, the pairs show a difference."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


def paired_ratio(
    pairs: Iterable[tuple[float | None, float | None]], *, seed: int = 0
) -> Ratio | None:
    """The ratio first / second over all pairs, or None without a pair of positive numbers.

    Pairs that lack a side, or have one that is not positive, are left out. The same pairs and
    seed give the same interval.
    """
    logs = [
        math.log(first / second)
        for first, second in pairs
        if first is not None and second is not None and first > 0 and second > 0
    ]
    if not logs:
        return None
    ratio = math.exp(fmean(logs))
    if len(logs) == 1:
        return Ratio(ratio, None, None, 1)
    means = [fmean(sample) for sample in resamples(logs, seed)]
    low, high = (math.exp(percentile(means, p)) for p in (2.5, 97.5))
    return Ratio(ratio, low, high, len(logs))


def pooled_ratio(
    pairs: Iterable[tuple[float | None, float | None]], *, seed: int = 0
) -> Ratio | None:
    """The ratio of sums, first / second: for counts, which may be zero on either side.

    A ratio of geometric means would have to leave such pairs out, and with them the worst losses.
    Pairs that lack a side are left out; None without one, or when all second sides are zero. No
    interval where a resample has only zeros for its second sides.
    """
    known = [(a, b) for a, b in pairs if a is not None and b is not None]
    if not sum(b for _, b in known):
        return None
    ratio = sum(a for a, _ in known) / sum(b for _, b in known)
    drawn = list(resamples(known, seed)) if len(known) > 1 else []
    if not drawn or not all(sum(b for _, b in sample) for sample in drawn):
        return Ratio(ratio, None, None, len(known))
    ratios = [sum(a for a, _ in s) / sum(b for _, b in s) for s in drawn]
    low, high = (percentile(ratios, p) for p in (2.5, 97.5))
    return Ratio(ratio, low, high, len(known))


def variation(values: Sequence[float]) -> float | None:
    """Coefficient of variation: standard deviation (of a sample) over mean.

    None with fewer than two values, or a mean that is not positive.
    """
    if len(values) < 2 or fmean(values) <= 0:
        return None
    return stdev(values) / fmean(values)


def resamples(values: Sequence[T], seed: int = 0) -> Iterator[Sequence[T]]:
    """Resamples of the same size: all of them for up to five values, else random ones by a seed."""
    if len(values) <= _EXACT_UP_TO:
        return product(values, repeat=len(values))
    draw = random.Random(seed)  # noqa: S311 - statistics, not a secret
    return (draw.choices(values, k=len(values)) for _ in range(_RESAMPLES))
