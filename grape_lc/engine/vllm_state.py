"""What the parts of the scheduler share: vLLM's scheduler, the policy, our tables and counters."""

from __future__ import annotations

import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import SchedulingPolicy

from grape_lc.engine.vllm_counts import KVCounts
from grape_lc.engine.vllm_hooks import check_hooks
from grape_lc.engine.vllm_kv import KVLedger, why_not_capped, why_not_movable
from grape_lc.engine.vllm_open_prompts import OpenPrompt, OpenTable
from grape_lc.engine.vllm_settings import DriverSettings
from grape_lc.engine.vllm_staging import Staging
from grape_lc.engine.vllm_steplog import StepLog
from grape_lc.engine.vllm_trace import StepTrace
from grape_lc.engine.vllm_views import CallViews
from grape_lc.scheduler.controller import Controller
from grape_lc.scheduler.refresh import CostTracker
from grape_lc.scheduler.settings import Constraint, PolicyConfig, Rule
from grape_lc.scheduler.types import RequestView, Snapshot

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _Base
else:
    _Base = object

logger = logging.getLogger(__name__)

COUNTERS = (
    "opened",
    "appended",
    "adopted",
    "adopted_tokens",
    "truncated",
    "mismatch",
    "cold",
    "unknown",
    "refused",
    "malformed",
    "dropped",
    "dropped_tokens",
    "stripped",
    "released",
    "expired",
    "open_tokens",
    "steps",
    "held",
    "steps_with_open",
    "preemptions",
)


class SchedulerState(_Base):
    """The lowest of the mixins: what it makes, those above it use.

    ``super()`` of this class is vLLM's own scheduler.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.running: list[Any]
        self.max_num_scheduled_tokens: int
        self.prefill_capacity_bound: bool
        self._on_cpu = self.vllm_config.device_config.device_type == "cpu"
        self._settings = DriverSettings.read(
            self.vllm_config.additional_config, on_cpu=self._on_cpu
        )
        self.grape_counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._off: str | None = None
        problems = check_hooks(self, super())
        if problems:
            self._off = "; ".join(problems)
            logger.warning("open prompts are off, this vLLM differs: %s", self._off)
            return
        self.grape_clock = time.monotonic
        # That of arrival times.
        self.grape_wall_clock = time.time
        # Why this engine keeps no open prompts although the hooks are there.
        self._unmovable = why_not_movable(self)
        if self._unmovable:
            logger.warning("open prompts are refused: %s", self._unmovable)
        self._uncapped = why_not_capped(self)
        self._config = self._fitting(self._settings.policy)
        self._ledger = KVLedger(self.kv_cache_manager)
        self._kv_counts = KVCounts.of(self)
        self._overlaps = isinstance(self, AsyncScheduler)
        self._opens = OpenTable(self._ledger, self.max_model_len - 1, self.num_prefill_lookahead)
        self._views = CallViews(self._ledger)
        self._costs = CostTracker(self._settings.cost)
        self._controller = Controller(
            self._config,
            block_size=self._ledger.block_size,
            groups=self._ledger.groups,
            costs=self._costs,
        )
        self._step_log = StepLog(self._settings.log_steps)
        trace = self._settings.trace
        self._trace = None if trace is None else StepTrace(trace, self._config)
        self._max_tokens: int = self.max_num_scheduled_tokens
        # Longer prompts than this vLLM cuts by itself.
        threshold = self.scheduler_config.long_prefill_token_threshold
        self._whole_limit = min(self._max_tokens, threshold or self._max_tokens)
        self._seq = 0
        # Of the present step: most tokens of a request, open prompts that are queued, blocks that
        # they leave free, those that give up their KV first, and vLLM's real queues.
        self._caps: dict[str, int] = {}
        self._queued: dict[str, OpenPrompt] = {}
        self._reserve = 0
        self._victims: list[str] = []
        self._staging: Staging | None = None
        # Real requests that took over an open prompt, and what the client is told about it.
        self._outcomes: dict[str, dict[str, Any]] = {}
        # Streaming sessions, which the policy does not know; requests with a seed, on a CPU.
        self._sessions: set[str] = set()
        self._seeded: set[str] = set()
        # Calls whose KV or grammar vLLM waits for, or whose tokens are still on the way.
        self._blocked: set[str] = set()

    def _fitting(self, config: PolicyConfig) -> PolicyConfig:
        """Settings without what this engine cannot do."""
        if isinstance(self, AsyncScheduler):
            # Steps overlap there: an empty one would leave the device without work.
            config = config.but(hold_s=0.0)
        if self._uncapped is not None:
            config = config.but(
                constraint=Constraint.OFF, handover=False, prefill_cap=None, grace_s=0.0, hold_s=0.0
            )
        if (
            self._uncapped is not None
            or self._unmovable is not None
            or self.policy is SchedulingPolicy.PRIORITY
        ):
            # vLLM's own order stands: the client's priorities; or it looks at every waiting
            # request in each step, for the parts that keep our hands off.
            config = config.but(rule=Rule.FCFS, admission=False, two_phase=False)
        return config

    @property
    def _unpaused(self) -> bool:
        return bool(self._pause_state == PauseState.UNPAUSED)

    def _must_be_whole(self, request: Any, tokens: int) -> bool:
        """Whether the ``tokens`` left of a request must be computed in one step.

        vLLM's CPU worker draws a token in every chunk of a prompt and turns a seeded generator
        back afterwards, which torch cannot do on a CPU: the engine ends, for everybody.
        """
        return request.request_id in self._seeded and tokens <= self._whole_limit

    def _size_up(self, request: Any, view: RequestView) -> None:
        """A call waits, anew or again: whether it can start at all, and in pieces."""
        view.whole = self._must_be_whole(request, view.pending)
        view.blocked = self._is_blocked(request)
        if view.blocked:
            self._blocked.add(view.id)

    def _is_blocked(self, request: Any) -> bool:
        # Tokens of a preempted call that are still on the way would be sampled a second time.
        blocked = self._is_blocked_waiting_status(request.status)
        return bool(blocked or request.num_stale_output_tokens > 0)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    @property
    def _snapshot(self) -> Snapshot:
        """What the plan of the present step was made from."""
        snapshot = self._controller.snapshot
        assert snapshot is not None, "no step was planned yet"
        return snapshot

    @property
    def _hit_rate(self) -> float:
        """Share of early tokens that were of use lately."""
        snapshot = self._controller.snapshot
        return 1.0 if snapshot is None else snapshot.signals.hit_rate
