"""Mean, maximum and percentiles of any number of values in bounded memory."""

from __future__ import annotations

import math

_STEP = math.log1p(0.01)
_LEAST = 1e-6


class Histogram:
    """Values are sorted into bins that grow by 1%, so a percentile is off by at most 0.5%.

    Count, mean and maximum are exact. Values up to a microsecond, zeros among them, share the
    first bin and are read as 0; no value is read as larger than the maximum.
    """

    __slots__ = ("_bins", "count", "max", "total")

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.max = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Take in a value, not negative, ``times`` times."""
        place = 1 + int(math.log(value / _LEAST) / _STEP) if value > _LEAST else 0
        self._bins[place] = self._bins.get(place, 0) + times
        self.count += times
        self.total += value * times
        if value > self.max:
            self.max = value

    @property
    def mean(self) -> float | None:
        """None without values."""
        return self.total / self.count if self.count else None

    def percentile(self, p: float) -> float | None:
        """Interpolated between the two ranks closest to ``p / 100 * (count - 1)``; None if empty.

        Raises ValueError unless 0 <= p <= 100.
        """
        if not 0 <= p <= 100:
            raise ValueError(f"a percentile lies between 0 and 100, not at {p}")
        if not self.count:
            return None
        rank = p / 100 * (self.count - 1)
        low, high = self._at(math.floor(rank)), self._at(math.ceil(rank))
        return low + (high - low) * (rank - math.floor(rank))

    def _at(self, rank: int) -> float:
        """The value at a rank, counted from 0."""
        seen = 0
        for place in sorted(self._bins):
            seen += self._bins[place]
            if seen > rank:
                # The middle of the bin, in the logarithm.
                value = _LEAST * math.exp((place - 0.5) * _STEP) if place else 0.0
                return min(value, self.max)
        raise AssertionError(f"rank {rank} of {self.count} values, {seen} in bins")
