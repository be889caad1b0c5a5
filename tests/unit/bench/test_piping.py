"""What our scheduler does with the settings of ``+pipe``: pieces of 128 tokens, and no policy."""

from __future__ import annotations

from typing import Any

import pytest

from grape_lc.bench.arms import parse_arm
from grape_lc.scheduler.policy import plan
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import Item, Limit, Reason, RequestView
from tests.unit.scheduler.factories import (
    CPU,
    GPU,
    make_decodes,
    make_open,
    make_pool,
    make_prefill,
    make_snapshot,
)

PIPE = PolicyConfig.from_mapping(parse_arm("vllm-opt+pipe").grape)


def opened(pending: int, **fields: Any) -> RequestView:
    """An open prompt that lacks so many tokens; its last token is held back until it is final."""
    return make_open(tokens=101 + pending, **fields)


def opens_of(view: RequestView, config: PolicyConfig = PIPE, **snapshot: Any) -> list[Item]:
    fields: dict[str, Any] = {
        "decodes": make_decodes(4),
        "pool": make_pool(5000, 5000),
        "max_tokens": 2048,
    }
    return list(plan(make_snapshot(opens=(view,), **{**fields, **snapshot}), config).opens)


@pytest.mark.parametrize("cost", [None, CPU, GPU], ids=["no F", "CPU", "GPU"])
@pytest.mark.parametrize("sure", [None, 0, 2, 500])
def test_less_than_a_piece_waits_beside_decodes(cost: object, sure: float | None):
    """Whatever steps cost, and however soon the upstream ends."""
    for pending in (1, 8, 64, 127):
        assert opens_of(opened(pending, sure=sure), cost=cost) == []


@pytest.mark.parametrize("sure", [None, 0, 500])
@pytest.mark.parametrize("cost", [None, CPU, GPU], ids=["no F", "CPU", "GPU"])
@pytest.mark.parametrize("pending", [128, 129, 1000])
def test_a_piece_and_what_came_with_it_is_taken_whole(
    cost: object, sure: float | None, pending: int
):
    [item] = opens_of(opened(pending, sure=sure), cost=cost)
    assert item.tokens == pending


def test_the_end_of_a_text_waits_for_no_piece():
    [item] = opens_of(opened(5, final=True))
    assert (item.tokens, item.reason) == (5, Reason.FINAL)


def test_an_idle_engine_waits_for_no_piece_either():
    """No call is there that a piece could delay."""
    [item] = opens_of(opened(5), decodes=make_decodes(0))
    assert (item.tokens, item.reason) == (5, Reason.IDLE)


def test_a_piece_waits_for_a_step_that_has_room_for_it():
    assert opens_of(opened(300), max_tokens=131) == []  # four decodes leave 127
    [item] = opens_of(opened(300), max_tokens=132)
    assert item.tokens == 128


def test_with_a_short_budget_pieces_are_shorter_and_still_run():
    config = PolicyConfig.from_mapping(parse_arm("vllm-opt+pipe:max_num_batched_tokens=96").grape)
    assert opens_of(opened(47), config, max_tokens=96) == []
    [item] = opens_of(opened(48), config, max_tokens=96)
    assert item.tokens == 48


def test_nothing_bounds_the_prefill_of_calls():
    snapshot = make_snapshot(
        prefills=(make_prefill(tokens=1900),),
        decodes=make_decodes(4),
        cost=CPU,
        max_tokens=2048,
        step_s=0.1,
        spikes=0.5,
    )
    planned = plan(snapshot, PIPE)
    assert (planned.budget, planned.limit) == (2048, Limit.NONE)
    assert (planned.refused, planned.preempt) == ({}, ())
    ours = plan(snapshot, PolicyConfig())
    assert (ours.budget, ours.limit) != (planned.budget, planned.limit)
