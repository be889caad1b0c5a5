from __future__ import annotations

import dataclasses
from math import ceil

import pytest
from hypothesis import given

from grape_lc.scheduler.policy import choose_drop, plan_step
from grape_lc.scheduler.types import Grant, Limit, PolicyConfig, PrefillView, Refusal, StepView
from tests.unit.scheduler.factories import configs, open_view, replace, step_view, step_views

CONFIG = PolicyConfig(
    chunk=16,
    prefill_cap=64,
    open_cap=128,
    hold_s=0.012,
    grace_s=0.02,
    margin=0.01,
    wide_margin=0.25,
)


def test_idle_engine_runs_whatever_is_pending():
    plan = plan_step(step_view(opens=(open_view(pending=1),)), CONFIG)
    assert plan.grants == (Grant("o1", 1),)
    assert plan.limit is Limit.NONE
    assert plan.budget == 512


def test_idle_engine_runs_short_steps():
    plan = plan_step(step_view(opens=(open_view(tokens=900, pending=799),)), CONFIG)
    assert plan.grants == (Grant("o1", 128),)


def test_beside_decodes_a_chunk_must_be_pending():
    busy = step_view(decodes=2, decode_tokens=2)
    assert plan_step(replace(busy, opens=(open_view(pending=15),)), CONFIG).refusals == {
        "o1": Refusal.CHUNK
    }
    assert plan_step(replace(busy, opens=(open_view(pending=16),)), CONFIG).grants == (
        Grant("o1", 16),
    )
    assert plan_step(replace(busy, opens=(open_view(pending=3, urgent=True),)), CONFIG).grants == (
        Grant("o1", 3),
    )


def test_cap_while_decoding():
    plan = plan_step(step_view(decodes=3, decode_tokens=12), CONFIG)
    assert plan.limit is Limit.DECODES
    assert plan.budget == 12 + 64


def test_cap_off():
    config = PolicyConfig(prefill_cap=None)
    plan = plan_step(step_view(decodes=3, decode_tokens=3), config)
    assert plan.limit is Limit.NONE
    assert plan.budget == 512


def test_cap_is_never_below_what_starts_a_call_with_drafts():
    config = PolicyConfig(prefill_cap=2, chunk=1)
    plan = plan_step(step_view(decodes=1, decode_tokens=6, least_call_tokens=6), config)
    assert plan.budget == 12


def test_real_prefill_comes_first_and_early_work_gets_the_rest():
    view = step_view(
        decodes=1,
        decode_tokens=1,
        prefills=(PrefillView("r", 40, adopted=False),),
        opens=(open_view(),),
    )
    plan = plan_step(view, CONFIG)
    assert plan.caps == {"r": 40}
    assert plan.grants == (Grant("o1", 24),)


def test_no_crumbs():
    view = step_view(
        decodes=1,
        decode_tokens=1,
        prefills=(PrefillView("r", 50, adopted=False),),
        opens=(open_view(),),
    )
    assert plan_step(view, CONFIG).refusals == {"o1": Refusal.BUDGET}


def test_early_work_does_not_lengthen_a_step_of_prefill_only():
    view = step_view(prefills=(PrefillView("r", 200, adopted=False),), opens=(open_view(),))
    plan = plan_step(view, CONFIG)
    assert plan.caps == {}
    assert plan.refusals == {"o1": Refusal.BUDGET}


def test_waiting_prefill_counts():
    view = step_view(waiting=1, waiting_tokens=60, opens=(open_view(),))
    assert plan_step(view, CONFIG).refusals == {"o1": Refusal.BUDGET}


def test_nearest_first_then_opening_order():
    opens = (
        open_view("o1", hops=2, pending=50),
        open_view("o2", hops=1, pending=50),
        open_view("o3", hops=1, pending=50),
    )
    plan = plan_step(step_view(opens=opens), CONFIG)
    assert plan.grants == (Grant("o2", 50), Grant("o3", 50), Grant("o1", 28))


def test_adopted_leftovers_go_before_roots():
    view = step_view(
        decodes=1,
        decode_tokens=1,
        prefills=(PrefillView("root", 500, False), PrefillView("adopted", 20, True)),
        adopted_waiting=(10,),
    )
    assert plan_step(view, CONFIG).caps == {"adopted": 20, "root": 0}
    after = dataclasses.replace(view, switched=True)
    assert plan_step(after, CONFIG).caps == {"adopted": 20, "root": 34}


def test_long_leftover_has_no_precedence():
    view = step_view(
        decodes=1,
        decode_tokens=1,
        prefills=(PrefillView("adopted", 500, True), PrefillView("root", 20, False)),
        adopted_waiting=(300,),
    )
    assert plan_step(view, CONFIG).caps == {"adopted": 64, "root": 0}


def test_root_keeps_a_quarter():
    view = step_view(
        decodes=1,
        decode_tokens=1,
        prefills=(PrefillView("root", 500, False),),
        adopted_waiting=(200, 200),
    )
    assert plan_step(view, CONFIG).caps == {"root": 16}


def test_nothing_is_kept_back_without_a_free_row():
    view = step_view(
        decodes=1,
        decode_tokens=1,
        free_rows=0,
        prefills=(PrefillView("root", 500, False),),
        adopted_waiting=(20,),
    )
    assert plan_step(view, CONFIG).caps == {"root": 64}


def test_grace_beside_real_work():
    view = step_view(decodes=1, decode_tokens=1, since_feeder=0.001, opens=(open_view(),))
    plan = plan_step(view, CONFIG)
    assert plan.limit is Limit.GRACE
    assert plan.budget == 1 + CONFIG.grace_tokens
    assert plan.refusals == {"o1": Refusal.BUDGET}


def test_grace_in_an_idle_engine():
    view = step_view(since_feeder=0.001, opens=(open_view(urgent=True),))
    assert plan_step(view, CONFIG).refusals == {"o1": Refusal.GRACE}


@pytest.mark.parametrize(
    "fields",
    [
        {"since_feeder": 0.02},
        {"since_feeder": 0.001, "adopted_waiting": (20,), "switched": True},
        {"since_feeder": 0.001, "prefills": (PrefillView("r", 9, True),), "switched": True},
    ],
)
def test_no_grace(fields):
    view = step_view(decodes=1, decode_tokens=1, **fields)
    assert plan_step(view, CONFIG).limit is Limit.DECODES


@pytest.mark.parametrize(
    ("fields", "limit"),
    [
        ({"since_feeder": 0.001, "follower_s": 0.003}, Limit.HOLD),
        ({"since_feeder": 0.013, "follower_s": 0.003}, Limit.GRACE),
        ({"since_feeder": 0.001, "follower_s": 0.013}, Limit.GRACE),
        ({"since_feeder": 0.001, "follower_s": 0.003, "step_s": 0.005}, Limit.GRACE),
        ({"since_feeder": None, "follower_s": 0.003}, Limit.DECODES),
    ],
)
def test_the_engine_waits_only_for_a_follower_that_comes_at_once(fields, limit):
    view = step_view(decodes=2, decode_tokens=2, opens=(open_view(urgent=True),), **fields)
    plan = plan_step(view, CONFIG)
    assert plan.limit is limit
    assert (plan.budget == 0) == (limit is Limit.HOLD)
    assert bool(plan.grants) == (limit is Limit.DECODES)


def test_an_idle_engine_has_nothing_to_hold_back():
    assert plan_step(step_view(since_feeder=0.001, follower_s=0.0), CONFIG).limit is Limit.NONE


def test_a_switch_takes_no_other_prefill_along():
    root = PrefillView("root", 500, False)
    view = step_view(decodes=3, decode_tokens=3, prefills=(root,), adopted_waiting=(20,))
    plan = plan_step(view, CONFIG)
    assert plan.limit is Limit.SWITCH
    assert plan.budget == 3 + 20
    assert plan.caps["root"] == 0
    again = plan_step(dataclasses.replace(view, switched=True), CONFIG)
    assert again.limit is Limit.DECODES, "a new program must not starve among many switches"
    assert again.budget == 3 + 64


@pytest.mark.parametrize(
    "fields",
    [
        {"adopted_waiting": (20,), "free_rows": 0},
        {"adopted_waiting": (CONFIG.adopted_first + 1,)},
        {"adopted_waiting": (64,)},
    ],
)
def test_a_switch_that_cannot_run_or_is_long_keeps_the_usual_cap(fields):
    view = step_view(decodes=1, decode_tokens=1, **fields)
    assert plan_step(view, CONFIG).limit is Limit.DECODES


def test_a_call_that_must_not_be_cut_comes_on_top_of_the_cap():
    root = PrefillView("root", 500, False)
    view = step_view(
        decodes=1,
        decode_tokens=1,
        prefills=(root,),
        waiting=1,
        waiting_tokens=300,
        whole_tokens=300,
    )
    plan = plan_step(view, CONFIG)
    assert plan.budget == 1 + 64 + 300
    assert plan.caps == {"root": 64}, "the running one does not take its share"


def test_rows():
    opens = (open_view("o1", pending=20), open_view("o2", pending=20))
    plan = plan_step(step_view(opens=opens, free_rows=1), CONFIG)
    assert plan.grants == (Grant("o1", 20),)
    assert plan.refusals == {"o2": Refusal.ROWS}
    plan = plan_step(step_view(opens=opens, free_rows=3, waiting=1, adopted_waiting=(1,)), CONFIG)
    assert plan.grants == (Grant("o1", 20),)


def test_kv_reserve():
    prompt = open_view(tokens=200, computed=112, pending=80, held_blocks=7)
    enough = step_view(free_blocks=35, needed_blocks=20, opens=(prompt,))
    plan = plan_step(enough, CONFIG)
    assert plan.reserve == 30
    assert plan.grants == (Grant("o1", 80),)
    tight = replace(enough, free_blocks=32)
    assert plan_step(tight, CONFIG).grants == (Grant("o1", 32),)
    assert plan_step(replace(enough, free_blocks=30), CONFIG).refusals == {"o1": Refusal.KV}


def test_several_kv_groups_need_a_block_each():
    prompt = open_view(computed=112, pending=80, held_blocks=14)
    view = step_view(free_blocks=16, groups=2, opens=(prompt,))
    assert plan_step(view, CONFIG).grants == (Grant("o1", 48),)


def test_pressure_ends_only_with_a_wide_margin():
    view = step_view(pressed=True, free_blocks=250, opens=(open_view(),))
    plan = plan_step(view, CONFIG)
    assert plan.refusals == {"o1": Refusal.PRESSED}
    assert plan.pressed
    plan = plan_step(replace(view, free_blocks=251), CONFIG)
    assert plan.grants
    assert not plan.pressed
    assert plan_step(replace(view, free_blocks=251, needed_blocks=1), CONFIG).pressed


def test_stalled_and_complete():
    opens = (open_view("o1", stalled=True), open_view("o2", pending=0))
    plan = plan_step(step_view(opens=opens), CONFIG)
    assert plan.refusals == {"o1": Refusal.STALLED, "o2": Refusal.COMPLETE}


def test_chunk_grows_with_the_prompt_but_not_beyond_the_cap():
    busy = step_view(decodes=1, decode_tokens=1)
    long = open_view(tokens=5120, computed=5000, pending=39, held_blocks=313)
    assert plan_step(replace(busy, opens=(long,)), CONFIG).refusals == {"o1": Refusal.CHUNK}
    huge = open_view(tokens=128 * 500, computed=10, pending=70, held_blocks=1)
    assert plan_step(replace(busy, opens=(huge,)), CONFIG).grants == (Grant("o1", 64),)


def test_choose_drop():
    opens = [
        open_view("o1", hops=1),
        open_view("o2", hops=3),
        open_view("o3", hops=3),
        open_view("o4", hops=9, held_blocks=0),
    ]
    chosen = choose_drop(opens)
    assert chosen is not None
    assert chosen.key == "o3"
    assert choose_drop([opens[3]]) is None
    assert choose_drop([]) is None


@given(view=step_views(), config=configs())
def test_every_plan_keeps_its_promises(view: StepView, config: PolicyConfig):
    plan = plan_step(view, config)
    assert plan == plan_step(view, config), "same view, same plan"
    assert plan == plan_step(replace(view, opens=tuple(reversed(view.opens))), config)
    if plan.limit is Limit.HOLD:
        assert plan.budget == 0
        assert not plan.grants
        assert view.since_feeder is not None
        assert view.since_feeder < config.hold_s, "a hold ends by itself"
        return
    assert 1 <= plan.budget <= max(view.max_tokens, 1)

    # Everybody gets an answer.
    granted = {grant.key: grant.tokens for grant in plan.grants}
    assert len(granted) == len(plan.grants)
    assert granted.keys() | plan.refusals.keys() == {prompt.key for prompt in view.opens}
    assert not granted.keys() & plan.refusals.keys()

    # Decodes are never squeezed by prefill.
    if view.decode_tokens <= view.max_tokens:
        assert plan.budget >= view.decode_tokens
    if plan.caps:
        assert plan.caps.keys() == {prefill.request_id for prefill in view.prefills}
    elif view.prefills:
        assert plan.budget == view.max_tokens, "vLLM's own step"
    left = plan.budget - view.decode_tokens
    assert sum(plan.caps.values()) <= max(left, 0)

    # The cap holds for real and early tokens together.
    early = sum(granted.values())
    if plan.limit is Limit.DECODES:
        assert config.prefill_cap is not None
        assert left <= max(config.prefill_cap, view.least_call_tokens) + view.whole_tokens
    assert early <= config.open_cap
    demand = sum(prefill.tokens for prefill in view.prefills)
    demand += sum(view.adopted_waiting) + view.waiting_tokens
    if early:
        assert early + demand <= max(left, 0)

    # Running prefill always gets on, in this step or in the next one.
    if plan.limit is Limit.SWITCH:
        assert not view.switched
    elif left > 0 and plan.caps:
        assert sum(plan.caps.values()) > 0

    # KV and rows.
    by_key = {prompt.key: prompt for prompt in view.opens}
    blocks = 0
    for key, tokens in granted.items():
        prompt = by_key[key]
        assert 1 <= tokens <= prompt.pending
        blocks += max(0, ceil((prompt.computed + tokens) / 16) - prompt.held_blocks)
    if granted:
        assert not plan.pressed
        assert view.free_blocks - blocks >= min(plan.reserve, view.free_blocks)
        assert len(granted) <= view.free_rows - view.waiting - len(view.adopted_waiting)
    assert plan.reserve > view.needed_blocks


@given(view=step_views(), config=configs())
def test_early_work_changes_nothing_for_real_requests(view: StepView, config: PolicyConfig):
    with_opens = plan_step(view, config)
    without = plan_step(replace(view, opens=()), config)
    assert with_opens.budget == without.budget
    assert with_opens.caps == without.caps


@given(view=step_views(), config=configs())
def test_grants_come_nearest_first(view: StepView, config: PolicyConfig):
    plan = plan_step(view, config)
    order = [(prompt.hops, prompt.opened, prompt.key) for prompt in view.opens]
    keys = [key for _, _, key in sorted(order)]
    assert [grant.key for grant in plan.grants] == [key for key in keys if key not in plan.refusals]
