"""Decode lengths: what is said of the next call, and of one that decodes."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.scheduler.lengths import LEAST, Lengths
from tests.unit.scheduler.factories import steady


def of(ended=(), limited=(), **settings):
    lengths = Lengths(**settings)
    for tokens in ended:
        lengths.observe("flow", "task", tokens)
    for tokens in limited:
        lengths.observe("flow", "task", tokens, limited=True)
    lengths.validate()
    return lengths


def left(lengths, output, limit=10_000):
    return lengths.remaining("flow", "task", output, limit)


def test_nothing_is_known_of_a_task_that_was_not_seen():
    lengths = of([10])
    assert lengths.remaining("flow", "other", 0, 99) == (None, None)
    assert lengths.remaining(None, "task", 0, 99) == (None, None)
    assert lengths.expected("flow", "other") is None


def test_a_call_without_a_flow_is_known_by_its_task():
    lengths = Lengths()
    lengths.observe(None, "task", 10)
    lengths.observe(None, None, 99)
    assert lengths.expected(None, "task") == 10
    assert lengths.expected(None, None) is None
    assert lengths.expected("flow", "task") is None
    assert len(lengths) == 1


def test_what_is_left_is_of_the_calls_that_got_further():
    lengths = of([10, 20, 30, 40, 50, 60])
    assert lengths.expected("flow", "task") == pytest.approx(35)
    assert left(lengths, 0) == (pytest.approx(35), 10)
    assert left(lengths, 20) == (pytest.approx(45 - 20), 30 - 20)
    # Only two got beyond 40: a mean, and nothing sure.
    assert left(lengths, 40) == (pytest.approx(15), None)
    assert left(lengths, 60) == (None, None)


def test_nine_out_of_ten_reach_what_is_sure():
    assert left(of(range(1, 11)), 0)[1] == 1
    assert left(of(range(1, 12)), 0)[1] == 2


def test_never_more_than_the_limit_allows():
    lengths = of([10, 100, 100, 100])
    assert left(lengths, 0, limit=20) == (pytest.approx((10 + 20 * 3) / 4), 10)
    assert left(lengths, 15, limit=20) == (5, None)
    assert left(of([100] * LEAST), 15, limit=20) == (5, 5)
    assert left(lengths, 20, limit=20) == (0, 0)


def test_calls_that_all_ran_to_their_limits_run_to_any():
    lengths = of(limited=[32] * LEAST)
    assert left(lengths, 0, limit=32) == (32, 32)
    assert left(lengths, 0, limit=500) == (500, 500)
    assert left(lengths, 40, limit=500) == (460, 460)


def test_too_few_of_them_count_as_ended():
    lengths = of(limited=[32] * (LEAST - 1))
    assert left(lengths, 0, limit=500) == (32, None)
    assert left(lengths, 32, limit=500) == (None, None)


def test_a_limited_call_says_only_that_it_was_longer():
    # By hand: half of the calls end at 10; of the two that get beyond 20, where one was cut
    # off, one ends at 40: 10 * 1 + 30 * 1/2.
    cut = of(ended=[10, 10, 40], limited=[20])
    assert cut.expected("flow", "task") == pytest.approx(10 + 30 / 2)
    # Had it ended at 20, the mean would be smaller.
    assert of(ended=[10, 10, 20, 40]).expected("flow", "task") == pytest.approx(20)


def test_equal_lengths_limited_or_not():
    lengths = of(ended=[20], limited=[20] * LEAST)
    # One in five ends at 20, the others run on.
    assert left(lengths, 0, limit=100)[0] == pytest.approx(20 + 80 * 4 / 5)
    few = of(ended=[20], limited=[20])
    assert left(few, 0, limit=100)[0] == 20


def test_only_the_latest_calls_count():
    lengths = Lengths(window=3)
    for tokens in (1000, 1, 2, 3):
        lengths.observe("flow", "task", tokens)
    assert lengths.expected("flow", "task") == pytest.approx(2)


def test_the_task_without_calls_for_the_longest_is_forgotten():
    lengths = Lengths(most_tasks=2)
    for task in ("a", "b", "a", "c"):
        lengths.observe("flow", task, 5)
    assert len(lengths) == 2
    assert lengths.expected("flow", "b") is None
    assert lengths.expected("flow", "a") == 5
    lengths.validate()


def test_refused():
    with pytest.raises(ValueError, match="-1 tokens"):
        Lengths().observe("flow", "task", -1)
    with pytest.raises(ValueError, match="window=0"):
        Lengths(window=0)


@steady
@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=40),
    st.integers(0, 70),
    st.integers(1, 70),
    st.integers(1, 20),
)
def test_without_limited_calls_it_is_counting(seen, output, limit, window):
    lengths = of(seen, window=window)
    further = sorted(min(tokens, limit) - output for tokens in seen[-window:] if tokens > output)
    expected, sure = left(lengths, output, limit)
    if output >= limit:
        assert (expected, sure) == (0, 0)
    elif not further:
        assert (expected, sure) == (None, None)
    else:
        assert expected == pytest.approx(sum(further) / len(further))
        if len(further) < LEAST:
            assert sure is None
        else:
            assert sure == further[ceil(0.1 * len(further)) - 1]


calls = st.lists(st.tuples(st.integers(0, 60), st.booleans()), min_size=1, max_size=40)


@steady
@given(calls, st.integers(0, 70), st.integers(0, 70))
def test_within_what_is_possible_and_never_less_with_a_higher_limit(seen, output, limit):
    lengths = Lengths(window=30)
    for tokens, limited in seen:
        lengths.observe("flow", "task", tokens, limited)
    lengths.validate()
    expected, sure = left(lengths, output, limit)
    room = max(0, limit - output)
    if expected is not None:
        assert -1e-6 <= expected <= room + 1e-6
        more, surer = left(lengths, output, limit + 10)
        assert more is None or more >= expected - 1e-6
        if sure is not None:
            assert 0 <= sure <= room
            assert surer is None or surer >= sure
    else:
        assert sure is None


@steady
@given(st.lists(st.integers(1, 60), min_size=1, max_size=40), st.integers(1, 60))
def test_limits_seen_are_known_exactly_under_the_same_limit(natural, limit):
    # All calls had the limit that is asked about: the mean is that of what was seen.
    lengths = Lengths()
    for tokens in natural:
        lengths.observe("flow", "task", min(tokens, limit), limited=tokens >= limit)
    seen = [min(tokens, limit) for tokens in natural]
    assert left(lengths, 0, limit)[0] == pytest.approx(sum(seen) / len(seen))
