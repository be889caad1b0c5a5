"""A vLLM that differs is left as it is: calls are served, nothing is done ahead, and it is said."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest
from vllm.platforms import current_platform
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from grape_lc.engine import vllm_parts as parts
from grape_lc.engine.vllm_counted import CountedMixin
from grape_lc.engine.vllm_parts import Method
from grape_lc.engine.vllm_scheduler import OpenPromptMixin
from tests.contract.simulation import KINDS, Kind, Simulation, answer

PROMPT = list(range(100, 400))


class OtherArguments:
    """A vLLM that passes more to the hook that caps a request."""

    def _reserve_prefill_lookahead(self, request, computed, new, hint=None):
        return new


class TakenName:
    """A vLLM with a method whose name is one of ours."""

    def _drop(self, request):
        """Something else."""


class OtherType:
    """A vLLM that keeps prefills in flight in another container."""

    class Ordered(dict):
        def add(self, request):
            self[request] = None

        def discard(self, request):
            self.pop(request, None)

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._inflight_prefills = self.Ordered()


def more(table: str, **parts_of: Any) -> tuple[str, Mapping[str, Any]]:
    """A part that this vLLM has not, as a newer package would ask for."""
    return table, {**getattr(parts, table), **parts_of}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (OtherArguments, "_reserve_prefill_lookahead takes"),
        (TakenName, "_drop is a part of vLLM's own"),
        (OtherType, "_inflight_prefills is a Ordered, not a set"),
        (more("METHODS", _renamed=Method()), "_renamed is missing"),
        (more("ATTRIBUTES", renamed=None), "renamed is missing"),
        (more("REQUEST", renamed=None), "Request.renamed is missing"),
        (more("GROUP", renamed=None), "FullAttentionManager.renamed is missing"),
        (more("CLASSES", **{"vllm.gone.Gone": ("part",)}), "vllm.gone.Gone is missing"),
    ],
)
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=lambda kind: kind.name)
def test_calls_are_served(model_config_dir, monkeypatch, caplog, kind, change, problem):
    base = AsyncScheduler if kind.asynchronous else Scheduler
    if isinstance(change, tuple):
        monkeypatch.setattr(parts, *change)
        bases: tuple[type, ...] = (OpenPromptMixin, base)
    else:
        bases = (OpenPromptMixin, type("Changed", (change, base), {}))
    other = Kind("other", type("Different", bases, {}), kind.v2, kind.asynchronous)
    with caplog.at_level(logging.WARNING):
        s = Simulation(model_config_dir, other, blocks=30)
    assert problem in caplog.text
    assert s.scheduler.grape_stats()["disabled"].startswith(problem)
    s.open("o", PROMPT[:60])
    s.call("r", PROMPT[:120], adopt="o", feeds=True)
    s.plain("q", PROMPT[:250], n=100)
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:120], 8)
    assert s.answers["q"] == answer(PROMPT[:250], 100)
    assert not s.scheduler.requests


def test_this_vllm_serves_calls_in_whatever_tier(model_config_dir, kind):
    """Of a version that the self-test refuses this is all that is asked."""
    s = Simulation(model_config_dir, kind, blocks=30)
    s.open("o", PROMPT[:60])
    s.call("r", PROMPT[:120], adopt="o")
    s.plain("q", PROMPT[:250], n=100)
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:120], 8)
    assert s.answers["q"] == answer(PROMPT[:250], 100)


def test_counts_that_cannot_be_kept_are_left_out(model_config_dir, monkeypatch):
    monkeypatch.setattr(parts, *more("ATTRIBUTES", renamed=None))
    counted = type("Counted", (CountedMixin, Scheduler), {"grape_counters": {}})
    s = Simulation(model_config_dir, Kind("counted", counted, v2=False, asynchronous=False))
    s.plain("q", PROMPT[:50])
    s.idle()
    assert s.answers["q"] == answer(PROMPT[:50], 8)
    assert s.scheduler.grape_stats() == {"uncounted": "renamed is missing"}


@pytest.mark.skipif(
    not current_platform.is_cpu(), reason="no engine is configured without a device"
)
@pytest.mark.parametrize("counted", [True, False])
def test_an_engine_without_our_modules_is_configured_as_vllms_own(
    model_config_dir, monkeypatch, caplog, counted
):
    """The host finds out before it starts: in the engine core the import would end the engine."""
    engine = import_module("grape_lc.engine.vllm_engine")
    configs = []

    def started(config):
        configs.append(config)
        return Llm()

    class Llm:
        renderer = None

        def get_tokenizer(self):
            return object()

    monkeypatch.setattr(engine.AsyncLLM, "from_vllm_config", started)
    monkeypatch.setattr(engine, "OURS", "grape_lc.engine.vllm_nowhere")
    if not counted:
        monkeypatch.setattr(engine, "COUNTED", "grape_lc.engine.vllm_nowhere")
    args = {"dtype": "float32", "skip_tokenizer_init": True, "max_model_len": 256}
    with caplog.at_level(logging.WARNING):
        made = engine.VLLMEngine(str(model_config_dir), "grape", args)
    assert "vllm_nowhere" in made.early_refusal
    assert "vLLM's own scheduler serves" in caplog.text
    assert made._scheduler == "stock"
    name = configs[0].scheduler_config.scheduler_cls
    assert name == ("grape_lc.engine.vllm_counted.CountedScheduler" if counted else None)
    assert made._told is counted
