"""The tracker: what it learns, how it scales a profile, and when it offers nothing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.scheduler.cost import LinearCost, StepLoad
from grape_lc.scheduler.least_squares import FadingLeastSquares
from grape_lc.scheduler.refresh import CostTracker, ErrorBounds, StepError

CPU = LinearCost(0.016, 0.0005, 0.0006, 2e-6, 5e-7)
PROBE = StepLoad.of([(1, 700), (1, 300), (40, 256)])


def steps(count, seed, cost=CPU, noise=0.05, outliers=0.02, prefill=0.2):
    draw = random.Random(seed)
    for _ in range(count):
        rows = [(1, draw.randint(50, 1500)) for _ in range(draw.randint(1, 8))]
        if draw.random() < prefill:
            rows.append((draw.randint(4, 200), draw.choice((0, 200, 800))))
        load = StepLoad.of(rows)
        seconds = cost.seconds(load) * draw.lognormvariate(0.0, noise)
        if draw.random() < outliers:
            seconds *= draw.uniform(1.5, 6.0)
        yield load, seconds


def fed(tracker, observations):
    for load, seconds in observations:
        tracker.observe(load, seconds)
        tracker.validate()
    return tracker


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000), st.floats(0.02, 50.0))
def test_learns_a_machine_from_its_steps(seed, factor):
    machine = CPU.scaled(factor)
    tracker = fed(CostTracker(), steps(1500, seed, machine))
    assert tracker.cost is not None, tracker.reason
    assert tracker.trusted
    assert not tracker.fitted
    assert tracker.cost.seconds(PROBE) == pytest.approx(machine.seconds(PROBE), rel=0.05)
    assert tracker.error.p50 < 0.08
    assert tracker.error.p50 <= tracker.error.p95


def test_says_why_there_is_no_cost_yet():
    tracker = CostTracker()
    assert tracker.cost is None
    assert tracker.reason == "no profile, and no step measured yet"
    fed(tracker, steps(400, 1, prefill=0.0))
    assert tracker.cost is None, "decodes alone cannot tell the price of a token"
    assert "of 16 steps with prefill 0 were seen" in tracker.reason
    fed(tracker, steps(400, 2))
    assert tracker.trusted
    assert tracker.reason is None


def test_follows_a_machine_that_changes():
    tracker = fed(CostTracker(), steps(800, 3))
    slower = LinearCost(0.020, 0.001, 0.0012, 2e-6, 5e-7)
    fed(tracker, steps(4000, 4, slower))
    assert tracker.cost.seconds(PROBE) == pytest.approx(slower.seconds(PROBE), rel=0.05)


def test_noise_beyond_the_bound_is_refused_and_taken_again_later():
    tracker = fed(CostTracker(), steps(1000, 5, noise=0.8))
    assert tracker.cost is None
    assert "the median of its relative errors is" in tracker.reason
    fed(tracker, steps(2000, 6))
    assert tracker.trusted


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.4])
def test_a_profile_is_scaled(factor):
    tracker = CostTracker(CPU)
    assert tracker.cost is CPU, "trusted from the start: its held-out error was checked"
    fed(tracker, steps(1500, 7, CPU.scaled(factor)))
    assert tracker.fitted
    assert tracker.scale == pytest.approx(factor, rel=0.1)
    assert tracker.cost.seconds(PROBE) == pytest.approx(factor * CPU.seconds(PROBE), rel=0.1)


def test_single_outliers_hardly_move_the_scale():
    tracker = fed(CostTracker(CPU), [(PROBE, CPU.seconds(PROBE))] * 100)
    tracker.observe(PROBE, 50.0 * CPU.seconds(PROBE))
    assert tracker.scale < 1.03


def test_a_profile_of_another_machine_gives_way_to_learning():
    other = LinearCost(0.5, 0.0, 1e-5)
    tracker = fed(CostTracker(other), steps(200, 8))
    assert not tracker.fitted
    assert (tracker.reason or "").startswith("the profile does not fit (the ")
    fed(tracker, steps(1000, 9))
    assert tracker.trusted
    assert tracker.cost is not None
    assert tracker.cost.seconds(PROBE) == pytest.approx(CPU.seconds(PROBE), rel=0.06)


def test_the_same_steps_give_the_same_cost():
    first = fed(CostTracker(), steps(500, 10))
    second = fed(CostTracker(), steps(500, 10))
    assert first.cost == second.cost
    assert first.error == second.error


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_teaches_nothing(seconds):
    tracker = fed(CostTracker(CPU), [(PROBE, seconds)] * 500)
    assert tracker.cost is CPU
    assert tracker.error is None
    tracker.observe(StepLoad(), 0.1)
    assert tracker.cost is CPU


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 40), st.integers(1, 400), st.integers(0, 4000), st.floats(1e-6, 9)
        ),
        min_size=1,
        max_size=40,
    ),
    st.booleans(),
)
def test_any_measurements_leave_it_valid(rows, profile):
    tracker = CostTracker(CPU if profile else None)
    for _ in range(12):
        for count, tokens, context, seconds in rows:
            load = StepLoad.of([(tokens, context)] * count)
            tracker.observe(load, seconds)
            tracker.validate()
            if tracker.cost is not None:
                assert tracker.cost.seconds(load) >= 0.0
            assert tracker.trusted == (tracker.reason is None)


def test_bounds_are_checked():
    with pytest.raises(ValueError, match="p95"):
        ErrorBounds(0.1, 0.0)
    assert ErrorBounds().refusal(StepError(0.1, 0.2, 64)) is None
    assert "median" in (ErrorBounds(0.1, 0.3).refusal(StepError(0.2, 0.2, 64)) or "")
    assert "95th" in (ErrorBounds(0.1, 0.3).refusal(StepError(0.1, 0.4, 64)) or "")


def test_the_squares_never_turn_negative():
    squares = FadingLeastSquares(2)
    # y = 2 - 0.5 x: the best slope that is not negative is none.
    observations = [(x, 2.0 - 0.5 * x) for x in (0.0, 1.0, 2.0, 3.0)] * 8
    squares.add(
        [[1.0 for _ in observations], [x for x, _ in observations]], [y for _, y in observations]
    )
    intercept, slope = squares.solve()
    assert slope == 0.0
    assert intercept > 0.0


def test_the_squares_keep_what_new_observations_do_not_tell():
    squares = FadingLeastSquares(2)
    both = [(x, 1.0 + 3.0 * x) for x in (0.0, 1.0, 2.0, 5.0)] * 8
    flat = [(1.0, 4.0)] * 32
    for batch in [both] * 5 + [flat] * 300:
        squares.add([[1.0 / y for _, y in batch], [x / y for x, y in batch]], [1.0] * len(batch))
        squares.solve()
    assert squares.solution == pytest.approx([1.0, 3.0], rel=0.1)
