"""Figures of a model and its devices that utilisation is computed from."""

from __future__ import annotations

from typing import Any

from vllm.platforms import current_platform

from grape_lc.engine.device_peaks import MEASURE_PEAK, peak_flops

_IN_CORE = frozenset({"uni", "UniProcExecutor"})
"""Executors whose worker shares the engine core's process."""


def model_flops(config: Any) -> dict[str, int] | None:
    """Operations of a forward pass of the whole model, over all devices; None where not known.

    per_token: for each token, its matrix products with the active weights (two operations a
    weight), the LM head left out. per_context: for each token that it attends to. per_logit: the
    LM head, for each token that is sampled.

    config: vLLM's. They are vLLM's own analytic counts (``vllm.v1.metrics.perf``), which know
    mixtures of experts and compressed attention. None also where attention has windows: then
    operations do not grow in proportion to the context.
    """
    try:
        from vllm.v1.metrics.perf import ExecutionContext, ModelMetrics
    except ImportError:
        return None

    model = ModelMetrics(config)
    most = int(config.model_config.max_model_len)

    def of(context: int) -> dict[str, int]:
        step = ExecutionContext()
        step.add(1, context, is_prefill=False)
        found: dict[str, int] = model.get_num_flops_breakdown(step, per_gpu=False)
        return found

    parts = [of(context) for context in (0, 1, most)]
    logits = sum(n for name, n in parts[0].items() if name.startswith("unembed."))
    body, one, all_of = (sum(part.values()) for part in parts)
    if not logits or body == logits or all_of - body != most * (one - body):
        return None
    return {"per_token": body - logits, "per_context": one - body, "per_logit": logits}


def model_shape(config: Any) -> dict[str, int]:
    """Layers, hidden size, devices that the model is spread over, and copies of it together."""
    model, parallel = config.model_config, config.parallel_config
    return {
        "layers": int(model.get_total_num_hidden_layers()),
        "hidden_size": int(model.get_hidden_size()),
        "devices": int(parallel.world_size) * int(parallel.data_parallel_size),
    }


def sheet_peak(config: Any) -> float | None:
    """Peak FLOP/s of one device by its data sheet; None on a CPU, and where it is not known."""
    if current_platform.is_cpu():
        return None
    dtype = str(config.model_config.dtype).removeprefix("torch.")
    return peak_flops(current_platform.get_device_name(), dtype)


def wants_measured_peak(config: Any) -> bool:
    """Whether the peak is to be measured: asked for, on a CPU, with the one worker in the core.

    Other workers have threads of their own, which the engine core cannot measure with.
    """
    asked = (config.additional_config or {}).get(MEASURE_PEAK)
    executor = config.parallel_config.distributed_executor_backend
    name = getattr(executor, "__name__", str(executor)).rpartition(".")[2]
    alone = model_shape(config)["devices"] == 1 and name in _IN_CORE
    return bool(asked) and current_platform.is_cpu() and alone
