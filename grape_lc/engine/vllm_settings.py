"""What a user may set for the scheduler: ``additional_config`` of vLLM, checked.

grape            mapping: settings of the policy (``PolicyConfig``)
grape_cost       mapping: F of this machine, as ``grape profile`` writes it (``LinearCost``)
grape_trace      number of step records that are kept, or a file that they are written to
grape_log_steps  number of measured steps that are kept
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grape_lc.scheduler.cost import LinearCost
from grape_lc.scheduler.settings import PolicyConfig

logger = logging.getLogger(__name__)

# The defaults of PolicyConfig fit a CPU, where a token of prefill takes about 0.6 ms. On an
# accelerator a step takes hundreds of them at no cost, and a fixed cap would cost throughput.
# Chosen by simulation of published hardware figures, and not measured on a GPU.
_ACCELERATOR_SETTINGS: dict[str, Any] = {
    "chunk": 64,
    "lump": 256,
    "prefill_cap": None,
    "open_cap": 1024,
    "stretch": 1.15,
    "backlog_share": 0.07,
    "late_s": 0.5,
    "rare": 0.0,
    "adopted_first": 2048,
    "grace_tokens": 256,
    "hold_s": 0.0,
}


@dataclass(frozen=True)
class DriverSettings:
    """Settings of the scheduler subclass.

    policy: over the defaults of the device. cost: None if none was given. trace: records kept,
    or the path of a file; None: off. log_steps: measured steps kept.
    """

    policy: PolicyConfig
    cost: LinearCost | None = None
    trace: int | str | None = None
    log_steps: int = 0

    @classmethod
    def read(cls, additional_config: Any, *, on_cpu: bool) -> DriverSettings:
        """Read vLLM's ``additional_config``.

        Raises ValueError for a bad setting. A bad ``grape_cost`` is logged and left out: it may
        be the profile of another version, and F can be learned.
        """
        given: Mapping[str, Any] = additional_config if isinstance(additional_config, dict) else {}
        defaults = {} if on_cpu else _ACCELERATOR_SETTINGS
        policy = PolicyConfig.from_mapping({**defaults, **given.get("grape", {})})
        trace, log_steps = given.get("grape_trace"), given.get("grape_log_steps", 0)
        if not (trace is None or (isinstance(trace, str) and trace) or _is_count(trace)):
            raise ValueError(f"grape_trace must be a number of records or a file: {trace!r}")
        if not _is_count(log_steps):
            raise ValueError(f"grape_log_steps must be a number of steps: {log_steps!r}")
        return cls(policy, _cost(given.get("grape_cost")), trace or None, log_steps)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _cost(mapping: Any) -> LinearCost | None:
    if mapping is None:
        return None
    try:
        return LinearCost.from_mapping(mapping)
    except (TypeError, ValueError, AttributeError) as error:
        logger.warning("grape_cost is left out, F will be learned: %s", error)
        return None
