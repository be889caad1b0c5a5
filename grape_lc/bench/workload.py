"""What is run: cases of an example workflow, and the times at which they arrive."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from grape_lc.bench.examples import Case
from grape_lc.errors import ConfigError


class Arrival(NamedTuple):
    """One program of a workload: its name, its input, and when it arrives (seconds from start).

    tenant: whose it is; empty where there are no tenants.
    """

    name: str
    state: dict[str, Any]
    at: float
    tenant: str = ""


def dealt(arrivals: Sequence[Arrival], tenants: int) -> list[Arrival]:
    """The same programs, dealt to ``tenants`` tenants in turn; one tenant is none."""
    if tenants == 1:
        return list(arrivals)
    return [
        arrival._replace(tenant=f"tenant {place % tenants + 1}")
        for place, arrival in enumerate(arrivals)
    ]


def poisson_arrivals(cases: Sequence[Case], rate: float, seed: int) -> list[Arrival]:
    """Give each case an arrival time of a Poisson process; the first arrives at zero.

    rate: arrivals a second. The same seed gives the same times on every machine.
    Raises ConfigError unless ``rate`` is positive.
    """
    if not rate > 0:
        raise ConfigError(f"the arrival rate must be positive, not {rate}")
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    arrivals, at = [], 0.0
    for name, state in cases:
        arrivals.append(Arrival(name, state, at))
        at += draw.expovariate(rate)
    return arrivals
