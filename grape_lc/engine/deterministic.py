"""What ``GrapeEngine(deterministic=True)`` asks of an engine and of each call.

vLLM computes a row of a batch with kernels that are chosen by the size of the batch, so numbers
change in their last digits with what else runs. In fp32 that is far less than what lies between a
greedy token and the next one; in 16 bits it is not. On NVIDIA GPUs vLLM has kernels that do not
depend on the batch (``VLLM_BATCH_INVARIANT``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

from grape_lc.errors import ConfigError, UnsupportedRequestError

BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
_FP32 = ("float32", "float")


def deterministic_args(
    args: Mapping[str, Any], *, on_cpu: bool, environ: MutableMapping[str, str] = os.environ
) -> dict[str, Any]:
    """Engine arguments of a deterministic engine, made of those that the user gave.

    On a CPU the data type is float32. Elsewhere vLLM's batch-invariant kernels are switched on in
    ``environ``, which the engine core inherits.
    Raises ConfigError for arguments, or a variable, that contradict this.
    """
    if args.get("speculative_config") is not None:
        raise ConfigError(
            "deterministic=True with speculative_config: drafted tokens are checked in batches of "
            "other sizes than those of tokens that are not. Leave one of them out"
        )
    if not on_cpu:
        if environ.get(BATCH_INVARIANT, "1") != "1":
            raise ConfigError(
                f"deterministic=True with {BATCH_INVARIANT}={environ[BATCH_INVARIANT]} in the "
                "environment: unset it, or leave deterministic out"
            )
        environ[BATCH_INVARIANT] = "1"
        return dict(args)
    dtype = str(args.get("dtype", _FP32[0])).removeprefix("torch.")
    if dtype not in _FP32:
        raise ConfigError(
            f"deterministic=True with dtype={dtype!r}: on a CPU it needs 'float32', since in 16 "
            "bits answers depend on what else is in the batch"
        )
    return {**args, "dtype": _FP32[0]}


def check_repeatable(temperature: float, seed: int | None) -> None:
    """Raise UnsupportedRequestError for a call whose answer no engine could give again."""
    if temperature > 0 and seed is None:
        raise UnsupportedRequestError(
            f"temperature={temperature} without a seed on an engine with deterministic=True; "
            "give seed=, or temperature=0"
        )
