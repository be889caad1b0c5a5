"""The private parts of vLLM's scheduler that open prompts stand on, and a check that they exist.

vLLM does not promise any of them. If one is missing or takes other arguments, open prompts are
switched off and the scheduler is vLLM's own.
"""

from __future__ import annotations

import inspect
from typing import Any

# Methods that are overridden or called, and the arguments that must exist.
METHODS: dict[str, tuple[str, ...]] = {
    "add_request": ("request",),
    "finish_requests": ("request_ids", "finished_status"),
    "schedule": ("throttle_prefills",),
    "update_from_output": ("scheduler_output", "model_runner_output"),
    "get_num_unfinished_requests": (),
    "reset_prefix_cache": ("reset_running_requests", "reset_connector"),
    "shutdown": (),
    "_reserve_prefill_lookahead": ("request", "num_computed_tokens", "num_new_tokens"),
    "_preempt_request": ("request", "timestamp", "drop_stale_output"),
    "_free_request": ("request",),
    "_free_request_blocks": ("request",),
    "_enqueue_waiting_request": ("request",),
    "_is_blocked_waiting_status": ("status",),
    "_holds_kv_blocks": ("request",),
}

# Attributes of a scheduler that are read or changed.
ATTRIBUTES = (
    "policy",
    "requests",
    "running",
    "waiting",
    "kv_holding_waiting",
    "deferred_waiting",
    "finished_req_ids",
    "finished_req_ids_dict",
    "max_num_scheduled_tokens",
    "max_num_running_reqs",
    "max_num_active_reqs",
    "num_waiting_for_streaming_input",
    "max_model_len",
    "num_spec_tokens",
    "num_prefill_lookahead",
    "num_sampled_tokens_per_step",
    "block_size",
    "hash_block_size",
    "connector",
    "is_encoder_decoder",
    "has_mamba_layers",
    "prefill_capacity_bound",
    "scheduler_config",
    "vllm_config",
    "kv_cache_manager",
    "_inflight_prefills",
    "_pause_state",
)

QUEUE_METHODS = ("add_request", "prepend_request", "remove_requests", "__iter__", "__len__")

KV_METHODS: dict[str, tuple[str, ...]] = {
    "allocate_slots": (
        "request",
        "num_new_tokens",
        "num_new_computed_tokens",
        "new_computed_blocks",
        "full_sequence_must_fit",
    ),
    "get_computed_blocks": ("request",),
}

POOL_PARTS = ("get_num_free_blocks", "num_gpu_blocks", "free_blocks")

GROUP_PARTS = ("req_to_blocks", "num_cached_block", "block_size", "block_pool")


def check_hooks(target: Any, stock: Any = None) -> list[str]:
    """What is missing or different; empty if open prompts can work.

    target: a scheduler class (methods are checked) or a scheduler (all parts are checked).
    stock: where to look for methods instead: a subclass has those that it overrides, whether
        or not vLLM has them.
    """
    found = _methods(target if stock is None else stock, METHODS)
    if inspect.isclass(target):
        return found
    found += _parts(target, ATTRIBUTES, "")
    for name in ("waiting", "kv_holding_waiting"):
        if hasattr(target, name):
            found += _parts(getattr(target, name), QUEUE_METHODS, f"{name}.")
    manager = getattr(target, "kv_cache_manager", None)
    if manager is None:
        return found
    found += _methods(manager, KV_METHODS, "kv_cache_manager.")
    pool = getattr(manager, "block_pool", None)
    found += _parts(pool, POOL_PARTS, "block_pool.")
    groups = getattr(getattr(manager, "coordinator", None), "single_type_managers", None)
    if groups is None:
        found.append("kv_cache_manager.coordinator.single_type_managers is missing")
    for group in groups or ():
        found += _parts(group, GROUP_PARTS, f"{type(group).__name__}.")
    return found


def _parts(owner: Any, names: tuple[str, ...], where: str) -> list[str]:
    return [f"{where}{name} is missing" for name in names if not hasattr(owner, name)]


def _methods(owner: Any, wanted: dict[str, tuple[str, ...]], where: str = "") -> list[str]:
    found = []
    for name, arguments in wanted.items():
        method = getattr(owner, name, None)
        if not callable(method):
            found.append(f"{where}{name} is missing")
            continue
        known = inspect.signature(method).parameters
        if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in known.values()):
            continue
        missing = [argument for argument in arguments if argument not in known]
        if missing:
            found.append(f"{where}{name} takes {list(known)}, not {missing}")
    return found
