"""What the policy remembers of calls, programs and tenants between steps."""

from __future__ import annotations

import pytest

from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.priority import order
from grape_lc.scheduler.settings import Eviction, PolicyConfig, Rule
from grape_lc.scheduler.types import Stage
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
    make_decode,
    make_open,
    make_view,
)

# ------------------------------------------------------------------ calls and where they stand


def test_a_call_waits_runs_waits_again_and_ends():
    engine = controller()
    view = arrive(engine, tokens=40)
    seen = [(view.stage, list(engine.waiting))]
    assert view.rank
    engine.call_started(view, Stage.PREFILL)
    seen.append((view.stage, list(engine.waiting)))
    engine.call_requeued(view)
    seen.append((view.stage, list(engine.waiting)))
    engine.call_started(view, Stage.DECODE)
    seen.append((view.stage, list(engine.waiting)))
    end(engine, view, 1.0)
    assert not engine.waiting
    assert seen == [
        (Stage.WAITING, ["c1"]),
        (Stage.PREFILL, []),
        (Stage.WAITING, ["c1"]),
        (Stage.DECODE, []),
    ]
    engine.validate()


def test_what_waiting_calls_need_is_counted_in_blocks():
    engine = controller(groups=2)
    one, two = arrive(engine, "c1", tokens=16), arrive(engine, "c2", tokens=17)
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 2 * (1 + 2)
    engine.call_started(one, Stage.PREFILL)
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 4
    engine.call_requeued(one)
    engine.call_grew(one, 33)
    assert one.tokens == 33
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 4 + 6
    end(engine, two, 1.0)
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 6
    engine.call_ended(one, 1.0, complete=False, limited=False)
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 0
    engine.validate()


def test_what_a_waiting_call_took_over_it_does_not_need():
    engine = controller()
    view = arrive(engine, tokens=200, computed=190, adopted=True)
    assert view.held_blocks == 12
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 1
    view.computed = view.held_blocks = 0
    engine.call_requeued(view)
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 13
    engine.call_started(view, Stage.PREFILL)
    engine.call_requeued(view)
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 13


def test_a_running_call_that_grows_needs_nothing_to_start():
    engine = controller()
    view = arrive(engine, tokens=16)
    engine.call_started(view, Stage.DECODE)
    engine.call_grew(view, 400)
    assert view.tokens == 400
    assert engine.look(0.0, MACHINE, ()).pool.waiting == 0


def test_a_waiting_call_that_loses_what_it_adopted_is_no_preemption():
    engine = controller()
    view = arrive(engine)
    tight, running = MACHINE._replace(free=9), [make_decode()]
    engine.call_requeued(view)
    assert not signals(engine, machine=tight, running=running).thrashing
    engine.call_started(view, Stage.PREFILL)
    engine.call_requeued(view)
    assert signals(engine, machine=tight, running=running).thrashing


def test_open_prompts_come_and_go():
    engine = controller()
    view = make_open(tokens=90)
    engine.opened(view)
    assert engine.opens == {"o1": view}
    assert view.static == 90
    engine.open_ended(view, None)
    assert not engine.opens
    engine.open_ended(view, None)
    engine.validate()


def test_programs_begin_with_their_first_call():
    engine = controller()
    first = arrive(engine, "c1", now=3.0, program="p")
    later = arrive(engine, "c2", now=9.0, program="p")
    alone = arrive(engine, "c3", now=9.0)
    assert first.program_arrived == later.program_arrived == 3.0
    assert alone.program_arrived is None


def test_a_call_that_is_noticed_late_came_when_it_came():
    engine = controller()
    view = make_view("c1", program="p", arrived=3.0)
    engine.call_arrived(view, 3.4)
    assert view.program_arrived == 3.0


def test_the_program_unheard_of_for_the_longest_is_forgotten():
    engine = controller()
    for number in range(16_384):
        view = arrive(engine, "c1", now=float(number), program=f"p{number}")
        engine.call_ended(view, 0.0, complete=False, limited=False)
    arrive(engine, "c2", now=20_000.0, program="p0")
    assert arrive(engine, "c3", now=20_001.0, program="one more").program_arrived == 20_001.0
    assert arrive(engine, "c4", now=20_002.0, program="p0").program_arrived == 0.0
    assert arrive(engine, "c5", now=20_003.0, program="p1").program_arrived == 20_003.0


# ------------------------------------------------------------------ order


def test_in_overload_calls_are_ranked_anew():
    engine = controller(PolicyConfig(rule=Rule.AUTO, root_s=1.5, two_phase=False))
    for _ in range(200):
        engine.measured(StepLoad(), 0.1)
    old = arrive(engine, "c1", now=0.0)
    arrive(engine, "c2", now=2.8, task="plan", max_output=400)
    arrive(engine, "c3", now=2.9, task="plan", max_output=4)

    def order(now):
        planned = engine.decide(now, MACHINE, [])
        return [item.id for item in planned.starts or ()]

    assert order(3.0) == ["c1", "c2", "c3"]
    assert order(3.1).index("c3") < order(3.1).index("c2")
    end(engine, old, 3.1)
    assert order(3.1) == ["c2", "c3"]


def test_service_of_a_program_counts_against_its_next_call():
    engine = controller(CONFIG.but(rule=Rule.ATTAINED, aging=0.01))
    heavy = arrive(engine, "c1", now=0.0, program="p")
    waiting = arrive(engine, "c2", now=20.0, program="p")
    light = arrive(engine, "c3", now=21.0, program="q")
    assert waiting.rank < light.rank
    end(engine, heavy, 22.0)
    assert waiting.rank > light.rank
    assert arrive(engine, "c4", now=23.0, program="p").rank > light.rank


def test_tenants_take_turns_by_what_they_were_served():
    engine = controller(CONFIG.but(two_phase=False))
    views = {key: arrive(engine, key, tenant=tenant) for key, tenant in (("c1", "a"), ("c2", "b"))}

    def order():
        one_row = MACHINE._replace(free_rows=1)
        return [item.id for item in engine.decide(0.0, one_row, []).starts or ()]

    assert order() == ["c1"]
    engine.ran(309, [(views["c1"], 300), (None, 9)])
    assert order() == ["c2"]
    assert engine.look(0.0, MACHINE, []).served == {"a": pytest.approx(300, rel=0.01)}


def test_what_a_tenant_was_served_long_ago_counts_for_less():
    """Also what was served while nobody else was there."""
    engine = controller()
    alone, late = arrive(engine, "c1"), arrive(engine, "c2", tenant="b")
    for _ in range(400):
        engine.ran(5000, [(alone, 5000)])
    assert engine.look(0.0, MACHINE, []).served[""] < 1.5e5
    for _ in range(40):
        engine.ran(5000, [(late, 5000)])
    served = engine.look(0.0, MACHINE, []).served
    assert served[""] < served["b"]
    for _ in range(400):
        engine.ran(5000, [(late, 5000)])
    assert engine.look(0.0, MACHINE, []).served.keys() == {"b"}


def test_eviction_is_planned_from_what_runs():
    engine = controller(CONFIG.but(eviction=Eviction.TAIL))
    running = [make_decode("d1", tokens=33), make_decode("d2", tokens=33)]
    planned = engine.decide(0.0, MACHINE._replace(free=1), running)
    assert [victim.id for victim in planned.preempt] == ["d2"]


# ------------------------------------------------------------------ steps


def test_steps_are_numbered_and_their_snapshot_stays():
    engine = controller()
    first = engine.decide(1.0, MACHINE, [])
    assert engine.snapshot is not None
    assert (engine.snapshot.step, engine.snapshot.now) == (0, 1.0)
    assert engine.plan is first
    engine.look(2.0, MACHINE, [])
    assert (engine.snapshot.step, engine.snapshot.now) == (0, 1.0)
    engine.decide(3.0, MACHINE, [])
    assert (engine.snapshot.step, engine.snapshot.now) == (1, 3.0)


def test_work_of_an_idle_engine():
    engine = controller()
    assert engine.idle_work(0.0, MACHINE) == 0
    engine.opened(make_open("o1", final=True))
    engine.opened(make_open("o2", stalled=True))
    assert engine.idle_work(0.0, MACHINE) == 1
    feed(engine, 10.0)
    # It does not run now, but the engine must wake up for it.
    assert engine.decide(10.001, MACHINE, []).opens == ()
    assert engine.idle_work(10.001, MACHINE) == 1


# ------------------------------------------------------------------ validation


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda e: e.waiting["c1"].__setattr__("stage", Stage.DECODE), "c1 waits at stage decode"),
        (lambda e: e.waiting["c1"].__setattr__("rank", ()), "c1 waits without a rank"),
        (lambda e: e.waiting["c1"].__setattr__("id", "x"), "x waits as c1"),
        (lambda e: e.waiting.pop("c1"), "calls that wait"),
        (lambda e: e.opens["o2"].__setattr__("stage", Stage.DECODE), "o2 is open at stage decode"),
        (lambda e: e.opens["o2"].__setattr__("id", "x"), "x is open as o2"),
        (lambda e: e.opens.update(c1=e.waiting["c1"]), "c1 is open at stage waiting"),
    ],
)
def test_contradictions_are_found(spoil, message):
    engine = controller()
    arrive(engine, "c1")
    engine.opened(make_open("o2"))
    engine.validate()
    spoil(engine)
    with pytest.raises(AssertionError, match=message):
        engine.validate()


def test_new_tenants_do_not_starve_one_that_was_served():
    """Each new one would have been served less."""
    engine = controller()
    engine._served = {"old": 220.0}
    old = arrive(engine, "c1", now=1.0, tenant="old")
    for number in range(2, 6):
        arrive(engine, f"c{number}", now=float(number), tenant=f"new{number}")
    snapshot = engine.look(9.0, MACHINE, ())
    assert order(snapshot.waiting, snapshot.served, CONFIG)[0] is old


def test_tenants_that_were_served_alike_go_by_arrival():
    engine = controller()
    late = arrive(engine, "c1", now=2.0, tenant="a")
    first = arrive(engine, "c2", now=1.0, tenant="z")
    assert order([late, first], {}, CONFIG) == [first, late]
