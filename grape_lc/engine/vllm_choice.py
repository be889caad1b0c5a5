"""Whether this vLLM can have our schedulers at all, seen from the host before an engine starts.

Inside the engine core it would be too late: an import that fails there ends the engine. A vLLM
that lacks what our modules import is served by its own scheduler instead, with a warning.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

OURS = "grape_lc.engine.vllm_scheduler"
COUNTED = "grape_lc.engine.vllm_counted"

# What early work asks of vLLM's client of the engine core, beside what serving calls takes.
CLIENT = ("add_request_async", "abort_requests_async", "call_utility_async")
CONTROL_FIELDS = (
    "request_id",
    "prompt_token_ids",
    "mm_features",
    "sampling_params",
    "pooling_params",
    "arrival_time",
    "lora_request",
    "cache_salt",
    "data_parallel_rank",
)


def why_not_importable(module: str) -> str | None:
    """Why a module with a scheduler of ours does not go with this vLLM; None if it does."""
    try:
        import_module(module)
    except Exception as error:  # noqa: BLE001 - a class body that is run may raise anything
        return f"this vLLM differs: {error!r}"
    return None


def why_not_sent(client: Any, request: type) -> str | None:
    """Why control messages cannot be sent through ``client`` as ``request``; None if they can.

    client: vLLM's client of the engine core. request: the class of its requests.
    """
    missing = [name for name in CLIENT if not hasattr(client, name)]
    if missing:
        return f"this vLLM differs: its client has no {', '.join(missing)}"
    try:
        inspect.signature(request).bind(**dict.fromkeys(CONTROL_FIELDS))
    except TypeError as error:
        return f"this vLLM differs: {request.__name__}: {error}"
    return None
