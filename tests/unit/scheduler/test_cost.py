"""F: its form, its inverse, and what is refused."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grape_lc.scheduler.cost import MOST_TOKENS, LinearCost, StepLoad, chunk_weight

# About what a small CPU shows: 16 ms a step, 0.6 ms a token.
CPU = LinearCost(0.016, 0.0005, 0.0006, 2e-6, 5e-7, ((32, 1e-4), (128, 2e-4)))
# An accelerator: tokens cost next to nothing up to the knee.
KNEE = LinearCost(0.012, 1e-5, 1e-7, 1e-8, 0.0, ((400, 5e-5),))


def coefficients(most):
    # Zero or a size that a time can have: subnormal seconds are no machine's.
    return st.one_of(st.just(0.0), st.floats(1e-12, most))


@st.composite
def costs(draw, convex=False):
    knots = sorted(draw(st.sets(st.integers(1, 600), max_size=3)))
    prices = draw(st.lists(coefficients(1e-3), min_size=len(knots) + 1, max_size=len(knots) + 1))
    if convex:
        prices.sort()
    hinges = [(knot, b - a) for knot, (a, b) in zip(knots, pairwise(prices), strict=True)]
    return LinearCost(
        draw(coefficients(0.05)),
        draw(coefficients(1e-3)),
        prices[0],
        draw(coefficients(1e-5)),
        draw(coefficients(1e-6)),
        tuple(hinges),
    )


loads = st.builds(
    StepLoad.of, st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4000)), max_size=20)
)


def test_a_load_counts_rows_tokens_contexts_and_pairs():
    load = StepLoad.of([(1, 99), (4, 10)])
    # The chunk's tokens see 11, 12, 13 and 14 tokens; the first one's 11 are no further pairs.
    assert load == StepLoad(2, 5, 114, 12 + 13 + 14)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 4000)), max_size=8))
def test_adding_rows_one_by_one_is_the_same(rows):
    load = StepLoad()
    for tokens, context in rows:
        load = load.plus(tokens, context)
    assert load == StepLoad.of(rows)


@given(st.integers(1, 200), st.integers(0, 2000))
def test_pairs_are_counted_exactly(tokens, context):
    pairs = sum(context + i for i in range(2, tokens + 1))
    assert StepLoad().plus(tokens, context).attention == pairs


def test_seconds_by_hand():
    load = StepLoad(3, 40, 1000, 500.0)
    expected = 0.016 + 3 * 0.0005 + 40 * 0.0006 + 1000 * 2e-6 + 500 * 5e-7 + 8 * 1e-4
    assert CPU.seconds(load) == pytest.approx(expected)


@given(costs(), loads, st.integers(1, 300), st.integers(0, 3000))
def test_more_work_never_takes_less(cost, load, tokens, context):
    before = cost.seconds(load)
    row = cost.seconds(load.plus(tokens, context))
    longer = cost.seconds(load.plus(tokens + 1, context))
    further = cost.seconds(load.plus(tokens, context + 1))
    # Where a token's price adds up to nothing, rounding may show.
    assert before <= row + 1e-12
    assert row <= longer + 1e-12
    assert row <= further


@given(costs(convex=True), loads, st.integers(0, 2000))
def test_convex_in_the_tokens_where_hinges_go_up(cost, load, context):
    times = [cost.seconds(load.plus(n, context)) for n in range(1, 700, 50)]
    steps = [b - a for a, b in pairwise(times)]
    for a, b in pairwise(steps):
        assert b >= a - 1e-9


@given(costs(), loads, st.floats(0.0, 2.0), st.integers(0, 3000))
@example(LinearCost(1.0, per_token=1e-18), StepLoad(), 1.0, 0)
@example(LinearCost(0.0), StepLoad(), 0.0, 0)
def test_tokens_within_is_the_most_that_fits(cost, load, limit, context):
    tokens = cost.tokens_within(load, limit, context)
    if tokens:
        assert cost.seconds(load.plus(tokens, context)) <= limit
    if tokens < MOST_TOKENS:
        assert cost.seconds(load.plus(tokens + 1, context)) > limit


@given(costs(), loads, st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(0, 3000))
def test_tokens_within_rises_with_the_limit(cost, load, limit, more, context):
    assert cost.tokens_within(load, limit, context) <= cost.tokens_within(
        load, limit + more, context
    )


def test_tokens_within_without_a_limit():
    assert CPU.tokens_within(StepLoad(), float("inf")) == MOST_TOKENS
    assert CPU.tokens_within(StepLoad(), 0.010) == 0


@given(costs(), loads, st.integers(0, 2000))
def test_the_slope_is_the_next_tokens_price(cost, load, context):
    grown = load.plus(50, context)
    longer = load.plus(51, context)
    # Pairs of the fiftieth token onwards see fifty tokens more than the context.
    price = cost.seconds(longer) - cost.seconds(grown) - 50 * cost.per_pair
    assert cost.slope(grown, context) == pytest.approx(price, rel=1e-6, abs=1e-12)


@given(costs())
def test_a_mapping_survives_json(cost):
    assert LinearCost.from_mapping(json.loads(json.dumps(cost.to_mapping()))) == cost


@given(costs(), loads, st.floats(0.1, 10.0))
def test_scaling_scales_time(cost, load, factor):
    scaled = cost.scaled(factor).seconds(load)
    assert scaled == pytest.approx(factor * cost.seconds(load), rel=1e-9)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, "base is missing"),
        ({"base": 0.1, "per_step": 1.0}, "unknown coefficients"),
        ({"base": -0.1}, "base: a finite number"),
        ({"base": float("nan")}, "base: a finite"),
        ({"base": 0.1, "per_kv": float("inf")}, "per_kv: a finite"),
        ({"base": "fast"}, "base: a finite number"),
        ({"base": True}, "base: a finite number"),
        ({"base": 0.1, "hinges": "none"}, "hinges: a list"),
        ({"base": 0.1, "hinges": [3]}, "hinges: a list"),
        ({"base": 0.1, "hinges": [[4, 0.1], [4, 0.1]]}, "rising"),
        ({"base": 0.1, "hinges": [[0, 0.1]]}, "rising positive"),
        ({"base": 0.1, "hinges": [[2.5, 0.1]]}, "rising positive"),
        ({"base": 0.1, "hinges": [[2, float("nan")]]}, "hinge at 2"),
        ({"base": 0.1, "hinges": [[2, "steep"]]}, "hinge at 2"),
        ({"base": 0.1, "per_token": 0.2, "hinges": [[2, -0.1], [4, -0.3]]}, "above 4 tokens"),
    ],
)
def test_bad_mappings_are_refused(mapping, message):
    with pytest.raises(ValueError, match=message):
        LinearCost.from_mapping(mapping)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_factors_are_refused(factor):
    with pytest.raises(ValueError, match="factor"):
        CPU.scaled(factor)


@given(st.floats(0.02, 1.0), st.integers(0, 2000))
def test_a_chunk_pays_for_its_row(share, context):
    load = StepLoad.of([(1, 500)] * 4)
    weight = chunk_weight(CPU, load, share=share, context=context, most=512)
    row = CPU.per_row + CPU.per_kv * context - CPU.per_pair

    def paid(tokens):
        whole = CPU.seconds(load.plus(tokens, context)) - CPU.seconds(load)
        return row <= share * (whole - row) * (1 + 1e-9)

    assert weight == 512 or paid(weight)
    assert weight == 1 or not paid(weight - 1) or row <= 0


def test_weight_rises_with_the_row_cost_and_stays_in_bounds():
    load = StepLoad(4, 4, 2000, 0.0)
    dear = LinearCost(0.016, 0.05, 0.0006)
    assert chunk_weight(CPU, load) < chunk_weight(dear, load)
    assert chunk_weight(dear, load, most=64) == 64
    assert chunk_weight(LinearCost(0.016, 0.0, 0.0006), load, least=8) == 8
    assert 1 <= chunk_weight(KNEE, load, most=2048) <= 2048
    with pytest.raises(ValueError, match="least"):
        chunk_weight(CPU, load, least=9, most=8)
