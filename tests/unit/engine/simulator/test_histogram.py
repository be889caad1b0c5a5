from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.simulator.histogram import Histogram

values = st.lists(st.floats(0, 1e4), min_size=1, max_size=60)


def filled(numbers: list[float]) -> Histogram:
    histogram = Histogram()
    for number in numbers:
        histogram.add(number)
    return histogram


@given(values, st.floats(0, 100))
def test_a_percentile_is_within_half_a_percent_of_the_exact_one(numbers, p):
    ordered, rank = sorted(numbers), p / 100 * (len(numbers) - 1)
    low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
    exact = low + (high - low) * (rank - math.floor(rank))
    assert filled(numbers).percentile(p) == pytest.approx(exact, rel=0.0051, abs=1.01e-6)


def test_a_value_can_be_taken_in_many_times():
    histogram = Histogram()
    histogram.add(0.5, 3)
    histogram.add(0.0)
    assert histogram.count == 4
    assert histogram.mean == pytest.approx(0.375)
    assert histogram.percentile(0) == 0.0
    assert histogram.percentile(100) == pytest.approx(0.5, rel=0.0051)


def test_without_values_there_is_nothing_to_say():
    assert Histogram().mean is None
    assert Histogram().percentile(50) is None
    with pytest.raises(ValueError, match="between 0 and 100, not at 101"):
        Histogram().percentile(101)
