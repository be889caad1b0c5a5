"""Utilities of the engine core process that a client can call by name.

``engine_core.call_utility_async(name)`` reaches methods of vLLM's EngineCore only, and vLLM has
no place to register more, so they are added to the class.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
from vllm.v1.engine.core import EngineCore

# Rows of the matrices. The small ones take about a millisecond, which on a busy machine may well
# pass without a break; the large ones show what caches and threads are good for.
_SIDES = (384, 1024)
_MEASURE_S = 1.0


def grape_stats(core: Any) -> dict[str, Any]:
    """Counters of the scheduler; ``disabled`` says why there are no open prompts, if so."""
    scheduler = core.scheduler
    if not hasattr(scheduler, "grape_stats"):
        return {"disabled": f"the scheduler is {type(scheduler).__name__}"}
    stats: dict[str, Any] = scheduler.grape_stats()
    if "sizes" in stats:
        stats["sizes"]["threads"] = threading.active_count()
    return stats


def grape_release_all(core: Any) -> int:
    """Release every open prompt; returns how many there were."""
    scheduler = core.scheduler
    return int(scheduler.grape_release_all()) if hasattr(scheduler, "grape_release_all") else 0


def grape_steps(core: Any) -> list[list[float]]:
    """Steps measured since the last question: rows, tokens, kv_tokens, attention, seconds.

    Empty where the engine was not told to keep them (``grape_log_steps``).
    """
    scheduler = core.scheduler
    return scheduler.grape_steps() if hasattr(scheduler, "grape_steps") else []


def grape_records(core: Any) -> list[str]:
    """Settings and records of the last steps, as lines of JSON.

    Empty where the engine was not told to keep them (``grape_trace``).
    """
    scheduler = core.scheduler
    return scheduler.grape_records() if hasattr(scheduler, "grape_records") else []


def grape_peak_flops(core: Any) -> float:
    """Most floating-point operations a second of a matrix product in the model's dtype, measured.

    In the engine core's process, with its threads; the best product of a second. Meant for CPUs,
    and for a worker that shares this process.
    """
    dtype = core.vllm_config.model_config.dtype
    pairs = [tuple(torch.rand(side, side).to(dtype) for _ in range(2)) for side in _SIDES]
    for left, right in pairs:
        torch.matmul(left, right)
    best, ends = 0.0, time.perf_counter() + _MEASURE_S
    while time.perf_counter() < ends:
        for (left, right), side in zip(pairs, _SIDES, strict=True):
            begin = time.perf_counter()
            torch.matmul(left, right)
            # As many multiplications as additions.
            best = max(best, 2.0 * side**3 / (time.perf_counter() - begin))
    return best


def install_utilities() -> None:
    """Make them callable by name; called when the scheduler's module is imported."""
    EngineCore.grape_stats = grape_stats
    EngineCore.grape_release_all = grape_release_all
    EngineCore.grape_steps = grape_steps
    EngineCore.grape_records = grape_records
    EngineCore.grape_peak_flops = grape_peak_flops
