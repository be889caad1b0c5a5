"""When the programs of a workload arrive.

    poisson       independent gaps, at the rate that is asked for
    gamma:CV      the same with another coefficient of variation: 3 comes in bursts
    trace:FILE    gaps that were measured somewhere, scaled to that rate
    closed:N      no times at all: N programs run, and one that ends makes room for the next

The first program of an open pattern arrives at zero. The same seed gives the same times.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from math import isfinite
from pathlib import Path
from typing import ClassVar

from grape_lc.bench.arrival_trace import read_arrival_times
from grape_lc.bench.examples import Case
from grape_lc.bench.workload import Arrival, poisson_arrivals
from grape_lc.engine.simulator.arrivals import Closed, Renewal
from grape_lc.errors import ConfigError

KNOWN = "poisson, gamma:CV, trace:FILE, closed:N"


@dataclass(frozen=True)
class Poisson:
    """A Poisson process."""

    in_flight: ClassVar[None] = None

    def schedule(self, cases: Sequence[Case], rate: float, seed: int) -> list[Arrival]:
        """Arrival times of ``cases`` at ``rate`` a second. Raises ConfigError for a bad rate."""
        return poisson_arrivals(cases, rate, seed)

    def __str__(self) -> str:
        return "Poisson arrivals"


@dataclass(frozen=True)
class Bursts:
    """Gamma-distributed gaps with coefficient of variation ``cv``, those of ``grape simulate``."""

    cv: float
    in_flight: ClassVar[None] = None

    def schedule(self, cases: Sequence[Case], rate: float, seed: int) -> list[Arrival]:
        """As ``Poisson.schedule``."""
        times = islice(Renewal(_positive(rate), self.cv).times(seed), len(cases))
        return _at(cases, list(times))

    def __str__(self) -> str:
        return f"gamma arrivals with CV {self.cv:g}"


@dataclass(frozen=True)
class Replay:
    """Gaps (seconds) of a trace, in their order.

    A seed says where in the trace a workload begins. Its gaps are scaled so that their own mean
    is that of the rate: a stretch of a trace keeps its shape, and every workload its load.
    """

    name: str
    gaps: tuple[float, ...]
    in_flight: ClassVar[None] = None

    def schedule(self, cases: Sequence[Case], rate: float, seed: int) -> list[Arrival]:
        """As ``Poisson.schedule``; also raises ConfigError when the trace is too short.

        Programs that arrive all at once in the trace do so at any rate.
        """
        count = len(cases) - 1
        if count > len(self.gaps):
            raise ConfigError(
                f"{len(cases)} programs asked for, but {self.name} has "
                f"{len(self.gaps) + 1} arrivals"
            )
        draw = random.Random(f"trace {seed}")  # noqa: S311 - a workload, not a secret
        begin = draw.randrange(len(self.gaps) - count + 1)
        gaps = self.gaps[begin : begin + count]
        span = sum(gaps)
        scale = count / (_positive(rate) * span) if span > 0 else 0.0
        times, at = [0.0], 0.0
        for gap in gaps:
            at += gap * scale
            times.append(at)
        return _at(cases, times)

    def __str__(self) -> str:
        return f"arrivals with the gaps of {self.name}"


@dataclass(frozen=True)
class InFlight:
    """A closed loop of ``in_flight`` programs."""

    in_flight: int

    def schedule(self, cases: Sequence[Case], rate: float, seed: int) -> list[Arrival]:
        """All at zero: the loop, not a clock, says when each begins."""
        del rate, seed
        return [Arrival(name, state, 0.0) for name, state in cases]

    def __str__(self) -> str:
        return f"a closed loop with {self.in_flight} in flight"


Pattern = Poisson | Bursts | Replay | InFlight


def parse_arrivals(text: str) -> Pattern:
    """A pattern from ``poisson``, ``gamma:CV``, ``trace:FILE`` or ``closed:N``.

    Raises ConfigError for anything else, and for a file that is no trace.
    """
    kind, _, value = text.partition(":")
    if text == "poisson":
        return Poisson()
    if kind == "gamma" and value:
        return Bursts(_cv(value))
    if kind == "trace" and value:
        path = Path(value)
        times = read_arrival_times(path)
        return Replay(path.name, tuple(after - before for before, after in pairwise(times)))
    if kind == "closed" and value.isdecimal():
        return InFlight(Closed(int(value)).population)
    raise ConfigError(f"no arrivals {text!r}; there are: {KNOWN}")


def _cv(text: str) -> float:
    try:
        cv = float(text)
    except ValueError:
        raise ConfigError(f"gamma:{text}: the coefficient of variation is no number") from None
    # Far out gammavariate gives gaps of zero and infinity only.
    if not 0.01 <= cv <= 100:
        raise ConfigError(f"gamma:{text}: the coefficient of variation is from 0.01 to 100")
    return cv


def _positive(rate: float) -> float:
    if not (rate > 0 and isfinite(rate)):
        raise ConfigError(f"the arrival rate must be positive, not {rate}")
    return rate


def _at(cases: Sequence[Case], times: Sequence[float]) -> list[Arrival]:
    return [Arrival(name, state, at) for (name, state), at in zip(cases, times, strict=True)]
