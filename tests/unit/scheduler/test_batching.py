"""How much prefill a step may hold, and why not more."""

from __future__ import annotations

import pytest
from hypothesis import given

from grape_lc.scheduler.batching import FREE, decode_load, room_of
from grape_lc.scheduler.cost import LinearCost, StepLoad
from grape_lc.scheduler.settings import Constraint, PolicyConfig
from grape_lc.scheduler.types import Limit
from tests.unit.scheduler.factories import (
    CPU,
    GPU,
    configs,
    make_decodes,
    make_prefill,
    make_snapshot,
    make_view,
    snapshots,
    steady,
)

CAP = PolicyConfig(
    constraint=Constraint.CAP, prefill_cap=64, hold_s=0.012, grace_s=0.02, grace_tokens=8
)
ADAPTIVE = PolicyConfig(stretch=2.0, backlog_share=0.25, slo_share=0.5, chunk=8, rare=0.0)


def decoding(rows=2, **fields):
    return make_snapshot(decodes=make_decodes(rows, slack_s=fields.pop("slack_s", None)), **fields)


# ------------------------------------------------------------------ no decodes, no constraint


def test_without_decodes_nothing_bounds_prefill():
    assert room_of(make_snapshot(prefills=[make_prefill()]), CAP) == (Limit.NONE, 512)


def test_switched_off_prefill_takes_what_decodes_leave():
    config = PolicyConfig(constraint=Constraint.OFF)
    assert room_of(decoding(3, cost=CPU), config) == (Limit.NONE, 509)


def test_decodes_that_fill_the_step_leave_nothing():
    snapshot = decoding(600)
    assert room_of(snapshot, CAP) == (Limit.CAP, 0)


# ------------------------------------------------------------------ fixed cap


def test_cap_beside_decodes():
    assert room_of(decoding(3, cost=CPU), CAP) == (Limit.CAP, 64)


def test_without_a_cost_model_the_cap_holds():
    assert room_of(decoding(3), CAP.but(constraint=Constraint.ADAPTIVE)) == (Limit.CAP, 64)


@pytest.mark.parametrize("constraint", [Constraint.CAP, Constraint.ADAPTIVE])
def test_no_cap(constraint):
    config = PolicyConfig(constraint=constraint, prefill_cap=None)
    assert room_of(decoding(3), config) == (Limit.NONE, 509)


def test_cap_is_never_below_what_starts_a_call_with_drafts():
    snapshot = decoding(1, least_call_tokens=6)
    assert room_of(snapshot, CAP.but(prefill_cap=2)) == (Limit.CAP, 6)


# ------------------------------------------------------------------ adaptive


def seconds_of(snapshot, tokens):
    return snapshot.cost.seconds(decode_load(snapshot.decodes).plus(tokens))


def test_while_decodes_dominate_the_step_takes_a_multiple_of_their_time():
    snapshot = decoding(4, cost=CPU)
    alone = CPU.seconds(decode_load(snapshot.decodes))
    limit, tokens = room_of(snapshot, ADAPTIVE)
    assert limit is Limit.STRETCH
    assert seconds_of(snapshot, tokens) <= 2 * alone < seconds_of(snapshot, tokens + 1)


def test_where_most_of_a_longer_step_is_free_only_that_is_taken():
    snapshot = decoding(4, cost=GPU, max_tokens=4096)
    alone = GPU.seconds(decode_load(snapshot.decodes))
    free = GPU.tokens_within(decode_load(snapshot.decodes), 1.05 * alone)
    longer = GPU.tokens_within(decode_load(snapshot.decodes), 1.2 * alone)
    assert 0 < free < longer < 2 * free, "of a machine on which this test makes sense"
    config = ADAPTIVE.but(stretch=1.2, free_stretch=1.05)
    assert room_of(snapshot, config) == (Limit.STRETCH, free)
    assert room_of(snapshot, config.but(stretch=8.0)).tokens > 2 * free


def test_more_prefill_that_waits_makes_longer_steps():
    waiting = [make_view("c9", tokens=400)]
    assert room_of(decoding(4, cost=CPU), ADAPTIVE).limit is Limit.STRETCH
    assert room_of(decoding(4, cost=CPU, waiting=waiting), ADAPTIVE) == (Limit.BACKLOG, 100)
    both = decoding(4, cost=CPU, waiting=waiting, prefills=[make_prefill(tokens=180)])
    assert room_of(both, ADAPTIVE) == (Limit.BACKLOG, 120)


def test_prefill_that_has_waited_long_makes_longer_steps():
    config = ADAPTIVE.but(late_s=0.5)

    def room(behind):
        waiting = [make_view("c9", tokens=400)]
        return room_of(decoding(4, cost=CPU, waiting=waiting, behind=behind), config)

    assert room(0.0) == room(0.5) == (Limit.BACKLOG, 100)
    assert room(1.0) == (Limit.BACKLOG, 200)
    assert room(60.0) == (Limit.BACKLOG, 400), "all of it, and no more"


def test_no_backlog_is_larger_than_a_step():
    waiting = [make_view(f"c{n}", tokens=400) for n in range(30)]
    assert room_of(decoding(4, cost=CPU, waiting=waiting), ADAPTIVE) == (Limit.BACKLOG, 128)


def test_the_tightest_target_bounds_the_step():
    waiting = [make_view("c9", tokens=400)]
    snapshot = decoding(4, cost=CPU, waiting=waiting, slack_s=0.1)
    limit, tokens = room_of(snapshot, ADAPTIVE)
    assert limit is Limit.SLO
    assert seconds_of(snapshot, tokens) <= 0.5 * 0.1 < seconds_of(snapshot, tokens + 1)
    assert room_of(decoding(4, cost=CPU, waiting=waiting, slack_s=9.0), ADAPTIVE).limit is (
        Limit.BACKLOG
    )


@pytest.mark.parametrize("slack_s", [0.0, -3.0, 0.001])
def test_a_missed_target_still_leaves_a_chunk(slack_s):
    assert room_of(decoding(4, cost=CPU, slack_s=slack_s), ADAPTIVE) == (Limit.SLO, 8)


def test_while_kv_decides_steps_are_as_long_as_the_engine_makes_them():
    config = ADAPTIVE.but(tight=0.1)
    fields = {"cost": CPU, "waiting": [adopted()], "since_feeder": 0.001}
    assert room_of(decoding(4, tight=0.1, **fields), config).limit is not Limit.TIGHT
    assert room_of(decoding(4, tight=0.2, **fields), config) == (Limit.TIGHT, 508)
    assert room_of(decoding(4, tight=0.2, slack_s=0.1, **fields), config).limit is not Limit.TIGHT


def test_free_tokens_are_all_taken():
    """Up to the knee of an accelerator they cost next to nothing."""
    limit, tokens = room_of(decoding(4, cost=GPU), ADAPTIVE)
    assert limit is Limit.STRETCH
    assert tokens > 396


def test_rare_prefill_is_not_bounded_without_a_target():
    config = ADAPTIVE.but(rare=0.01)
    assert room_of(decoding(4, cost=CPU, spikes=0.009), config) == (Limit.RARE, 508)
    assert room_of(decoding(4, cost=CPU, spikes=0.01), config).limit is Limit.STRETCH
    assert room_of(decoding(4, cost=CPU, spikes=0.0, slack_s=1.0), config).limit is Limit.STRETCH


def test_a_step_of_decodes_only():
    snapshot = decoding(3)
    assert decode_load(snapshot.decodes) == StepLoad(3, 3, 603, 0.0)


# ------------------------------------------------------------------ followers


def test_grace_beside_real_work():
    assert room_of(decoding(1, since_feeder=0.001), CAP) == (Limit.GRACE, 8)
    assert room_of(make_snapshot(prefills=[make_prefill()], since_feeder=0.001), CAP) == (
        Limit.GRACE,
        8,
    )


def test_grace_makes_no_step_longer():
    snapshot = decoding(4, cost=CPU, since_feeder=0.001)
    usual = room_of(decoding(4, cost=CPU), ADAPTIVE)
    generous = ADAPTIVE.but(grace_tokens=10_000, hold_s=0.0)
    assert room_of(snapshot, generous) == (Limit.GRACE, usual.tokens)


def adopted(key="c9", left=20, **fields):
    return make_view(key, adopted=True, tokens=200, computed=200 - left, **fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"since_feeder": 0.02},
        {"since_feeder": None},
        {"since_feeder": 0.001, "waiting": [adopted()], "switched": True},
        {
            "since_feeder": 0.001,
            "prefills": [make_prefill(adopted=True, computed=191)],
            "switched": True,
        },
    ],
)
def test_no_grace(fields):
    assert room_of(decoding(1, **fields), CAP) == (Limit.CAP, 64)


def test_without_handover_a_due_follower_changes_nothing():
    snapshot = decoding(2, since_feeder=0.001, follower_s=0.003, step_s=0.1)
    assert room_of(snapshot, CAP).limit is Limit.HOLD
    assert room_of(snapshot, CAP.but(handover=False)) == (Limit.CAP, 64)
    here = decoding(2, waiting=[adopted()])
    assert room_of(here, CAP).limit is Limit.SWITCH
    assert room_of(here, CAP.but(handover=False)) == (Limit.CAP, 64)


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"since_feeder": 0.001, "follower_s": 0.003, "step_s": 0.1}, Limit.HOLD),
        ({"since_feeder": 0.013, "follower_s": 0.003, "step_s": 0.1}, Limit.GRACE),
        ({"since_feeder": 0.001, "follower_s": 0.013, "step_s": 0.1}, Limit.GRACE),
        ({"since_feeder": 0.001, "follower_s": 0.003, "step_s": 0.005}, Limit.GRACE),
        ({"since_feeder": None, "follower_s": 0.003, "step_s": 0.1}, Limit.CAP),
    ],
)
def test_the_engine_waits_only_for_a_follower_that_comes_at_once(fields, limit):
    room = room_of(decoding(2, **fields), CAP)
    assert room.limit is limit
    assert (room.tokens == 0) == (limit is Limit.HOLD)


def test_an_idle_engine_has_nothing_to_hold_back():
    snapshot = make_snapshot(since_feeder=0.001, follower_s=0.0, step_s=0.1)
    assert room_of(snapshot, CAP) == (Limit.NONE, 512)


def test_a_switch_takes_no_other_prefill_along_but_not_twice_in_a_row():
    root = make_prefill(tokens=600)
    fields = {"prefills": [root], "waiting": [adopted(left=20)]}
    assert room_of(decoding(3, **fields), CAP) == (Limit.SWITCH, 20)
    assert room_of(decoding(3, switched=True, **fields), CAP) == (Limit.CAP, 64)


def test_a_switch_counts_all_short_rests():
    running = make_prefill("p1", adopted=True, tokens=200, computed=190)
    fields = {"prefills": [running], "waiting": [adopted("c8", 20), adopted("c9", 5)]}
    assert room_of(decoding(3, **fields), CAP) == (Limit.SWITCH, 35)
    assert room_of(decoding(3, free_rows=0, **fields), CAP) == (Limit.SWITCH, 10)


@pytest.mark.parametrize(
    "fields",
    [
        {"waiting": [adopted(left=20)], "free_rows": 0},
        {"waiting": [make_view("c9", adopted=True, tokens=900, computed=600)]},
        {"waiting": [adopted(left=64)]},
        {"waiting": [adopted(left=20, blocked=True)]},
        {"waiting": [make_view("c9", tokens=20)]},
    ],
)
def test_a_switch_that_cannot_run_or_is_long_keeps_the_usual_room(fields):
    assert room_of(decoding(1, **fields), CAP) == (Limit.CAP, 64)


def test_without_any_bound_a_switch_takes_all_along():
    config = CAP.but(prefill_cap=None)
    assert room_of(decoding(1, waiting=[adopted()]), config) == (Limit.NONE, 511)
    rare = ADAPTIVE.but(rare=0.01)
    assert room_of(decoding(1, cost=CPU, waiting=[adopted()]), rare) == (Limit.RARE, 511)


# ------------------------------------------------------------------ whatever comes


@steady
@given(snapshots(), configs())
def test_the_room_fits_in_the_step(snapshot, config):
    limit, tokens = room_of(snapshot, config)
    most = max(0, snapshot.max_tokens - snapshot.decodes.tokens)
    assert 0 <= tokens <= most
    if limit in FREE:
        assert tokens == most
    elif limit is Limit.HOLD:
        assert tokens == 0
        assert snapshot.signals.since_feeder is not None
        assert snapshot.signals.since_feeder < config.hold_s, "a hold ends by itself"
    else:
        assert tokens >= min(most, snapshot.least_call_tokens)
    if limit is Limit.SWITCH:
        assert not snapshot.signals.switched
    if limit in (Limit.STRETCH, Limit.BACKLOG, Limit.SLO, Limit.RARE):
        assert config.constraint is Constraint.ADAPTIVE
        assert snapshot.cost is not None


@steady
@given(snapshots(), configs())
def test_a_machine_without_a_price_for_tokens_needs_no_bound(snapshot, config):
    """Where only the step itself costs, the adaptive constraint bounds nothing."""
    flat = make_snapshot(
        decodes=snapshot.decodes._replace(slack_s=None),
        waiting=snapshot.waiting,
        cost=LinearCost(0.01),
        max_tokens=snapshot.max_tokens,
        spikes=1.0,
    )
    config = config.but(constraint=Constraint.ADAPTIVE, handover=False)
    assert room_of(flat, config).tokens == flat.max_tokens - flat.decodes.tokens
