import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.bench.intervals import paired_ratio, pooled_ratio, variation

POSITIVE = st.floats(0.01, 100.0)
PAIRS = st.lists(st.tuples(POSITIVE, POSITIVE), min_size=2, max_size=7)


def test_equal_ratios_leave_no_doubt():
    got = paired_ratio([(2.0, 1.0), (20.0, 10.0), (4.0, 2.0)])
    assert got is not None
    assert (got.ratio, got.low, got.high) == pytest.approx((2.0, 2.0, 2.0))
    assert got.pairs == 3
    assert got.shown


def test_the_ratio_is_that_of_geometric_means():
    got = paired_ratio([(1.0, 2.0), (8.0, 1.0)])
    assert got is not None
    assert got.ratio == pytest.approx(2.0)
    assert not got.shown


def test_three_pairs_give_nearly_their_range():
    # Of 27 resamples one is all lowest, which is more than 2.5%; percentiles interpolate.
    got = paired_ratio([(1.1, 1.0), (1.2, 1.0), (1.3, 1.0)])
    assert got is not None
    assert got.low == pytest.approx(1.1, rel=0.02)
    assert got.high == pytest.approx(1.3, rel=0.02)


def test_one_pair_has_no_interval_and_shows_nothing():
    got = paired_ratio([(3.0, 1.0)])
    assert got is not None
    assert got.ratio == pytest.approx(3.0)
    assert (got.low, got.high, got.pairs) == (None, None, 1)
    assert not got.shown


def test_pairs_that_lack_a_number_are_left_out():
    assert paired_ratio([]) is None
    assert paired_ratio([(None, 1.0), (1.0, 0.0), (-1.0, 1.0)]) is None
    got = paired_ratio([(2.0, 1.0), (None, 1.0), (2.0, 1.0)])
    assert got is not None
    assert got.pairs == 2


def test_the_interval_has_the_width_that_the_spread_calls_for():
    # 40 log-ratios of known spread: the percentile interval is close to mean +- 1.96 s / sqrt(n).
    logs = [0.2 + 0.1 * math.sin(7.0 * i) for i in range(40)]
    got = paired_ratio([(math.exp(x), 1.0) for x in logs])
    mean = sum(logs) / 40
    spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / 40)
    assert got is not None
    assert got.low is not None
    assert got.high is not None
    assert math.log(got.low) == pytest.approx(mean - 1.96 * spread / math.sqrt(40), abs=0.003)
    assert math.log(got.high) == pytest.approx(mean + 1.96 * spread / math.sqrt(40), abs=0.003)


@settings(deadline=None, max_examples=40)
@given(PAIRS)
def test_the_interval_holds_the_ratio_and_lies_within_the_ratios(
    pairs: list[tuple[float, float]],
):
    got = paired_ratio(pairs)
    assert got is not None
    assert got.low is not None
    assert got.high is not None
    ratios = [first / second for first, second in pairs]
    least, most = min(ratios) * (1 - 1e-9), max(ratios) * (1 + 1e-9)
    assert least <= got.low <= got.high <= most
    assert got.low <= got.ratio * (1 + 1e-9)
    assert got.ratio <= got.high * (1 + 1e-9)
    assert paired_ratio(pairs) == got


@settings(deadline=None, max_examples=40)
@given(PAIRS)
def test_sides_that_change_places_give_the_inverse(pairs: list[tuple[float, float]]):
    got = paired_ratio(pairs)
    turned = paired_ratio([(second, first) for first, second in pairs])
    assert got is not None
    assert turned is not None
    assert turned.ratio == pytest.approx(1 / got.ratio)
    if len(pairs) <= 5:  # all resamples: no chance in it
        assert got.low is not None
        assert turned.high == pytest.approx(1 / got.low)


def test_variation_is_the_spread_of_a_sample_over_its_mean():
    assert variation([9.0, 10.0, 11.0]) == pytest.approx(0.1)
    assert variation([5.0, 5.0]) == 0.0
    assert variation([5.0]) is None
    assert variation([]) is None
    assert variation([0.0, 0.0]) is None


def test_counts_are_added_up_and_zeros_among_them():
    got = pooled_ratio([(4.0, 2.0), (0.0, 2.0), (5.0, 2.0), (None, 2.0)])
    assert got is not None
    assert (got.ratio, got.pairs) == (1.5, 3)
    assert got.low is not None
    assert got.high is not None
    assert 0.0 <= got.low < 1.5 < got.high <= 2.5
    lost = pooled_ratio([(0.0, 2.0), (0.0, 1.0)])
    assert lost is not None
    assert (lost.ratio, lost.low, lost.high, lost.pairs) == (0.0, 0.0, 0.0, 2)
    assert lost.shown


def test_counts_without_a_denominator_have_no_ratio_or_no_interval():
    assert pooled_ratio([]) is None
    assert pooled_ratio([(1.0, 0.0), (2.0, 0.0)]) is None
    assert pooled_ratio([(1.0, 0.0), (2.0, 1.0)]) == (3.0, None, None, 2)
    assert pooled_ratio([(1.0, 2.0)]) == (0.5, None, None, 1)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.floats(0, 100), POSITIVE), min_size=2, max_size=7))
def test_the_interval_of_counts_holds_their_ratio(pairs: list[tuple[float, float]]):
    got = pooled_ratio(pairs)
    assert got is not None
    ratios = [first / second for first, second in pairs]
    assert got.low is not None
    assert got.high is not None
    assert min(ratios) * (1 - 1e-9) <= got.low <= got.high <= max(ratios) * (1 + 1e-9)
    assert min(ratios) * (1 - 1e-9) <= got.ratio <= max(ratios) * (1 + 1e-9)
