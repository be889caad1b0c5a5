"""Which open prompts run, why, and why not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.scheduler.batching import Room, decode_load
from grape_lc.scheduler.cost import LinearCost
from grape_lc.scheduler.early import choose_early
from grape_lc.scheduler.settings import Constraint, PolicyConfig
from grape_lc.scheduler.types import Item, Level, Limit, Reason, Refusal
from tests.unit.scheduler.factories import (
    BLOCK,
    CPU,
    GPU,
    configs,
    make_decodes,
    make_open,
    make_pool,
    make_prefill,
    make_snapshot,
    make_view,
    snapshots,
    steady,
)

CONFIG = PolicyConfig(
    constraint=Constraint.CAP, chunk=16, lump=64, near_steps=12, prefill_cap=64, open_cap=128
)
PACED = CONFIG.but(constraint=Constraint.ADAPTIVE)
NONE = frozenset[str]()


def opened(key="o1", pending=50, **fields):
    """An open prompt with 100 tokens computed and the last one held back."""
    fields.setdefault("tokens", 101 + pending)
    return make_open(key, **fields)


def early(
    *opens, config=CONFIG, room=None, left=64, level=Level.FULL, reserve=0, gone=NONE, **more
):
    snapshot = make_snapshot(opens=opens, **more)
    if room is None:
        room = Room(Limit.NONE if snapshot.idle else Limit.CAP, left)
    return choose_early(snapshot, config, room, left, level, reserve, gone)


def beside_decodes(*opens, **more):
    return early(*opens, decodes=make_decodes(2), **more)


def run(*items):
    return tuple(Item(*item) for item in items), {}


# ------------------------------------------------------------------ reasons


def test_an_idle_engine_runs_whatever_is_pending():
    assert early(opened(pending=1)) == run(("o1", 1, Reason.IDLE))


def test_an_idle_engine_runs_short_steps():
    """A call that arrives meanwhile waits for the step."""
    assert early(opened(pending=800), left=512) == run(("o1", 128, Reason.IDLE))


def test_beside_decodes_a_chunk_must_be_pending():
    assert beside_decodes(opened(pending=15)) == ((), {"o1": Refusal.CHUNK})
    assert beside_decodes(opened(pending=16)) == run(("o1", 16, Reason.READY))


def test_a_complete_text_waits_for_no_chunk():
    assert beside_decodes(opened(pending=3, final=True)) == run(("o1", 3, Reason.FINAL))


def paced(*opens, cost=CPU, limit=Limit.STRETCH, config=PACED, room=64, **more):
    """Beside decodes, where tokens have their price."""
    return beside_decodes(*opens, config=config, cost=cost, room=Room(limit, room), **more)


def test_tokens_that_are_nearly_free_are_taken_at_once():
    far = opened(pending=16, hops=2, sure=900.0)
    assert paced(far, cost=GPU) == run(("o1", 16, Reason.CHEAP))
    assert paced(far, cost=CPU) == ((), {"o1": Refusal.PACED})


def test_tokens_with_a_price_wait_for_a_lump_or_for_the_end_of_the_upstream():
    assert paced(opened(pending=63, sure=13.0)) == ((), {"o1": Refusal.PACED})
    assert paced(opened(pending=63, sure=12.0)) == run(("o1", 63, Reason.READY))
    assert paced(opened(pending=64, sure=13.0)) == run(("o1", 64, Reason.LUMP))
    late = {"config": PACED.but(lump=1000), "room": 128, "left": 128}
    assert paced(opened(pending=300, sure=14.0), **late) == run(("o1", 128, Reason.READY))
    assert paced(opened(pending=300, sure=15.0), **late) == ((), {"o1": Refusal.PACED})
    assert paced(opened(pending=63, sure=None)) == run(("o1", 63, Reason.READY))
    assert paced(opened(pending=63, sure=1.0, hops=2)) == ((), {"o1": Refusal.PACED})
    # Work for later hops delays programs that may end first.
    assert paced(opened(pending=64, sure=1.0, hops=2)) == ((), {"o1": Refusal.PACED})
    assert paced(opened(pending=64, sure=None, hops=2)) == ((), {"o1": Refusal.PACED})


def test_cheap_tokens_are_shared_out():
    snapshot = make_snapshot(decodes=make_decodes(2), cost=CPU)
    load = decode_load(snapshot.decodes)
    free = CPU.tokens_within(load, 4.0 * CPU.seconds(load))
    assert 64 < free < 96, "of a machine on which this test makes sense"
    config = PACED.but(open_stretch=4.0, chunk=32, lump=500)
    opens = [opened(f"o{n}", pending=32, hops=2) for n in (1, 2, 3)]
    items, refused = beside_decodes(
        *opens, config=config, cost=CPU, room=Room(Limit.STRETCH, 500), left=500
    )
    assert [item.reason for item in items] == [Reason.CHEAP, Reason.CHEAP]
    assert refused == {"o3": Refusal.PACED}


def test_what_calls_take_is_no_longer_cheap():
    far = opened(pending=16, hops=2)
    fields = {"config": PACED.but(open_stretch=2.0), "cost": CPU, "room": Room(Limit.STRETCH, 94)}
    assert beside_decodes(far, **fields, left=94) == run(("o1", 16, Reason.CHEAP))
    prefills = [make_prefill(tokens=130)]
    assert beside_decodes(far, **fields, left=64, prefills=prefills) == (
        (),
        {"o1": Refusal.PACED},
    )


@pytest.mark.parametrize("limit", [Limit.GRACE, Limit.SWITCH])
def test_in_a_short_step_all_that_fits_is_cheap(limit):
    items, _ = paced(opened(pending=16, hops=2), limit=limit)
    assert [item.reason for item in items] == [Reason.CHEAP]


def test_without_a_cost_model_nothing_counts_as_cheap():
    far = opened(pending=16, hops=2)
    assert beside_decodes(far, config=PACED) == ((), {"o1": Refusal.PACED})


# ------------------------------------------------------------------ order


def test_nearest_first_then_the_one_that_is_due_first_then_the_first_opened():
    opens = [
        opened("o1", hops=2),
        opened("o2", hops=1),
        opened("o3", hops=1, remaining=20.0),
        opened("o4", hops=1, remaining=5.0),
        opened("o5", hops=1),
    ]
    items, _ = early(*opens, config=CONFIG.but(open_cap=500), left=500)
    assert [item.id for item in items] == ["o4", "o3", "o2", "o5", "o1"]


def test_the_last_one_gets_what_is_left_if_that_is_a_chunk():
    opens = [opened(f"o{n}") for n in (1, 2, 3)]
    assert given_to(early(*opens, left=200)) == {"o1": 50, "o2": 50, "o3": 28}
    assert given_to(early(*opens, left=115)) == {"o1": 50, "o2": 50}


def given_to(answer):
    return {item.id: item.tokens for item in answer[0]}


# ------------------------------------------------------------------ refusals


def test_nothing_pending():
    assert early(opened(pending=0)) == ((), {"o1": Refusal.COMPLETE})


def test_no_crumbs():
    assert beside_decodes(opened(), left=15) == ((), {"o1": Refusal.BUDGET})
    assert given_to(beside_decodes(opened(), left=16)) == {"o1": 16}


def test_real_prefill_that_fills_the_room_leaves_nothing():
    waiting = [make_view("c1", tokens=65)]
    assert beside_decodes(opened(pending=1, final=True), waiting=waiting) == (
        (),
        {"o1": Refusal.BUDGET},
    )


def test_without_decodes_early_work_does_not_lengthen_a_step_of_prefill():
    prefills = [make_prefill(tokens=130)]
    room = Room(Limit.NONE, 512)
    assert given_to(early(opened(), prefills=prefills, room=room, left=482)) == {"o1": 34}
    prefills = [make_prefill(tokens=300)]
    assert early(opened(), prefills=prefills, room=room, left=312) == (
        (),
        {"o1": Refusal.BUDGET},
    )
    free = CONFIG.but(prefill_cap=None)
    assert given_to(early(opened(), prefills=prefills, room=room, left=312, config=free)) == {
        "o1": 50
    }


def test_an_idle_engine_waits_for_a_call_that_is_about_to_arrive():
    prompt = opened(final=True)
    assert early(prompt, since_feeder=0.001) == ((), {"o1": Refusal.GRACE})
    assert given_to(early(prompt, since_feeder=CONFIG.grace_s)) == {"o1": 50}
    assert given_to(early(prompt, since_feeder=0.001, config=CONFIG.but(handover=False)))


def test_the_first_call_of_its_program_comes_first():
    assert early(opened(final=True, early=True)) == ((), {"o1": Refusal.ROOT})


def test_rows():
    opens = [opened("o1"), opened("o2")]
    items, refused = early(*opens, free_rows=1)
    assert [item.id for item in items] == ["o1"]
    assert refused == {"o2": Refusal.ROWS}


def test_calls_that_wait_keep_their_rows():
    waiting = [make_view("c1", tokens=1), make_view("c2", tokens=1)]
    _, refused = beside_decodes(opened("o1"), waiting=waiting, free_rows=2)
    assert refused == {"o1": Refusal.ROWS}


def test_kv_reserve():
    prompt = opened(pending=80, computed=112, tokens=193, held_blocks=7)
    assert given_to(early(prompt, pool=make_pool(35), reserve=30, left=500)) == {"o1": 80}
    assert given_to(early(prompt, pool=make_pool(32), reserve=30, left=500)) == {"o1": 32}
    assert early(prompt, pool=make_pool(30), reserve=30, left=500) == ((), {"o1": Refusal.KV})
    assert early(prompt, pool=make_pool(0), reserve=30, left=500) == ((), {"o1": Refusal.KV})


def test_what_one_takes_the_next_one_lacks():
    opens = [opened(f"o{n}", pending=32, computed=96, tokens=129, held_blocks=6) for n in (1, 2)]
    items, refused = early(*opens, pool=make_pool(33), reserve=30, left=500)
    assert [tuple(item)[:2] for item in items] == [("o1", 32), ("o2", 16)]
    items, refused = early(*opens, pool=make_pool(32), reserve=30, left=500)
    assert [tuple(item)[:2] for item in items] == [("o1", 32)]
    assert refused == {"o2": Refusal.KV}


def test_several_kv_groups_need_a_block_each():
    prompt = opened(pending=80, computed=112, tokens=193, held_blocks=14)
    assert given_to(early(prompt, pool=make_pool(16, groups=2), reserve=10, left=500)) == {"o1": 48}


def test_stalled_and_victim():
    opens = [opened("o1", stalled=True), opened("o2"), opened("o3", pending=0)]
    assert early(*opens, gone=frozenset({"o2", "o3"})) == (
        (),
        {"o1": Refusal.STALLED, "o2": Refusal.VICTIM, "o3": Refusal.VICTIM},
    )


def test_a_long_prompt_takes_longer_chunks_but_not_beyond_the_cap():
    long = make_open(tokens=5120, computed=5080)
    assert beside_decodes(long) == ((), {"o1": Refusal.CHUNK})
    huge = make_open(tokens=128 * 500, computed=128 * 500 - 71)
    assert given_to(beside_decodes(huge)) == {"o1": 64}
    # A cost model stands in for the cap on prefill.
    assert paced(huge) == ((), {"o1": Refusal.BUDGET})
    assert beside_decodes(
        make_open(tokens=9000, computed=8989), config=CONFIG.but(open_cap=10)
    ) == (run(("o1", 10, Reason.READY)))


# ------------------------------------------------------------------ switches


@pytest.mark.parametrize(
    ("switches", "before", "grown"),
    [
        ({}, 120, 150),
        ({"incremental": False}, 120, 70),
        ({"static": False}, None, 150),
        ({"static": False, "incremental": False}, None, None),
    ],
)
def test_switches_of_early_work(switches, before, grown):
    """70 tokens lack of what it knew when it was opened; ``grown`` has 80 more."""
    config = CONFIG.but(**switches, open_cap=500)
    young = make_open("o1", tokens=221, computed=100, static=221)
    assert given_to(early(young, config=config, left=500)) == ({"o1": before} if before else {})
    older = make_open("o2", tokens=251, computed=100, static=170)
    items, refused = early(older, config=config, left=500)
    assert [item.tokens for item in items] == ([grown] if grown else [])
    assert refused == ({} if grown else {"o2": Refusal.OFF})


def test_a_complete_text_has_grown_even_by_nothing():
    prompt = opened(static=151, final=True)
    assert given_to(early(prompt, config=CONFIG.but(static=False))) == {"o1": 50}


# ------------------------------------------------------------------ levels


def test_level_off():
    assert early(opened(final=True), level=Level.OFF) == ((), {"o1": Refusal.GOVERNOR})


def near(prompt, **more):
    fields = {"level": Level.NEAR, "cost": LinearCost(0.01, per_token=0.001), "step_s": 0.02}
    return bool(paced(prompt, **{**fields, **more})[0])


def test_level_near_begins_when_the_work_takes_half_of_the_time_that_is_left():
    prompt = {"pending": 50}
    assert near(opened(**prompt, sure=5.0))
    assert not near(opened(**prompt, sure=5.1))
    assert near(opened(pending=64, sure=6.0))
    assert not near(opened(pending=64, sure=6.0, hops=2))
    assert near(opened(**prompt, sure=None))
    assert near(opened(**prompt, sure=900.0, final=True))
    assert near(opened(**prompt, sure=5.1), cost=None)
    assert near(opened(**prompt, sure=5.1), step_s=0.0)


# ------------------------------------------------------------------ whatever comes


@steady
@given(
    snapshots(),
    configs(),
    st.integers(0, 400),
    st.sampled_from(list(Level)),
    st.integers(0, 200),
    st.sampled_from(list(Limit)),
)
def test_every_open_prompt_gets_an_answer_and_no_more_than_there_is(
    snapshot, config, left, level, reserve, limit
):
    items, refused = choose_early(
        snapshot, config, Room(limit, left + 50), left, level, reserve, NONE
    )
    ids = [item.id for item in items]
    assert sorted((*ids, *refused)) == sorted(view.id for view in snapshot.opens)
    views = {view.id: view for view in snapshot.opens}
    assert sum(item.tokens for item in items) <= min(left, config.open_cap)
    blocks = 0
    for item in items:
        view = views[item.id]
        assert 1 <= item.tokens <= view.pending
        assert view.computed + item.tokens <= view.tokens - view.hold_back
        needed = -(-(view.computed + item.tokens) // BLOCK) * snapshot.pool.groups
        blocks += max(0, needed - view.held_blocks)
    assert blocks <= max(0, snapshot.pool.free - reserve)
    assert len(items) <= max(0, snapshot.free_rows - len(snapshot.waiting))
    if level is Level.OFF:
        assert not items
    if level is Level.NEAR:
        assert all(views[key].hint.hops <= 1 for key in ids)
    if not config.static and not config.incremental:
        assert not items
    hops = [views[key].hint.hops for key in ids]
    assert hops == sorted(hops), "nearest hops first"
