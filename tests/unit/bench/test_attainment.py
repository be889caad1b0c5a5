from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.attainment import MaxRate, crossing, max_rate, max_rates


def test_the_rate_lies_on_the_line_between_two_measured_ones():
    assert crossing([(1.0, 1.0), (2.0, 0.8)], 0.9) == pytest.approx(1.5)
    assert crossing([(1.0, 0.95), (2.0, 0.7), (3.0, 0.0)], 0.9) == pytest.approx(1.2)
    assert crossing([(1.0, 0.9), (2.0, 0.0)], 0.9) == 1.0


def test_the_ends_of_the_measured_rates():
    assert crossing([(1.0, 0.89), (2.0, 1.0)], 0.9) is None
    assert crossing([(1.0, 1.0), (2.0, 0.9)], 0.9) == 2.0
    assert crossing([], 0.9) is None


def test_a_rate_above_the_first_miss_does_not_count():
    assert crossing([(1.0, 1.0), (2.0, 0.8), (3.0, 1.0)], 0.9) == pytest.approx(1.5)


def test_the_interval_draws_repeats_for_all_rates_together():
    curve = {1.0: {1: 1.0, 2: 1.0}, 2.0: {1: 0.8, 2: 0.6}}
    found = max_rate(curve)
    # Means 1 and 0.7: a third of the way. Drawn: (1, 1), (1, 2), (2, 1), (2, 2).
    assert found is not None
    assert found.rate == pytest.approx(1 + 1 / 3)
    low, high = 1 + 1 / 4, 1 + 1 / 2
    # Percentiles of the four sorted values lie between the two outermost of each side.
    assert found.low == pytest.approx(low + (1 / 3 - 1 / 4) * 0.075)
    assert found.high == pytest.approx(high - (1 / 2 - 1 / 3) * 0.075)
    assert not found.censored
    assert found.repeats == 2


def test_a_repeat_that_a_rate_lacks_is_left_out():
    curve = {1.0: {1: 1.0, 2: 0.0}, 2.0: {1: 0.95}}
    assert max_rate(curve) == MaxRate(2.0, True, None, None, 1)
    assert max_rate({1.0: {1: 1.0}, 2.0: {2: 1.0}}) is None
    assert max_rate({}) is None


def test_drawn_repeats_that_miss_everywhere_count_as_zero():
    found = max_rate({1.0: {1: 1.0, 2: 0.85}})
    assert found is not None
    assert (found.rate, found.censored) == (1.0, True)
    assert found.low == pytest.approx(0.075)
    assert found.high == 1.0


SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=6)


@given(SHARES, st.data())
def test_meeting_more_never_lowers_the_rate(shares: list[float], data: st.DataObject):
    place = data.draw(st.integers(0, len(shares) - 1))
    better = list(shares)
    better[place] = data.draw(st.floats(shares[place], 1))
    before, after = (
        crossing([(float(n + 1), share) for n, share in enumerate(each)], 0.9) or 0.0
        for each in (shares, better)
    )
    assert after >= before - 1e-9


@given(SHARES)
def test_the_rate_is_one_of_the_measured_range(shares: list[float]):
    found = max_rate({float(n + 1): {1: share} for n, share in enumerate(shares)})
    assert found is not None
    assert (found.rate is None) == (shares[0] < 0.9)
    assert found.rate is None or 1 <= found.rate <= len(shares)
    assert found.censored == (min(shares) >= 0.9)


def run(variant: str, rate: float | None, repeat: int, share: float | None) -> dict[str, Any]:
    return {
        "workload": "code",
        "variant": variant,
        "rate": rate,
        "repeat": repeat,
        "error": None,
        "metrics": {"goodput": {"strict_share": share}},
    }


def failed(variant: str, rate: float, repeat: int) -> dict[str, Any]:
    return {**run(variant, rate, repeat, None), "error": "gone", "metrics": None}


def test_rates_of_a_results_file():
    runs = [
        run("grape", 1.0, 1, 1.0),
        run("vllm", 1.0, 1, 1.0),
        run("grape", 2.0, 1, 1.0),
        failed("vllm", 2.0, 1),
        failed("dead", 1.0, 1),
    ]
    assert max_rates({"runs": runs}) == [
        {
            "workload": "code",
            "variant": "grape",
            "max_rate": 2.0,
            "ci95": None,
            "censored": True,
        },
        {
            "workload": "code",
            "variant": "vllm",
            "max_rate": pytest.approx(1.1),
            "ci95": None,
            "censored": False,
        },
        {
            "workload": "code",
            "variant": "dead",
            "max_rate": None,
            "ci95": None,
            "censored": False,
        },
    ]


def test_without_an_slo_or_a_rate_there_is_nothing_to_find():
    assert max_rates({"runs": [run("grape", 1.0, 1, None), failed("vllm", 1.0, 1)]}) == []
    assert max_rates({"runs": [run("grape", None, 1, 1.0)]}) == []
    assert max_rates({"runs": []}) == []


def test_workloads_are_told_apart():
    other = {**run("grape", 1.0, 1, 0.5), "workload": "search"}
    found = max_rates({"runs": [run("grape", 1.0, 1, 1.0), other]})
    assert [(each["workload"], each["max_rate"]) for each in found] == [
        ("code", 1.0),
        ("search", None),
    ]
