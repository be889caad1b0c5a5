"""Each private part of vLLM that open prompts stand on, and what happens when one is gone.

These tests are what an upgrade of vLLM runs into first.
"""

from __future__ import annotations

import inspect
import logging

import pytest
import torch
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import SchedulingPolicy, create_request_queue
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.engine import EngineCoreOutput, FinishReason
from vllm.v1.engine.core import EngineCore, EngineCoreProc
from vllm.v1.engine.output_processor import RequestState
from vllm.v1.request import RequestStatus

from grape_lc.engine.vllm_hooks import check_hooks
from grape_lc.engine.vllm_parts import ATTRIBUTES, METHODS
from grape_lc.engine.vllm_scheduler import OpenPromptMixin
from grape_lc.scheduler.settings import PolicyConfig
from tests.contract.simulation import KINDS, MAX_LEN, Kind, Simulation, answer, make_scheduler

PROMPT = list(range(100, 400))


@pytest.mark.parametrize("base", [Scheduler, AsyncScheduler])
def test_this_vllm_has_every_method(base):
    assert check_hooks(base) == []


def test_this_vllm_has_every_part(simulate):
    assert check_hooks(simulate().scheduler) == []


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_missing_method_is_named(name):
    different = type("Different", (Scheduler,), {name: None})
    assert check_hooks(different) == [f"{name} is missing"]


@pytest.mark.parametrize("name", sorted(name for name in METHODS if METHODS[name].first))
def test_a_method_with_other_arguments_is_named(name):
    different = type("Different", (Scheduler,), {name: lambda self: None})
    (problem,) = check_hooks(different)
    assert problem.startswith(f"{name} takes")


class WithoutPreempt(Scheduler):
    """A vLLM whose preemption takes other arguments."""

    def _preempt_request(self, request, when, drop_stale_output=False):
        super()._preempt_request(request, when, drop_stale_output)


class WithoutLookahead(AsyncScheduler):
    """A vLLM without the hook that caps a request."""

    _reserve_prefill_lookahead = None

    def schedule(self, throttle_prefills=False, something_new=None):
        self._reserve_prefill_lookahead = lambda request, computed, new: new
        return super().schedule(throttle_prefills)


@pytest.mark.parametrize(
    ("base", "asynchronous", "problem"),
    [
        (
            WithoutPreempt,
            False,
            "_preempt_request takes ['request', 'when', 'drop_stale_output'], not ['timestamp']",
        ),
        (WithoutLookahead, True, "_reserve_prefill_lookahead is missing"),
    ],
)
@pytest.mark.parametrize("v2", [False, True])
def test_different_vllm_is_left_as_it_is(model_config_dir, caplog, base, asynchronous, problem, v2):
    different = type("Different", (OpenPromptMixin, base), {})
    kind = Kind("different", different, v2=v2, asynchronous=asynchronous)
    with caplog.at_level(logging.WARNING):
        s = Simulation(model_config_dir, kind, finished_sets=True, blocks=30)
    assert problem in caplog.text
    assert s.scheduler.grape_stats()["disabled"] == problem
    s.open("o", PROMPT[:60])
    s.append("o", PROMPT[60:70])
    assert not s.scheduler.requests
    s.call("r", PROMPT[:120], adopt="o", feeds=True)
    s.plain("q", PROMPT[:250], n=100)
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:120], 8)
    assert s.answers["q"] == answer(PROMPT[:250], 100)
    assert "o" in s.told, "the client's routing entry is given back"
    assert s.counters["refused"] == 2
    assert s.scheduler.grape_release_all() == 0
    assert s.scheduler.reset_prefix_cache()
    s.scheduler.grape_validate()
    s.scheduler.shutdown()


def test_attributes_are_looked_up_by_name(simulate):
    scheduler = simulate().scheduler
    kept = {name: getattr(scheduler, name) for name in ("_inflight_prefills", "deferred_waiting")}
    for name in kept:
        delattr(scheduler, name)
    try:
        assert check_hooks(scheduler) == [
            f"{name} is missing" for name in ATTRIBUTES if name in kept
        ]
    finally:
        for name, value in kept.items():
            setattr(scheduler, name, value)


def test_kv_parts_are_looked_up_by_name(simulate):
    scheduler = simulate().scheduler
    group = scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    kept = group.num_cached_block
    del group.num_cached_block
    try:
        assert check_hooks(scheduler) == ["FullAttentionManager.num_cached_block is missing"]
    finally:
        group.num_cached_block = kept


def test_bad_settings_are_an_error(model_config_dir):
    with pytest.raises(ValueError, match="unknown grape settings"):
        make_scheduler(model_config_dir, KINDS[0], settings={"chunks": 1})


def test_defaults_fit_the_device(model_config_dir):
    on_cpu = make_scheduler(model_config_dir, KINDS[0])._config
    assert on_cpu == PolicyConfig(validate=True)
    elsewhere = make_scheduler(model_config_dir, KINDS[0], device="cuda")._config
    assert elsewhere.prefill_cap is None
    assert elsewhere.open_cap > on_cpu.open_cap
    chosen = make_scheduler(
        model_config_dir, KINDS[0], device="cuda", settings={"prefill_cap": 512}
    )
    assert chosen._config.prefill_cap == 512


def test_torch_cannot_turn_back_a_generator_on_a_cpu():
    """If this ever works, prompts with a seed need not be computed in one step any more."""
    with pytest.raises(RuntimeError, match="does not use offset"):
        torch.Generator(device="cpu").get_offset()


# What each hook must do, beyond being there.


def test_queue_order_and_removal():
    for policy in SchedulingPolicy:
        queue = create_request_queue(policy)
        assert hasattr(queue, "_heap") == (policy is SchedulingPolicy.PRIORITY)


def test_budget_is_read_every_step(simulate):
    s = simulate(step_tokens=64, settings={"prefill_cap": None})
    s.plain("r", PROMPT[:200], n=2)
    s.scheduler._max_tokens = 10
    assert s.scheduler.schedule().total_num_scheduled_tokens == 10
    s.scheduler._max_tokens = 64
    s.release("r")


def test_cap_of_zero_skips_a_running_request(simulate):
    """The hook that caps one request; 0 skips it and goes on with the next."""
    s = simulate(settings={"prefill_cap": None})
    s.plain("long", PROMPT[:200], n=2)
    s.plain("other", PROMPT[200:290], n=2)
    s.step()
    hook = s.scheduler._reserve_prefill_lookahead
    s.scheduler._reserve_prefill_lookahead = lambda request, computed, new: (
        0 if request.request_id == "long" else hook(request, computed, new)
    )
    planned = s.scheduler.schedule()
    assert "long" not in planned.num_scheduled_tokens
    assert planned.num_scheduled_tokens["other"] == 64
    s._queue.append((planned, s.worker.execute(planned)))
    del s.scheduler._reserve_prefill_lookahead
    s.idle()
    assert s.answers["long"] == answer(PROMPT[:200], 2)


def test_a_waiting_request_that_holds_kv_is_admitted_with_it(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("r", PROMPT[:80], adopt="o")
    assert [request.request_id for request in s.scheduler.kv_holding_waiting] == ["r"]
    planned = s.scheduler.schedule()
    (new,) = planned.scheduled_new_reqs
    assert new.req_id == "r"
    assert new.num_computed_tokens == 59
    assert planned.num_scheduled_tokens == {"r": 21}
    s._queue.append((planned, s.worker.execute(planned)))
    s.idle()


def test_a_parked_prompt_is_new_to_the_worker_each_time(simulate):
    s = simulate(settings={"open_cap": 32})
    s.open("o", PROMPT[:100])
    first = s.scheduler.schedule()
    s._queue.append((first, s.worker.execute(first)))
    second = s.scheduler.schedule()
    assert [new.req_id for new in first.scheduled_new_reqs] == ["o"]
    assert [new.req_id for new in second.scheduled_new_reqs] == ["o"]
    assert "o" in second.finished_req_ids, "the worker forgets it before it sees it again"
    assert not second.scheduled_cached_reqs.req_ids
    s._queue.append((second, s.worker.execute(second)))
    s.idle()


def test_managers_with_other_blocks_are_other_types():
    """Only the exact type may be moved: its subclasses free or share blocks in other ways."""
    kinds = FullAttentionManager.__subclasses__()
    assert kinds, "the check for the exact type would be pointless"


def test_no_entry_for_cached_blocks_below_one_block(simulate):
    s = simulate()
    s.open("o", PROMPT[:12])
    s.idle()
    group = s.scheduler.kv_cache_manager.coordinator.single_type_managers[0]
    assert group.num_cached_block.get("o", 0) == 0
    assert s.scheduler._ledger.hashed_tokens("o") == 0


def test_blocks_are_claimed_without_a_token_to_compute(simulate):
    """vLLM takes a full cache hit with no new tokens, which the claim needs."""
    s = simulate()
    s.plain("first", PROMPT[:65], n=1)
    s.idle()
    s.open("o", PROMPT[:65])
    s.scheduler.schedule()
    assert s.computed("o") == 64
    assert s.counters["open_tokens"] == 0


def test_outcome_travels_in_a_field_that_reaches_the_user():
    assert "kv_transfer_params" in EngineCoreOutput.__struct_fields__
    output = EngineCoreOutput("r", [1], finish_reason=FinishReason.STOP)
    output.kv_transfer_params = {"grape": {}}
    assert "kv_transfer_params" in inspect.signature(RequestState.make_request_output).parameters


def test_utilities_are_methods_of_the_engine_core():
    for name in ("grape_stats", "grape_release_all"):
        assert callable(getattr(EngineCore, name))
        assert callable(getattr(EngineCoreProc, name))


def test_utilities_answer_for_any_scheduler(simulate):
    class Core:
        scheduler = simulate().scheduler

    class Stock:
        scheduler = object()

    assert EngineCore.grape_stats(Core)["open_prompts"] == 0
    assert EngineCore.grape_release_all(Core) == 0
    assert EngineCore.grape_stats(Stock) == {"disabled": "the scheduler is object"}
    assert EngineCore.grape_release_all(Stock) == 0


def test_status_of_a_parked_prompt_is_no_end():
    assert not RequestStatus.is_finished(RequestStatus.WAITING)


def test_stats_are_plain_values(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    stats = s.scheduler.grape_stats()
    sizes = stats.pop("sizes")
    assert {type(value) for value in sizes.values()} == {int}
    assert {type(value) for value in stats.values()} <= {int, bool, str, float}
    assert stats["open_prompts"] == 1
    assert stats["requests"] == 1
    assert stats["tracked"] == 1
    assert stats["total_blocks"] - stats["free_blocks"] == 4
    assert stats["open_tokens"] == 59
    assert stats["running"] == stats["waiting"] == 0


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda s, o: s.waiting.add_request(o), "is in a queue between steps"),
        (lambda s, o: s.requests.pop("o"), "is not among the requests"),
        (lambda s, o: o._all_token_ids.append(3), "prompt and all tokens differ"),
        (lambda s, o: setattr(o, "num_computed_tokens", MAX_LEN), "tokens computed"),
        (lambda s, o: setattr(o, "spec_token_ids", [3]), "has output or drafts"),
        (lambda s, o: s._outcomes.update(ghost={}), "remembered requests that are gone"),
        (lambda s, o: s._views._views.update(ghost=None), "without a view, or the other way"),
        (lambda s, o: s._controller.opens.clear(), "open prompts that the policy sees otherwise"),
        (lambda s, o: s._blocked.add("ghost"), "blocked requests that run or are gone"),
        (lambda s, o: setattr(s._opens["o"].view, "held_blocks", 9), "seen as"),
        (
            lambda s, o: s._ledger._groups[0].req_to_blocks["ghost"],
            "KV of requests that are gone",
        ),
    ],
)
def test_validation_finds_damage(model_config_dir, kind, damage, text):
    s = Simulation(model_config_dir, kind)
    s.open("o", PROMPT[:60])
    s.idle()
    s.scheduler.grape_validate()
    damage(s.scheduler, s.scheduler.requests["o"])
    with pytest.raises(RuntimeError, match=text):
        s.scheduler.grape_validate()
