"""The highest rate of programs at which enough of them still meet their SLO. Pure.

    share that meets the SLO
      1 |o------o
    0.9 |. . . . . .x
        |             o
        |               o
        +---------------------  rate
                    ^ the highest rate

Between two measured rates the share is taken to fall on a straight line. The highest rate is where
it falls below the threshold for the first time: what it does at higher rates does not count, since
a system that misses at one rate cannot be promised to keep a higher one.

The share at a rate is the mean over repeats, and a run that failed has a share of 0. The interval
is the 95% percentile interval of a bootstrap over repeats (``intervals``): a repeat has the same
programs at every rate, so it is drawn for all rates together. A drawn set of repeats that misses at
the lowest rate counts as 0, one that never misses as the highest rate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any, NamedTuple

from grape_lc.bench.intervals import resamples
from grape_lc.bench.metrics import percentile

THRESHOLD = 0.9
"""The share of programs that must meet the SLO."""

Curve = Mapping[float, Mapping[int, float]]
"""By rate (programs a second), the share of each repeat that met the SLO."""


class MaxRate(NamedTuple):
    """The highest rate that keeps the SLO, in programs a second.

    rate: None where already the lowest measured one misses. censored: no measured rate misses, so
    the highest rate is at least this one. low, high: 95% interval; None with fewer than two
    repeats, and where there is no rate. repeats: that the rates have in common.
    """

    rate: float | None
    censored: bool
    low: float | None
    high: float | None
    repeats: int


def max_rate(curve: Curve, threshold: float = THRESHOLD) -> MaxRate | None:
    """The highest rate of one curve; None where no repeat was measured at all of its rates.

    Repeats that some rate lacks are left out, so that all rates are judged by the same programs.
    """
    rates = sorted(curve)
    repeats = sorted(set.intersection(*(set(curve[rate]) for rate in rates))) if rates else []
    if not repeats:
        return None

    def of(drawn: Sequence[int]) -> float | None:
        points = [(rate, fmean(curve[rate][repeat] for repeat in drawn)) for rate in rates]
        return crossing(points, threshold)

    found = of(repeats)
    lowest = min(fmean(curve[rate][repeat] for repeat in repeats) for rate in rates)
    low = high = None
    if found is not None and len(repeats) > 1:
        drawn = [of(sample) or 0.0 for sample in resamples(repeats)]
        low, high = (percentile(drawn, p) for p in (2.5, 97.5))
    return MaxRate(found, lowest >= threshold, low, high, len(repeats))


def crossing(points: Sequence[tuple[float, float]], threshold: float) -> float | None:
    """The rate at which a share falls below ``threshold`` for the first time.

    points: (rate, share), rates rising. None if the first share is below; the last rate if none is.
    """
    if not points or points[0][1] < threshold:
        return None
    for (rate, share), (next_rate, next_share) in pairwise(points):
        if next_share < threshold:
            return rate + (next_rate - rate) * (share - threshold) / (share - next_share)
    return points[-1][0]


def max_rates(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The highest rate of every workload and variant of a results file of ``grape bench``.

    Each as ``{"workload", "variant", "max_rate", "ci95", "censored"}``: programs a second or None,
    its interval or None, and whether it is only a lower bound. By the strict rule. Left out are
    runs of a closed loop, which have no rate; there are none where no SLO was set. In order of
    their first run.
    """
    return [
        {
            "workload": workload,
            "variant": variant,
            "max_rate": found.rate,
            "ci95": None if found.low is None else [found.low, found.high],
            "censored": found.censored,
        }
        for (workload, variant), curve in curves(document).items()
        if (found := max_rate(curve)) is not None
    ]


def curves(document: Mapping[str, Any]) -> dict[tuple[str, str], Curve]:
    """Shares of a results file that met the SLO, by (workload, variant), rate and repeat."""
    runs = [run for run in document["runs"] if run["rate"] is not None]
    shares = [_share(run) for run in runs]
    if all(share is None for share in shares):
        return {}
    found: dict[tuple[str, str], dict[float, dict[int, float]]] = {}
    for run, share in zip(runs, shares, strict=True):
        rates = found.setdefault((run["workload"], run["variant"]), defaultdict(dict))
        # What failed has no figures, and has met nothing.
        rates[run["rate"]][run["repeat"]] = share or 0.0
    return {key: dict(rates) for key, rates in found.items()}


def _share(run: Mapping[str, Any]) -> float | None:
    if run["metrics"] is None:
        return None
    share: float | None = run["metrics"]["goodput"]["strict_share"]
    return share
