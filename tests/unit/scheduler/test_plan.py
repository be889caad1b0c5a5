"""The whole policy on one snapshot: how its parts fit together."""

from __future__ import annotations

import pytest

from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.policy import plan
from grape_lc.scheduler.settings import PLAIN, Constraint, Eviction, PolicyConfig, Rule
from grape_lc.scheduler.types import Item, Level, Limit, Plan, Reason, Refusal, Victim
from tests.unit.scheduler.factories import (
    CPU,
    make_decode,
    make_decodes,
    make_open,
    make_pool,
    make_prefill,
    make_snapshot,
    make_view,
)

CONFIG = PolicyConfig(
    rule=Rule.DEADLINE,
    constraint=Constraint.CAP,
    chunk=16,
    prefill_cap=64,
    open_cap=128,
    hold_s=0.012,
    grace_s=0.02,
    grace_tokens=8,
    margin=0.01,
    wide_margin=0.25,
)


def call(key="c1", pending=60, **fields):
    return make_view(key, tokens=pending, **{"rank": (float(key[1:]),), **fields})


def follower(key="c9", pending=20, **fields):
    return call(key, 200, computed=200 - pending, adopted=True, **fields)


def decide(config=CONFIG, rows=1, **fields):
    fields.setdefault("decodes", make_decodes(rows))
    return plan(make_snapshot(**fields), config)


def given_to(items):
    return {item.id: item.tokens for item in items}


# ------------------------------------------------------------------ one step


def test_an_engine_with_nothing_to_do():
    assert decide(rows=0) == Plan(budget=512, limit=Limit.NONE, starts=(), reserve=10)


def test_calls_first_then_open_prompts():
    planned = decide(prefills=[make_prefill("p1", tokens=140)], opens=[make_open(tokens=190)])
    assert planned.budget == 1 + 64
    assert planned.prefills == (Item("p1", 40, Reason.FAIR),)
    assert planned.opens == (Item("o1", 24, Reason.READY),)
    assert planned.refused == {}


def test_a_call_that_waits_comes_before_early_work():
    planned = decide(waiting=[call(pending=50)], opens=[make_open()])
    assert planned.starts == (Item("c1", 50, Reason.FAIR),)
    assert planned.refused == {"o1": Refusal.BUDGET}


def test_the_step_of_a_switch_is_as_short_as_can_be():
    fields = {"prefills": [make_prefill("p1", tokens=600)], "waiting": [follower()]}
    switch = decide(rows=3, **fields)
    assert (switch.limit, switch.budget) == (Limit.SWITCH, 3 + 20)
    assert given_to(switch.prefills) == {"p1": 0}
    assert given_to(switch.starts or ()) == {"c9": 20}
    # A new program must not starve among many switches.
    after = decide(rows=3, switched=True, **fields)
    assert (after.limit, after.budget) == (Limit.CAP, 3 + 64)
    assert given_to(after.prefills) == {"p1": 44}


def test_a_step_that_waits_for_a_follower_is_empty():
    planned = decide(
        since_feeder=0.001,
        follower_s=0.003,
        step_s=0.1,
        cost=CPU,
        prefills=[make_prefill()],
        waiting=[call()],
        opens=[make_open(final=True)],
    )
    assert planned == Plan(
        budget=0,
        limit=Limit.HOLD,
        prefills=(Item("p1", 0, Reason.FAIR),),
        starts=(),
        refused={"o1": Refusal.BUDGET},
        reserve=10,
    )


def test_a_grace_step_takes_a_few_tokens():
    planned = decide(since_feeder=0.001, follower_s=0.1, waiting=[call()], opens=[make_open()])
    assert (planned.limit, planned.budget) == (Limit.GRACE, 1 + 8)
    assert given_to(planned.starts or ()) == {"c1": 8}
    assert planned.refused == {"o1": Refusal.BUDGET}


def test_a_call_that_must_not_be_cut_comes_on_top():
    planned = decide(
        prefills=[make_prefill("p1", tokens=600)], waiting=[call("c2", 300, whole=True)]
    )
    assert planned.budget == 1 + 64 + 300
    assert given_to(planned.prefills) == {"p1": 64}
    assert given_to(planned.starts or ()) == {"c2": 300}


def test_decodes_are_never_squeezed():
    assert decide(rows=600).budget == 512
    assert decide(rows=500, waiting=[call(pending=60)]).budget == 512


def test_levels_come_with_their_reason():
    planned = decide(rows=0, opens=[make_open(final=True)], pressed=True)
    assert (planned.level, planned.level_reason) == (Level.OFF, "an open prompt gave up its KV")
    assert planned.refused == {"o1": Refusal.GOVERNOR}


def test_the_reserve_covers_what_calls_will_need_and_a_margin():
    pool = make_pool(free=66, total=1000, growth=20, waiting=30)
    assert decide(pool=pool).reserve == 20 + 30 + 10
    assert decide(CONFIG.but(margin=0.0), pool=pool).reserve == 20 + 30 + 1
    prompt = make_open(tokens=300, computed=96, held_blocks=6)
    planned = decide(rows=0, pool=pool, opens=[prompt], config=CONFIG.but(governor=False))
    assert given_to(planned.opens) == {"o1": 96}


# ------------------------------------------------------------------ who gives up KV


def short_of_kv(free, **fields):
    """Two decodes of which both need a block."""
    decodes = make_decodes(2, blocks=2)
    running = [make_decode("d1", tokens=400), make_decode("d2", tokens=200)]
    return decide(decodes=decodes, running=running, pool=make_pool(free=free), **fields)


def test_nobody_gives_up_what_is_not_needed():
    assert short_of_kv(2).preempt == ()


def test_open_prompts_give_way_before_running_calls():
    opens = [make_open("o1"), make_open("o2", hops=2)]
    tail = CONFIG.but(eviction=Eviction.TAIL)
    planned = short_of_kv(0, opens=opens, config=tail)
    assert planned.preempt == (Victim("o2", 7, "tail"),)
    assert planned.refused == {"o2": Refusal.VICTIM, "o1": Refusal.KV}
    assert short_of_kv(1, config=tail).preempt == (Victim("d2", 13, "tail"),)


def test_prefill_needs_blocks_too():
    prefills = [make_prefill("p3", tokens=600)]
    # 64 tokens are 4 blocks, and one more where they begin amid a block.
    assert short_of_kv(7, prefills=prefills, opens=[make_open()]).preempt == ()
    assert short_of_kv(6, prefills=prefills, opens=[make_open()]).preempt != ()


def test_who_is_preempted_is_not_planned():
    running = [make_decode("d1"), make_prefill("p2", tokens=600)]
    planned = decide(
        config=CONFIG.but(eviction=Eviction.TAIL),
        decodes=make_decodes(1, blocks=1),
        prefills=running[1:],
        running=running,
        waiting=[call("c3", 16)],
        pool=make_pool(free=0),
    )
    assert [victim.id for victim in planned.preempt] == ["p2"]
    assert planned.prefills == ()
    assert planned.starts == ()
    assert planned.refused == {"p2": Refusal.VICTIM, "c3": Refusal.ADMISSION}


def test_nothing_is_preempted_for_an_empty_step():
    hold = {"since_feeder": 0.001, "follower_s": 0.003, "step_s": 0.1}
    assert short_of_kv(0).preempt
    assert not short_of_kv(0, **hold).preempt


# ------------------------------------------------------------------ how long it takes


def predicted(rows, *prefills):
    """Of decodes behind 200 tokens each, and of (tokens, context) beside them."""
    return pytest.approx(CPU.seconds(StepLoad.of([(1, 200)] * rows + list(prefills))))


def test_a_step_is_predicted_with_all_it_computes():
    planned = decide(
        cost=CPU, rows=2, prefills=[make_prefill(tokens=140)], opens=[make_open(tokens=190)]
    )
    assert planned.predicted_s == predicted(2, (40, 100), (24, 100))


def test_without_caps_too():
    prefills = [make_prefill("p1", tokens=140)]
    planned = decide(cost=CPU, rows=0, prefills=prefills, waiting=[call("c2", 30)])
    assert planned.limit is Limit.NONE
    assert planned.prefills == ()
    assert planned.predicted_s == predicted(0, (40, 100), (30, 0))
    stock = decide(
        PolicyConfig(**PLAIN), cost=CPU, rows=0, prefills=prefills, waiting=[call("c2", 30)]
    )
    assert stock.starts is None
    assert stock.predicted_s == planned.predicted_s


def test_no_more_is_predicted_than_fits():
    waiting = [call(f"c{n}", 40) for n in range(1, 6)]
    planned = decide(cost=CPU, rows=2, waiting=waiting)
    assert planned.predicted_s == predicted(2, (40, 0), (24, 0))


def test_what_is_blocked_takes_no_time():
    planned = decide(cost=CPU, rows=2, waiting=[call(blocked=True)])
    assert planned.predicted_s == predicted(2)


def test_nothing_is_predicted_without_a_model():
    assert decide(rows=2).predicted_s is None


# ------------------------------------------------------------------ every mechanism off


def test_plain_settings_leave_the_engine_alone():
    planned = decide(
        PolicyConfig(**PLAIN),
        rows=3,
        prefills=[make_prefill()],
        waiting=[call(), follower()],
        opens=[make_open(), make_open("o2", final=True, static=50)],
        since_feeder=0.001,
        step_s=0.1,
    )
    assert (planned.budget, planned.limit) == (512, Limit.NONE)
    assert (planned.prefills, planned.starts, planned.opens) == ((), None, ())
    assert planned.refused == {"o1": Refusal.OFF, "o2": Refusal.OFF}
