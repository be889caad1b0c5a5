"""What schedulers count of their KV, on vLLM's real ones."""

from __future__ import annotations

import dataclasses
import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import DeviceConfig, ModelConfig, VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from grape_lc.engine import vllm_utilities
from grape_lc.engine.vllm_counted import CountedAsyncScheduler, CountedScheduler
from grape_lc.engine.vllm_figures import model_flops, model_shape
from grape_lc.scheduler.settings import PLAIN
from tests.contract.simulation import KINDS, MAX_LEN, Simulation, answer
from tests.contract.test_same_as_stock import Watched, trace

SYNCHRONOUS = [kind for kind in KINDS if not kind.asynchronous]
TIGHT = {"blocks": 26, "rows": 4}


def counted(kind: Any) -> Any:
    return dataclasses.replace(
        kind, scheduler=CountedAsyncScheduler if kind.asynchronous else CountedScheduler
    )


def watched(kind: Any) -> Any:
    base = AsyncScheduler if kind.asynchronous else Scheduler
    return dataclasses.replace(kind, scheduler=type("Stock", (Watched, base), {}))


@pytest.mark.parametrize("drafts", [0, 2])
def test_counting_changes_no_step(model_config_dir, kind, drafts):
    ours = Simulation(model_config_dir, counted(kind), drafts=drafts, **TIGHT)
    theirs = Simulation(model_config_dir, watched(kind), drafts=drafts, **TIGHT)
    assert trace(ours, 3) == trace(theirs, 3)
    assert ours.scheduler.grape_stats()["preemptions"] > 0, "the comparison covers preemption"


def test_another_vllm_is_left_alone(model_config_dir, kind, monkeypatch):
    monkeypatch.setattr("grape_lc.engine.vllm_counted.check_hooks", lambda *_: ["a part is gone"])
    simulation = Simulation(model_config_dir, counted(kind), **TIGHT)
    expected = [("a", [3] * 200, 90), ("b", [4] * 200, 90)]
    for name, prompt, n in expected:
        simulation.plain(name, prompt, n=n)
    simulation.idle()
    assert simulation.answers == {name: answer(prompt, n) for name, prompt, n in expected}
    assert simulation.scheduler.reset_prefix_cache()
    assert simulation.scheduler.grape_stats() == {"uncounted": "a part is gone"}


@pytest.mark.parametrize("kind", SYNCHRONOUS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("ours", [False, True], ids=["stock", "grape"])
def test_what_ran_beyond_the_calls_own_tokens_was_recomputed(model_config_dir, kind, ours):
    kind = kind if ours else counted(kind)
    settings = {"settings": dict(PLAIN)} if ours else {}
    simulation = Simulation(model_config_dir, kind, caching=False, **TIGHT, **settings)
    ran, used = 0, []
    schedule = simulation.scheduler.schedule

    def counting(*args):
        nonlocal ran
        step = schedule(*args)
        ran += step.total_num_scheduled_tokens
        used.append(simulation.base - simulation.free)
        return step

    simulation.scheduler.schedule = counting
    chooser, own = random.Random(5), 0
    for number in range(12):
        prompt, n = [3] * chooser.randint(50, 150), chooser.randint(20, 80)
        simulation.plain(f"r{number}", prompt, n=n)
        # The last token of an answer is never read.
        own += len(prompt) + n - 1
    simulation.idle(5000)
    assert len(simulation.answers) == 12
    told = simulation.scheduler.grape_stats()
    assert told["recomputed_tokens"] == ran - own > 0
    assert told["evictions"] == told["preemptions"] > 0
    assert told["peak_kv_blocks"] == max(used)
    simulation.scheduler.reset_prefix_cache()
    assert simulation.scheduler.grape_stats()["peak_kv_blocks"] == 0


@pytest.mark.parametrize("kind", SYNCHRONOUS, ids=lambda kind: kind.name)
def test_a_dropped_open_prompt_is_recomputed_by_its_call(model_config_dir, kind):
    simulation = Simulation(model_config_dir, kind)
    prompt = [3] * 64
    simulation.open("open", prompt)
    simulation.idle()
    assert simulation.scheduler.grape_stats()["peak_kv_blocks"] == 4
    simulation.scheduler.reset_prefix_cache()
    simulation.call("call", [*prompt, 4], adopt="open", n=1)
    simulation.idle()
    assert simulation.answers["call"] == answer([*prompt, 4], 1)
    told = simulation.scheduler.grape_stats()
    # All that the open prompt had computed: all of it but its last token.
    assert (told["evictions"], told["recomputed_tokens"]) == (1, told["dropped_tokens"])
    assert told["dropped_tokens"] > 0


def test_the_peak_is_that_of_the_best_product(monkeypatch):
    clock = itertools.count(0.0, 0.25)
    monkeypatch.setattr("grape_lc.engine.vllm_utilities.time.perf_counter", lambda: next(clock))
    core = SimpleNamespace(vllm_config=SimpleNamespace(model_config=SimpleNamespace()))
    core.vllm_config.model_config.dtype = torch.float32
    # By this clock every product takes a quarter of a second.
    assert vllm_utilities.grape_peak_flops(core) == 2 * 1024**3 / 0.25


def test_operations_are_those_of_the_model(model_config_dir):
    config = VllmConfig(
        device_config=DeviceConfig("cpu"),
        model_config=ModelConfig(
            model=str(model_config_dir),
            dtype="float32",
            max_model_len=MAX_LEN,
            skip_tokenizer_init=True,
        ),
    )
    hidden, inner, vocabulary = 16, 32, 1000
    attention = 3 * hidden * hidden + hidden * hidden
    assert model_flops(config) == {
        "per_token": 2 * (attention + 3 * hidden * inner),
        "per_context": 2 * hidden + 2 * hidden,
        "per_logit": 2 * hidden * vocabulary,
    }
    assert model_shape(config) == {"layers": 1, "hidden_size": 16, "devices": 1}
    config.model_config.hf_text_config.sliding_window = 64
    assert model_flops(config) is None
