"""What holds for every plan, whatever the engine and the settings are."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.scheduler.batching import FREE
from grape_lc.scheduler.policy import plan
from grape_lc.scheduler.record import (
    decode_plan,
    decode_snapshot,
    encode_plan,
    encode_snapshot,
)
from grape_lc.scheduler.settings import PLAIN, Constraint, PolicyConfig, Rule
from grape_lc.scheduler.types import Limit, Refusal, Stage
from tests.unit.scheduler.factories import BLOCK, configs, snapshots, steady


def views_of(snapshot):
    groups = (snapshot.prefills, snapshot.running, snapshot.waiting, snapshot.opens)
    return {view.id: view for group in groups for view in group}


def tokens_of(items):
    return sum(item.tokens for item in items)


@steady
@given(snapshots(), configs())
def test_budget(snapshot, config):
    planned = plan(snapshot, config)
    if planned.limit is Limit.HOLD:
        assert planned.budget == 0
        assert tokens_of(planned.prefills) == 0
        assert not planned.starts
        assert not planned.opens
        assert not planned.preempt
        assert snapshot.signals.since_feeder is not None
        assert snapshot.signals.since_feeder < config.hold_s, "a hold ends by itself"
        return
    assert 1 <= planned.budget <= snapshot.max_tokens
    assert planned.budget >= snapshot.decodes.tokens, "decodes are never squeezed"
    if planned.limit in FREE:
        assert planned.budget == snapshot.max_tokens
    if planned.limit is Limit.CAP:
        whole = max((view.pending for view in snapshot.waiting if view.whole), default=0)
        assert config.prefill_cap is not None
        most = max(config.prefill_cap, snapshot.least_call_tokens)
        assert planned.budget <= max(1, snapshot.decodes.tokens + most + whole)


@steady
@given(snapshots(), configs())
def test_what_is_planned_fits_in_the_budget(snapshot, config):
    planned = plan(snapshot, config)
    left = planned.budget - snapshot.decodes.tokens
    assert tokens_of(planned.prefills) + tokens_of(planned.opens) <= max(0, left)
    if planned.prefills:
        named = {item.id for item in planned.prefills} | {victim.id for victim in planned.preempt}
        assert named >= {view.id for view in snapshot.prefills}
    elif snapshot.prefills and not planned.preempt:
        assert planned.limit in FREE
    if planned.opens:
        # (One that waits for something else could not run in this step.)
        able = (view for view in (*snapshot.prefills, *snapshot.waiting) if not view.blocked)
        real = sum(view.pending for view in able)
        assert real + tokens_of(planned.opens) <= left, "calls come first"


@steady
@given(snapshots(), configs())
def test_running_prefill_gets_on_in_this_step_or_the_next(snapshot, config):
    planned = plan(snapshot, config)
    runs = {view.id for view in snapshot.prefills} - {victim.id for victim in planned.preempt}
    left = planned.budget - snapshot.decodes.tokens
    if planned.limit is Limit.SWITCH:
        assert not snapshot.signals.switched
    elif runs and planned.prefills and left > 0:
        assert tokens_of(planned.prefills) > 0


@steady
@given(snapshots(), configs())
def test_every_request_gets_one_answer(snapshot, config):
    planned = plan(snapshot, config)
    opens = {item.id for item in planned.opens}
    started = {item.id for item in planned.starts or ()}
    capped = {item.id for item in planned.prefills}
    victims = {victim.id for victim in planned.preempt}
    assert len(opens) == len(planned.opens)
    assert len(started) == len(planned.starts or ())
    assert len(victims) == len(planned.preempt)
    for one, other in ((opens, victims), (started, victims), (capped, victims)):
        assert not one & other, "planned and preempted"
    assert not (opens | started | capped) & planned.refused.keys(), "planned and refused"
    assert all(planned.refused[key] is Refusal.VICTIM for key in victims)
    assert opens | planned.refused.keys() >= {view.id for view in snapshot.opens}
    waiting = {view.id for view in snapshot.waiting}
    assert started <= waiting
    if planned.starts is not None and planned.limit is not Limit.HOLD and started < waiting:
        assert planned.refused.keys() & waiting, "the first that does not start is told why"


@steady
@given(snapshots(), configs())
def test_items_fit_their_requests(snapshot, config):
    planned = plan(snapshot, config)
    views = views_of(snapshot)
    for item in planned.opens:
        view = views[item.id]
        assert view.stage is Stage.OPEN
        assert item.tokens >= 1
        assert view.computed + item.tokens <= view.tokens - view.hold_back, "held back"
    for item in planned.prefills:
        assert 0 <= item.tokens <= views[item.id].pending
    for item in planned.starts or ():
        assert item.tokens >= 0
    for victim in planned.preempt:
        assert victim.blocks == views[victim.id].held_blocks > 0


@steady
@given(snapshots(), configs())
def test_early_work_leaves_kv_and_rows(snapshot, config):
    planned = plan(snapshot, config)
    views = views_of(snapshot)
    pool = snapshot.pool
    assert planned.reserve > pool.growth + pool.waiting
    blocks = 0
    for item in planned.opens:
        view = views[item.id]
        total = -(-(view.computed + item.tokens) // BLOCK) * pool.groups
        blocks += max(0, total - view.held_blocks)
    assert blocks == 0 or pool.free - blocks >= planned.reserve
    assert len(planned.opens) <= max(0, snapshot.free_rows - len(snapshot.waiting))


@steady
@given(snapshots(), configs())
def test_early_work_changes_nothing_for_calls(snapshot, config):
    """All that they see of it is KV that is free as soon as they ask for it."""
    held = sum(view.held_blocks for view in snapshot.opens)
    pool = snapshot.pool._replace(free=snapshot.pool.free + held)
    alone = plan(replace(snapshot, opens=(), pool=pool), config)
    planned = plan(snapshot, config)
    assert (planned.budget, planned.limit) == (alone.budget, alone.limit)
    assert (planned.prefills, planned.starts) == (alone.prefills, alone.starts)
    calls = {view.id for view in (*snapshot.running, *snapshot.prefills, *snapshot.waiting)}
    assert [v for v in planned.preempt if v.id in calls] == list(alone.preempt)
    assert {k: why for k, why in planned.refused.items() if k in calls} == alone.refused


@steady
@given(snapshots(), configs(), st.randoms(use_true_random=False))
def test_the_order_of_what_is_seen_makes_no_difference(snapshot, config, random):
    def shuffled(views):
        return random.sample(list(views), len(views))

    again = replace(
        snapshot,
        prefills=shuffled(snapshot.prefills),
        running=shuffled(snapshot.running),
        waiting=shuffled(snapshot.waiting),
        opens=shuffled(snapshot.opens),
    )
    assert plan(again, config) == plan(snapshot, config)


@steady
@given(snapshots(), configs())
def test_planning_changes_nothing_that_it_sees(snapshot, config):
    before = encode_snapshot(snapshot)
    first = plan(snapshot, config)
    assert encode_snapshot(snapshot) == before
    assert plan(snapshot, config) == first


@steady
@given(snapshots())
def test_plain_settings_leave_the_engine_alone(snapshot):
    config = PolicyConfig(**PLAIN)
    planned = plan(snapshot, config)
    assert planned.budget == snapshot.max_tokens
    assert planned.limit in {Limit.NONE, Limit.TIGHT}
    assert (planned.prefills, planned.starts, planned.opens) == ((), None, ())
    assert {victim.rule for victim in planned.preempt} <= {"tail"}
    calls = {victim.id: views_of(snapshot)[victim.id] for victim in planned.preempt}
    running = [view.seq for view in calls.values() if view.stage is not Stage.OPEN]
    assert running == sorted(running, reverse=True), "the last one that came first, as vLLM"


@steady
@given(snapshots(), configs())
def test_each_mechanism_can_be_switched_off(snapshot, config):
    assert not plan(snapshot, config.but(incremental=False, static=False)).opens
    limits = {Limit.HOLD, Limit.GRACE, Limit.SWITCH}
    assert plan(snapshot, config.but(handover=False)).limit not in limits
    unbounded = config.but(constraint=Constraint.OFF, handover=False)
    assert plan(snapshot, unbounded).budget == snapshot.max_tokens
    assert plan(snapshot, config.but(governor=False)).level_reason == ""
    free = plan(snapshot, config.but(admission=False))
    if not free.preempt:
        assert Refusal.ADMISSION not in free.refused.values()
    assert plan(snapshot, config.but(rule=Rule.FCFS, admission=False)).starts is None


@steady
@given(snapshots(), configs())
def test_what_is_recorded_is_what_was_seen_and_planned(snapshot, config):
    planned = plan(snapshot, config)
    line = json.dumps([encode_snapshot(snapshot), encode_plan(planned)])
    seen, decided = json.loads(line)
    again = decode_snapshot(seen)
    assert encode_snapshot(again) == seen
    assert decode_plan(decided) == planned
    assert plan(again, config) == planned
