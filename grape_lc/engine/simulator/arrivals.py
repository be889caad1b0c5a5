"""When programs arrive. Open processes yield times in seconds; a closed loop reacts to ends."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from grape_lc.errors import ConfigError


@dataclass(frozen=True)
class Renewal:
    """Independent gamma-distributed gaps; the first program arrives at 0.

    rate: programs a second. cv: coefficient of variation of a gap; 1 is a Poisson process, 3 comes
    in bursts.
    """

    rate: float
    cv: float = 1.0

    def __post_init__(self) -> None:
        if not (self.rate > 0 and self.cv > 0):
            raise ConfigError(f"rate and cv must be positive, not {self.rate} and {self.cv}")

    def times(self, seed: int) -> Iterator[float]:
        """Arrival times, without end; the same for the same seed."""
        dice = random.Random(f"arrivals {seed}")  # noqa: S311 - a workload
        shape = 1 / self.cv**2
        at = 0.0
        while True:
            yield at
            at += dice.gammavariate(shape, 1 / (shape * self.rate))


@dataclass(frozen=True)
class Closed:
    """``population`` programs at a time: one that ends makes room for the next."""

    population: int

    def __post_init__(self) -> None:
        if self.population < 1:
            raise ConfigError(f"a closed loop needs at least one program, not {self.population}")


@dataclass(frozen=True)
class Given:
    """Arrival times that are known, in order."""

    at: tuple[float, ...]

    def times(self, seed: int) -> Iterator[float]:
        """These times, whatever the seed."""
        del seed
        return iter(self.at)


Arrivals = Renewal | Closed | Given
