"""What is measured from step to step, and who is due."""

from __future__ import annotations

import pytest

from grape_lc.scheduler.controller import KnownCost
from grape_lc.scheduler.cost import LinearCost, StepLoad
from grape_lc.scheduler.refresh import StepError
from grape_lc.scheduler.types import Level, Limit, Refusal, Stage
from tests.unit.scheduler.controllers import (
    CONFIG,
    MACHINE,
    arrive,
    controller,
    end,
    feed,
    signals,
)
from tests.unit.scheduler.factories import (
    BLOCK,
    CPU,
    make_decode,
    make_open,
    make_prefill,
)

# ------------------------------------------------------------------ signals


def test_pressure_ends_with_a_wide_margin():
    engine = controller()
    engine.opened(make_open(final=True))
    engine.dropped(engine.opens["o1"])
    tight = MACHINE._replace(free=250)
    planned = engine.decide(0.0, tight, [])
    assert planned.level is Level.OFF
    assert planned.refused == {"o1": Refusal.GOVERNOR}
    waiting = arrive(engine, "c2", tokens=BLOCK)
    assert signals(engine, machine=MACHINE._replace(free=251)).pressed
    end(engine, waiting, 0.0)
    assert not signals(engine, machine=MACHINE._replace(free=251)).pressed
    assert not signals(engine, machine=tight).pressed, "it does not come back by itself"


def test_thrashing_ends_with_a_wide_margin_or_when_nothing_runs():
    engine = controller()
    running = [make_decode(end_blocks=0, output=11)]
    tight = MACHINE._replace(free=250)

    def thrash():
        view = arrive(engine, "c5")
        engine.call_started(view, Stage.PREFILL)
        engine.call_requeued(view)

    thrash()
    assert signals(engine, machine=tight, running=running).thrashing
    assert not signals(engine, machine=MACHINE._replace(free=251), running=running).thrashing
    thrash()
    assert not signals(engine, machine=tight, running=()).thrashing


def test_in_how_many_steps_calls_wait_for_kv():
    engine = controller()
    assert signals(engine).tight == 0.0
    arrive(engine, tokens=10 * BLOCK)
    tight = MACHINE._replace(free=9)
    for _ in range(100):
        engine.decide(0.0, tight, [make_decode(output=1)])
    assert signals(engine).tight == pytest.approx(1 - 0.99**100)
    engine.opened(make_open("o2", computed=16))
    for _ in range(500):
        engine.decide(0.0, tight, [make_decode(output=1)])
    assert signals(engine).tight < 0.005, "what an open prompt holds keeps no call waiting"


def test_what_was_lost_to_preemptions():
    engine = controller()
    assert signals(engine).recomputed == 0.0
    view = arrive(engine, tokens=200)
    engine.ran(1000, [(view, 1000)])
    engine.call_started(view, Stage.PREFILL)
    engine.call_requeued(view)
    assert signals(engine).recomputed == pytest.approx(0.2)
    for _ in range(200):
        engine.ran(1000, [])
    assert signals(engine).recomputed < 1e-4


def ended_open(engine, adopted, computed=100):
    view = make_open(computed=computed, tokens=200)
    engine.opened(view)
    engine.open_ended(view, adopted)


def test_the_share_of_early_tokens_that_were_of_use():
    engine = controller()
    assert signals(engine).hit_rate == 1.0
    ended_open(engine, 50)
    assert signals(engine).hit_rate == pytest.approx(0.95)
    for _ in range(100):
        ended_open(engine, 0)
    assert signals(engine).hit_rate < 0.01
    for _ in range(100):
        ended_open(engine, 130)
    assert 0.99 < signals(engine).hit_rate <= 1.0


def test_misses_in_a_row():
    engine = controller()
    for _ in range(3):
        ended_open(engine, 0)
    assert signals(engine).misses == 3
    ended_open(engine, None)
    ended_open(engine, 0, computed=0)
    assert signals(engine).misses == 3, "nobody asked for it, or nothing was computed"
    ended_open(engine, 1)
    assert signals(engine).misses == 0


def test_after_too_many_misses_early_work_is_tried_again_now_and_then():
    engine = controller(CONFIG.but(most_misses=2, least_hits=0.0))

    def level():
        return engine.decide(0.0, MACHINE, [make_decode(output=1)]).level

    ended_open(engine, 0)
    assert level() is Level.FULL
    ended_open(engine, 0)
    assert level() is Level.OFF
    ended_open(engine, None, computed=0)
    assert level() is Level.FULL
    ended_open(engine, 0)
    assert level() is Level.OFF


def test_the_mean_queue_and_how_long_its_first_waits():
    engine = controller()
    for number in range(3):
        arrive(engine, f"c{number}", now=number)
    engine.decide(5.0, MACHINE, [])
    assert signals(engine).queue == pytest.approx(0.15)
    assert signals(engine).behind == 5.0
    for _ in range(200):
        engine.decide(6.0, MACHINE, [])
    assert signals(engine).queue == pytest.approx(3.0, abs=0.01)
    for view in list(engine.waiting.values()):
        end(engine, view, 6.0)
    engine.decide(7.0, MACHINE, [])
    assert signals(engine).behind == 0.0


def test_how_often_steps_begin_a_prefill():
    engine = controller()
    assert signals(engine).spikes == 1.0
    for number in range(600):
        if number % 10 == 0:
            view = arrive(engine, f"c{number}")
            engine.call_started(view, Stage.PREFILL)
        engine.decide(0.0, MACHINE, [])
    assert signals(engine).spikes == pytest.approx(0.1, abs=0.02)
    for number in range(600):
        # Switches are dealt with otherwise; so are calls that run again.
        view = arrive(engine, f"c{number}", adopted=True, computed=190)
        engine.call_started(view, Stage.PREFILL)
        engine.call_started(view, Stage.DECODE)
        engine.decide(0.0, MACHINE, [])
    assert signals(engine).spikes < 0.001


def test_the_duration_of_steps():
    engine = controller()
    for _ in range(100):
        engine.measured(StepLoad(1, 1, 1), 0.05)
    assert signals(engine).step_s == pytest.approx(0.05, rel=1e-3)


class Learner:
    """Remembers what it was shown."""

    cost = CPU
    error = StepError(p50=0.01, p95=0.08, steps=9)

    def __init__(self):
        self.seen = []

    def observe(self, load, seconds):
        self.seen.append((load, seconds))


def test_costs_are_shown_every_step_and_tell_their_error():
    costs = Learner()
    engine = controller(costs=costs)
    engine.measured(StepLoad(1, 1, 1), 0.05)
    assert costs.seen == [(StepLoad(1, 1, 1), 0.05)]
    snapshot = engine.look(0.0, MACHINE, [])
    assert snapshot.cost is CPU
    assert snapshot.signals.error == 0.08
    assert signals(controller()).error is None
    assert controller().look(0.0, MACHINE, []).cost is None


def test_a_known_cost_learns_nothing():
    costs = KnownCost(LinearCost(0.01))
    costs.observe(StepLoad(1, 1, 1), 9.0)
    assert costs == KnownCost(LinearCost(0.01))


# ------------------------------------------------------------------ followers


def test_open_prompts_wait_for_the_first_call_of_their_program():
    engine = controller()
    opens = [
        make_open("o2", program="p", arrived=5.0),
        make_open("o3", program="q", arrived=5.0),
        make_open("o4", arrived=5.0),
    ]
    for view in opens:
        engine.opened(view)

    def early(now):
        refused = engine.decide(now, MACHINE, []).refused
        return [key for key, why in refused.items() if why is Refusal.ROOT]

    assert early(5.0) == ["o2", "o3"]
    arrive(engine, "c1", now=5.5, program="p")
    assert early(5.9) == ["o3"]
    assert early(6.0) == [], "it may have gone astray"
    known = make_open("o5", program="p", arrived=7.0)
    engine.opened(known)
    assert not known.early


def test_a_follower_is_due_after_a_call_that_feeds_others():
    engine = controller()
    feed(engine, 10.0)
    found = signals(engine, now=10.004)
    assert found.since_feeder == pytest.approx(0.004)
    assert found.follower_s == 0.0
    arrive(engine, "c2", now=10.008, program="p")
    found = signals(engine, now=10.01)
    assert found.since_feeder is None
    assert 0 < found.follower_s < 0.008


def test_a_call_that_was_aborted_has_a_follower_too():
    """So the front end ends a call at a stop string."""
    engine = controller()
    feed(engine, 10.0, complete=False)
    assert signals(engine, now=10.001).since_feeder is not None


def test_no_follower_of_a_call_that_feeds_nothing_or_belongs_to_nothing():
    engine = controller()
    end(engine, arrive(engine, "c1", program="p"), 10.0)
    end(engine, arrive(engine, "c2", feeds=True), 10.0)
    assert signals(engine, now=10.001).since_feeder is None


def test_the_engine_waits_for_a_follower_and_makes_way_for_it():
    engine = controller()
    for _ in range(100):
        engine.measured(StepLoad(), 0.05)
    running = [make_decode("d1", output=11), make_prefill("p2", tokens=600)]
    feed(engine, 10.0)
    held = engine.decide(10.002, MACHINE, running)
    assert (held.limit, held.budget) == (Limit.HOLD, 0)
    arrive(engine, "c9", now=10.003, program="p", adopted=True, tokens=200, computed=190)
    switch = engine.decide(10.003, MACHINE, running)
    assert (switch.limit, switch.budget) == (Limit.SWITCH, 1 + 10)
    again = engine.decide(10.06, MACHINE, running)
    assert again.limit is not Limit.SWITCH, "not twice in a row"
    assert engine.decide(10.1, MACHINE, running).limit is Limit.SWITCH
