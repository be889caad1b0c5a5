"""A call is not passed for ever by those that keep coming."""

from __future__ import annotations

import pytest

from grape_lc.scheduler.controller import KnownCost
from grape_lc.scheduler.cost import LinearCost
from grape_lc.scheduler.priority import MOST_LEVEL_S
from grape_lc.scheduler.settings import Constraint, PolicyConfig, Rule
from grape_lc.scheduler.types import Hint
from tests.unit.scheduler.toy_engine import ToyEngine

STEP_S = 0.1
AGING = 4.0
TARGET_S = 6.0


def bound_s(rule):
    """As ``priority.rank`` states it, for a call whose program has long been served.

    Nobody knows how long that program takes, and its first token has time.
    """
    return {
        Rule.FCFS: 0.0,
        Rule.SERVICE: 0.0,
        Rule.ATTAINED: MOST_LEVEL_S / AGING,
        Rule.SHORTEST: MOST_LEVEL_S / AGING,
        Rule.DEADLINE: TARGET_S,
        # While overloaded that of ``shortest`` holds.
        Rule.AUTO: MOST_LEVEL_S / AGING,
    }[rule]


@pytest.mark.parametrize("two_phase", [True, False])
@pytest.mark.parametrize("rule", [rule for rule in Rule if rule is not Rule.HOPS])
def test_a_call_starts_within_its_bound_though_more_comes_than_goes(rule, two_phase):
    config = PolicyConfig(
        rule=rule, aging=AGING, two_phase=two_phase, constraint=Constraint.CAP, prefill_cap=8
    )
    engine = ToyEngine(
        config,
        blocks=200,
        rows=1,
        max_tokens=16,
        step_s=STEP_S,
        costs=KnownCost(LinearCost(STEP_S)),
    )
    engine.call(6, 3, Hint("old"))
    engine.step()
    engine.now += 500.0
    while engine.busy:
        engine.step()
    # Much was attained when its next call comes, into an engine that is full.
    number = 0
    for _ in range(4):
        number = newcomer(engine, number)
    engine.step()
    call, arrived = engine.call(12, 3, Hint("old", ttft_s=TARGET_S)), engine.now
    while call.id not in engine.started:
        number = newcomer(engine, number)
        engine.step()
        engine.step()
        # Those that came within the bound go before it, each for three steps; and those that
        # are named beyond the room.
        ahead = 4 + (bound_s(rule) + 2 * STEP_S) / (2 * STEP_S) + 1
        assert engine.now <= arrived + 3 * STEP_S * (ahead + 1)
    passed = {key for key in engine.started if int(key[1:]) > call.seq}
    assert len(passed) <= 1 + bound_s(rule) / (2 * STEP_S)


def newcomer(engine, number):
    """A call of a new program, which takes the engine three steps; one comes in every other."""
    engine.call(6, 3, Hint(f"p{number}", "flow", "plan"))
    return number + 1
