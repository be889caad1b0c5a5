"""Which waiting calls may start in a step."""

from __future__ import annotations

from grape_lc.scheduler.settings import Rule
from grape_lc.scheduler.types import Limit, Refusal
from tests.unit.scheduler.factories import (
    make_decodes,
    make_open,
    make_pool,
)
from tests.unit.scheduler.selections import (
    CONFIG,
    call,
    choose,
    follower,
    given_to,
    prefill,
    shares_of,
)

# ------------------------------------------------------------------ who starts


def test_a_call_beyond_the_room_is_named_in_case_others_hit_the_cache():
    waiting = [call(f"c{n}", 40) for n in range(1, 20)]
    calls = choose(64, waiting=waiting, free_rows=30)
    assert [item.id for item in calls.starts or ()] == [f"c{n}" for n in range(1, 11)]
    assert [item.tokens for item in calls.starts or ()] == [40, 24] + [64] * 8
    assert calls.refused == {"c11": Refusal.BUDGET}
    assert sum(shares_of(calls).values()) == 64


def test_no_more_calls_start_than_there_are_slots():
    waiting = [call(f"c{n}", 4) for n in range(1, 6)]
    calls = choose(64, waiting=waiting, free_rows=3)
    assert [item.id for item in calls.starts or ()] == ["c1", "c2", "c3"]
    assert calls.refused == {"c4": Refusal.ROWS}
    assert choose(64, waiting=waiting, free_rows=0).refused == {"c1": Refusal.ROWS}


def test_a_blocked_call_takes_its_place_but_no_room():
    waiting = [call("c1", 60, blocked=True), call("c2", 60)]
    calls = choose(64, waiting=waiting)
    assert {item.id for item in calls.starts or ()} == {"c1", "c2"}
    assert shares_of(calls) == {"c1": 0, "c2": 60}
    assert calls.left == 4


def test_the_engine_keeps_its_own_order_under_fcfs_without_admission():
    waiting = [call("c1", 60), call("c2", 60)]
    fcfs = CONFIG.but(rule=Rule.FCFS)
    assert choose(64, fcfs, waiting=waiting).starts is not None
    stock = choose(64, fcfs.but(admission=False), waiting=waiting, free_rows=1)
    assert stock.starts is None
    assert stock.refused == {}, "the policy does not decide it"


def test_while_kv_decides_calls_go_as_they_came():
    waiting = [
        call("c2", 30, rank=(5.0,), program="a"),
        call("c3", 30, rank=(4.0,), program="a"),
        call("c4", 30, rank=(3.0,), program="b"),
    ]

    def order(config, **fields):
        return [item.id for item in choose(100, config, waiting=waiting, **fields).starts or ()]

    auto = CONFIG.but(rule=Rule.AUTO, tight=0.1)
    assert order(auto, tight=0.2) == ["c2", "c3", "c4"]
    assert order(auto, tight=0.1) == ["c2", "c4", "c3"]
    # A rule that was asked for holds, and so do targets.
    assert order(CONFIG.but(tight=0.1), tight=0.2) == ["c2", "c4", "c3"]
    targets = make_decodes(1, slack_s=0.1)
    assert order(auto, tight=0.2, decodes=targets) == ["c2", "c4", "c3"]


# ------------------------------------------------------------------ KV


THRASHING = {"thrashing": True, "recomputed": CONFIG.thrash + 0.01}


def test_admission_stops_at_the_first_call_that_does_not_fit():
    """A smaller one does not overtake it, or it might wait for ever."""
    pool = make_pool(free=270)
    waiting = [call("c1", 160), call("c2", 320), call("c3", 16)]
    calls = choose(512, pool=pool, waiting=waiting, **THRASHING)
    assert [item.id for item in calls.starts or ()] == ["c1"]
    assert calls.refused == {"c2": Refusal.ADMISSION}
    for config, fields in ((CONFIG.but(admission=False), THRASHING), (CONFIG, {})):
        free = choose(512, config, pool=make_pool(free=9), waiting=waiting, **fields)
        assert [item.id for item in free.starts or ()] == ["c1", "c2", "c3"]


ROOMY = CONFIG.but(wide_margin=0.1)


def refused_with(free, growth=0, config=ROOMY, **fields):
    return choose(512, config, pool=make_pool(free=free, growth=growth), **fields).refused


def test_once_preemptions_cost_much_ample_room_is_asked_for():
    """And half of what running calls will need."""
    fields = {"waiting": [call("c1", 160)], "growth": 21}
    assert refused_with(0, **fields) == {}
    assert refused_with(120, **fields, thrashing=True) == {}
    assert refused_with(121, **fields, **THRASHING) == {}
    assert refused_with(120, **fields, **THRASHING) == {"c1": Refusal.ADMISSION}
    off = CONFIG.but(admission=False)
    assert refused_with(120, config=off, **fields, **THRASHING) == {}


def test_prompts_that_run_keep_all_they_lack():
    """They have 7 of 16 blocks."""
    fields = {"prefills": [prefill("p1", 156)], "waiting": [call("c2", 160)], "growth": 9}
    assert refused_with(119, **fields, **THRASHING) == {}
    assert refused_with(118, **fields, **THRASHING) == {"c2": Refusal.ADMISSION}


def test_calls_that_start_together_count_for_each_other():
    fields = {"waiting": [call(f"c{n}", 160, end_blocks=30) for n in (1, 2)]}
    assert refused_with(130, **fields, **THRASHING) == {}
    assert refused_with(129, **fields, **THRASHING) == {"c2": Refusal.ADMISSION}


def test_open_prompts_keep_no_call_from_starting():
    waiting = [call("c1", 320)]
    opens = [make_open("o1", held_blocks=15)]
    assert refused_with(105, waiting=waiting, **THRASHING) == {"c1": Refusal.ADMISSION}
    assert refused_with(105, waiting=waiting, opens=opens, **THRASHING) == {}


def test_an_adopted_call_needs_what_it_lacks_only():
    waiting = [follower("c1", 20)]
    assert refused_with(102, waiting=waiting, **THRASHING) == {}
    assert refused_with(101, waiting=waiting, **THRASHING) == {"c1": Refusal.ADMISSION}


def test_what_an_adopted_call_holds_is_not_taken_twice():
    waiting = [follower("c1", 20), call("c2", 160)]
    assert refused_with(112, waiting=waiting, **THRASHING) == {}
    assert refused_with(111, waiting=waiting, **THRASHING) == {"c2": Refusal.ADMISSION}


def test_with_nothing_running_a_call_always_starts():
    calls = choose(
        512,
        limit=Limit.NONE,
        decodes=make_decodes(0),
        pool=make_pool(free=0, growth=500),
        waiting=[call("c1", 320), call("c2", 320)],
        **THRASHING,
    )
    assert [item.id for item in calls.starts or ()] == ["c1"]
    assert calls.refused == {"c2": Refusal.ADMISSION}


def test_victims_get_nothing_and_nothing_starts_beside_a_preemption():
    calls = choose(
        64,
        victims=frozenset({"p1"}),
        prefills=[prefill("p1", 30), prefill("p2", 20)],
        waiting=[call("c3", 30)],
    )
    assert given_to(calls.prefills) == {"p2": 20}
    assert calls.starts == ()
    assert calls.refused == {"p1": Refusal.VICTIM, "c3": Refusal.ADMISSION}


def test_calls_start_beside_open_prompts_that_give_way():
    opens = [make_open("o1", held_blocks=15)]
    calls = choose(64, victims=frozenset({"o1"}), waiting=[call("c3", 30)], opens=opens)
    assert given_to(calls.starts or ()) == {"c3": 30}


# ------------------------------------------------------------------ who waits too long


def test_short_rests_do_not_starve_a_call_that_must_not_be_cut():
    waiting = [call("c1", 600, whole=True, arrived=0.0, rank=(1.0,)), follower("c2", 10)]
    soon = choose(52, waiting=waiting, behind=1.0)
    assert [item.id for item in soon.starts or ()] == ["c2", "c1"]
    assert soon.whole == 0
    late = choose(52, waiting=waiting, behind=1000.0)
    assert late.starts is not None
    assert (late.starts[0].id, late.whole) == ("c1", 600)


def test_calls_that_wait_for_something_else_take_no_slot():
    waiting = [call("c1", 20, blocked=True), call("c2", 20)]
    calls = choose(100, waiting=waiting, free_rows=1)
    assert [item.id for item in calls.starts or ()] == ["c1", "c2"]
    assert calls.refused == {}
