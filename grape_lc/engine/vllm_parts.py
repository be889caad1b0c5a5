"""The private parts of vLLM that open prompts stand on: every one that our scheduler touches.

vLLM promises none of them. ``vllm_hooks`` looks for them when an engine starts;
``tests/contract/test_touched.py`` compares the lists with what the source really touches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """How a method is called or overridden.

    first: its first arguments, in this order. named: further ones that must exist somewhere.
    Others may be left out by a caller. closed: it has no others. Ours takes its place with these
    arguments, and would fail in the middle of a step if vLLM passed one more.
    """

    first: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    closed: bool = False


METHODS: Mapping[str, Method] = {
    "add_request": Method(("request",), closed=True),
    "finish_requests": Method(("request_ids", "finished_status")),
    "schedule": Method(("throttle_prefills",)),
    "update_from_output": Method(("scheduler_output", "model_runner_output")),
    "get_num_unfinished_requests": Method(closed=True),
    "reset_prefix_cache": Method(("reset_running_requests", "reset_connector")),
    "shutdown": Method(closed=True),
    "_reserve_prefill_lookahead": Method(
        ("request", "num_computed_tokens", "num_new_tokens"), closed=True
    ),
    "_preempt_request": Method(("request", "timestamp", "drop_stale_output")),
    "_free_request": Method(("request",)),
    "_free_request_blocks": Method(("request",)),
    "_is_blocked_waiting_status": Method(("status",)),
    "_holds_kv_blocks": Method(("request",)),
}
"""Of a scheduler: overridden, or called."""

ATTRIBUTES: Mapping[str, type | None] = {
    "policy": None,
    "requests": dict,
    "running": list,
    "waiting": None,
    "kv_holding_waiting": None,
    "deferred_waiting": set,
    "finished_req_ids": set,
    "finished_req_ids_dict": None,
    "max_num_scheduled_tokens": int,
    "max_num_running_reqs": int,
    "max_num_active_reqs": int,
    "num_waiting_for_streaming_input": int,
    "max_model_len": int,
    "num_spec_tokens": int,
    "num_prefill_lookahead": int,
    "num_sampled_tokens_per_step": int,
    "block_size": int,
    "hash_block_size": int,
    "connector": None,
    "is_encoder_decoder": None,
    "has_mamba_layers": None,
    "prefill_capacity_bound": int,
    "scheduler_config": None,
    "vllm_config": None,
    "kv_cache_config": None,
    "kv_cache_manager": None,
    "_inflight_prefills": set,
    "_pause_state": None,
}
"""Of a scheduler: read or changed, and of what type, where that matters."""

LOOKED_FOR = frozenset({"ec_connector", "aux_output_connector", "watermark_blocks"})
"""Of a scheduler or its KV manager: that they are missing is an answer too."""

CONFIG: Mapping[str, tuple[str, ...]] = {
    "scheduler_config": ("enable_chunked_prefill", "long_prefill_token_threshold"),
    "kv_cache_config": ("num_blocks", "kv_cache_tensors"),
    "vllm_config": ("additional_config", "device_config", "model_config", "parallel_config"),
    "vllm_config.device_config": ("device_type",),
    "vllm_config.model_config": ("runner_type", "supports_multimodal_inputs"),
    "vllm_config.parallel_config": (
        "decode_context_parallel_size",
        "prefill_context_parallel_size",
    ),
}
"""Of what a scheduler was configured with."""

QUEUE: Mapping[str, Method] = {
    "add_request": Method(("request",)),
    "prepend_request": Method(("request",)),
    "remove_requests": Method(("requests",)),
    "__iter__": Method(),
    "__len__": Method(),
}

KV_MANAGER: Mapping[str, Method] = {
    "allocate_slots": Method(
        ("request", "num_new_tokens"),
        ("num_new_computed_tokens", "new_computed_blocks", "full_sequence_must_fit"),
    ),
    "get_computed_blocks": Method(("request",)),
}

POOL = ("get_num_free_blocks", "num_gpu_blocks", "free_blocks")

GROUP: Mapping[str, type | None] = {
    "req_to_blocks": dict,
    "num_cached_block": dict,
    "block_size": int,
    "block_pool": None,
}

REQUEST: Mapping[str, type | None] = {
    "request_id": str,
    "client_index": int,
    "arrival_time": float,
    "priority": int,
    "status": int,
    "events": list,
    "sampling_params": None,
    "pooling_params": None,
    "structured_output_request": None,
    "lora_request": None,
    "cache_salt": None,
    "prompt_embeds": None,
    "prompt_token_ids": list,
    "_all_token_ids": list,
    "block_hashes": list,
    "update_block_hashes": None,
    "spec_token_ids": list,
    "max_tokens": int,
    "num_tokens": int,
    "num_prompt_tokens": int,
    "num_computed_tokens": int,
    "num_output_tokens": int,
    "num_output_placeholders": int,
    "num_in_flight_tokens": int,
    "num_stale_output_tokens": int,
    "prefill_stats": None,
    "is_prefill_chunk": int,
    "has_encoder_inputs": int,
    "skip_reading_prefix_cache": int,
    "resumable": int,
}
"""Of a request that was just made."""

PREFILL_STATS: Mapping[str, Method] = {
    "set": Method(
        ("num_prompt_tokens", "num_local_cached_tokens", "num_external_cached_tokens"), closed=True
    ),
}

SAMPLING = ("extra_args", "sampling_type", "stop", "prompt_logprobs")

CLASSES: Mapping[str, tuple[str, ...]] = {
    "vllm.v1.core.sched.output.SchedulerOutput": (
        "num_scheduled_tokens",
        "total_num_scheduled_tokens",
    ),
    "vllm.v1.engine.EngineCoreOutputs": ("outputs",),
    "vllm.v1.engine.EngineCoreOutput": ("request_id", "finish_reason", "kv_transfer_params"),
    "vllm.v1.core.kv_cache_manager.KVCacheBlocks": ("blocks",),
    "vllm.v1.core.kv_cache_utils.KVCacheBlock": ("block_id", "ref_cnt", "is_null"),
    "vllm.v1.kv_cache_interface.KVCacheTensor": ("size",),
    "vllm.v1.request.RequestStatus": (
        "WAITING",
        "RUNNING",
        "FINISHED_ABORTED",
        "FINISHED_LENGTH_CAPPED",
        "FINISHED_STOPPED",
    ),
    "vllm.v1.core.sched.interface.PauseState": ("UNPAUSED",),
    "vllm.v1.core.sched.request_queue.SchedulingPolicy": ("PRIORITY",),
    "vllm.sampling_params.SamplingType": ("RANDOM_SEED",),
}
"""Fields and members of classes."""
