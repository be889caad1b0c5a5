"""vLLM's scheduler with open prompts.

An open prompt is a prompt that is prefilled before its call exists: open -> append* -> adopt or
release. It holds KV, never samples, has no run slot between steps and ranks below every real
request. Control messages are described in ``vllm_messages``; docs/open-prompts.md tells how the
parts work together.

``schedule()`` is never copied. A step is:

    plan            ask the policy, from a view of the queues
    queue           put the open prompts that may run at the tail of ``waiting``
    super()         vLLM's own step, with a token budget and caps that the plan gave
    park            take the open prompts out of the queues again, and let the workers forget
                    them; their KV stays
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vllm.sampling_params import SamplingType
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from grape_lc.engine import vllm_messages as messages
from grape_lc.engine.vllm_adoption import fit, why_not_adopt, why_not_open
from grape_lc.engine.vllm_hooks import check_hooks
from grape_lc.engine.vllm_kv import KVLedger, why_not_capped, why_not_movable
from grape_lc.engine.vllm_open_prompts import OpenPrompt, OpenTable
from grape_lc.engine.vllm_utilities import install_utilities
from grape_lc.scheduler.followers import Followers
from grape_lc.scheduler.policy import choose_drop, in_grace, plan_step
from grape_lc.scheduler.types import Grant, Limit, PolicyConfig, PrefillView, StepPlan, StepView

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _Base
else:
    _Base = object

logger = logging.getLogger(__name__)

# How long an empty step of a hold takes.
_HOLD_SLICE_S = 0.0003
_STEP_WEIGHT = 0.1  # of the newest step in the running mean of their duration

# Above any priority that a client sets: with vLLM's priority policy, open prompts come last.
_LAST_PRIORITY = 1 << 62

# The defaults of PolicyConfig fit a CPU, where a token of prefill takes about 0.6 ms. On an
# accelerator a step takes hundreds of them at no cost, and a cap would cost throughput.
_ACCELERATOR_SETTINGS: dict[str, Any] = {
    "chunk": 64,
    "prefill_cap": None,
    "open_cap": 1024,
    "adopted_first": 2048,
    "grace_tokens": 256,
    "hold_s": 0.0,
}

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


class OpenPromptMixin(_Base):
    """Open prompts on top of a vLLM scheduler class; put it in front of that class.

    Settings are read from ``vllm_config.additional_config["grape"]`` (see ``PolicyConfig``); a
    bad one raises ValueError. If vLLM lacks a part that this needs, the scheduler is vLLM's own
    and says so once in the log and in ``grape_stats()``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.running: list[Any]
        self.max_num_scheduled_tokens: int
        self.prefill_capacity_bound: bool
        extra = self.vllm_config.additional_config
        settings = extra.get("grape", {}) if isinstance(extra, dict) else {}
        self._on_cpu = self.vllm_config.device_config.device_type == "cpu"
        defaults = {} if self._on_cpu else _ACCELERATOR_SETTINGS
        self._config = PolicyConfig.from_mapping({**defaults, **settings})
        self.grape_counters: Counter[str] = Counter(dict.fromkeys(COUNTERS, 0))
        self._off: str | None = None
        problems = check_hooks(self, super())
        if problems:
            self._off = "; ".join(problems)
            logger.warning("open prompts are off, this vLLM differs: %s", self._off)
            return
        self.grape_clock = time.monotonic
        # Why this engine keeps no open prompts although the hooks are there.
        self._unmovable = why_not_movable(self)
        if self._unmovable:
            logger.warning("open prompts are refused: %s", self._unmovable)
        if why_not_capped(self):
            self._config = dataclasses.replace(
                self._config, prefill_cap=None, grace_s=0.0, hold_s=0.0
            )
        if isinstance(self, AsyncScheduler):
            # Steps overlap there: an empty one would leave the device without work.
            self._config = dataclasses.replace(self._config, hold_s=0.0)
        self._ledger = KVLedger(self.kv_cache_manager)
        self._opens = OpenTable(self._ledger, self.max_model_len - 1, self.num_prefill_lookahead)
        self._max_tokens: int = self.max_num_scheduled_tokens
        # Longer prompts than this vLLM cuts by itself.
        threshold = self.scheduler_config.long_prefill_token_threshold
        self._whole_limit = min(self._max_tokens, threshold or self._max_tokens)
        self._plan: StepPlan | None = None
        self._caps: dict[str, int] = {}
        self._pressed = False
        # Real requests that took over an open prompt, and what the client is told about it.
        self._outcomes: dict[str, dict[str, Any]] = {}
        self._adopted: set[str] = set()
        self._feeders: dict[str, str] = {}  # running calls that feed others -> their program
        late = 4 * self._config.hold_s
        self._followers = Followers(max(self._config.grace_s, self._config.hold_s), late)
        self._switched = False
        self._step_s = 0.0
        self._step_began: float | None = None
        self._stock_allocate = self.kv_cache_manager.allocate_slots
        self.kv_cache_manager.allocate_slots = self._allocate

    # ------------------------------------------------------------------ messages

    def add_request(self, request: Any) -> None:
        """Take a real request, or carry out a control message."""
        sampling = request.sampling_params
        extra = sampling.extra_args if sampling is not None else None
        if not extra or "grape" not in extra:
            super().add_request(request)
            return
        message = messages.parse(extra["grape"])
        if self._off is not None:
            if isinstance(message, messages.Open | messages.Append):
                self._swallow(request, "refused")
            else:
                super().add_request(request)
            return
        if isinstance(message, messages.Open):
            self._open(request, message)
        elif isinstance(message, messages.Append):
            self._append(request, message)
        elif isinstance(message, messages.Call):
            self._call(request, message)
        else:
            logger.warning("request %s: malformed message: %s", request.request_id, message.why)
            if message.control:
                self._swallow(request, "malformed")
            else:
                self.grape_counters["malformed"] += 1
                super().add_request(request)

    def _swallow(self, request: Any, counter: str) -> None:
        """End a control message that has no further life here."""
        self.grape_counters[counter] += 1
        self._forget(request)

    def _forget(self, request: Any) -> None:
        # With several engines the client keeps a routing entry for each id until told it ended.
        if self.finished_req_ids_dict is not None:
            self.finished_req_ids_dict[request.client_index].add(request.request_id)

    def _open(self, request: Any, message: messages.Open) -> None:
        key = request.request_id
        if key in self.requests:
            # Not swallowed: the id lives on, so the client's routing entry must too.
            logger.warning("open prompt %s: the id is in use", key)
            self.grape_counters["refused"] += 1
            return
        refusal = self._unmovable or why_not_open(request)
        if refusal is None and self._opens.how_ended(key) is not None:
            refusal = "the id was used before"
        if refusal is not None:
            self._opens.remember(key, f"refused:{refusal}")
            self._swallow(request, "refused")
            return
        self.requests[key] = request
        self._opens.open(request, message.hops, self.grape_clock())
        self.grape_counters["opened"] += 1

    def _append(self, request: Any, message: messages.Append) -> None:
        prompt = self._opens.get(message.key)
        if prompt is None:
            how = self._opens.how_ended(message.key) or ""
            self._swallow(request, "refused" if how.startswith("refused") else "unknown")
            return
        self._opens.append(prompt, list(request.prompt_token_ids or ()), self.grape_clock())
        if message.hops is not None:
            prompt.hops = message.hops
        prompt.urgent = message.final
        self.grape_counters["appended"] += 1
        self._forget(request)

    def _call(self, request: Any, message: messages.Call) -> None:
        request_id = request.request_id
        if request_id not in self.requests:
            if message.program is not None:
                # It may have waited for the end of a step to be read.
                waited = max(time.time() - request.arrival_time, 0.0)
                self._followers.arrived(message.program, self.grape_clock() - waited)
                if message.feeds:
                    self._feeders[request_id] = message.program
            if message.adopt is not None:
                outcome, tokens = self._adopt(request, message.adopt)
                self.grape_counters[outcome.partition(":")[0]] += 1
                self._outcomes[request_id] = {"outcome": outcome, "tokens": tokens}
        super().add_request(request)

    # ------------------------------------------------------------------ adoption

    def _adopt(self, request: Any, key: str) -> tuple[str, int]:
        """Hand an open prompt's KV to a real request that is in no queue yet.

        Returns the outcome and the tokens handed over; the open prompt has ended after this.
        """
        prompt = self._opens.get(key)
        if prompt is None:
            how = self._opens.how_ended(key)
            return (how if how and how.startswith("refused") else "unknown"), 0
        opened = prompt.request
        refusal = why_not_adopt(request, opened) if self._unpaused else "the engine is paused"
        if refusal is not None:
            outcome, tokens = f"refused:{refusal}", 0
        else:
            outcome, tokens = fit(
                request.prompt_token_ids,
                opened.prompt_token_ids,
                opened.num_computed_tokens,
                self._ledger.hashed_tokens(key),
                self._ledger.block_size,
            )
        if tokens > 0:
            request.num_computed_tokens = tokens
            if request.prefill_stats is not None:
                request.prefill_stats.set(request.num_prompt_tokens, tokens, 0)
            self._ledger.move(key, request.request_id, tokens)
            self._adopted.add(request.request_id)
            self.grape_counters["adopted_tokens"] += tokens
        self._end([key], "refused:taken by another call")
        return outcome, tokens

    # ------------------------------------------------------------------ end of requests

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, *args: Any, **kwargs: Any
    ) -> list[Any]:
        """End requests from outside; an abort of an open key is its release."""
        if self._off is None:
            if request_ids is None:
                request_ids = list(self.requests)
            elif not isinstance(request_ids, str):
                request_ids = list(request_ids)
            for request_id in [request_ids] if isinstance(request_ids, str) else request_ids:
                if self._opens.end(request_id, "released") is not None:
                    self.grape_counters["released"] += 1
                self._finished(request_id)
        ended: list[Any] = super().finish_requests(request_ids, *args, **kwargs)
        return ended

    def _end(self, keys: list[str], how: str) -> None:
        """End open prompts for a reason of our own."""
        for key in keys:
            self._opens.end(key, how)
        super().finish_requests(keys, RequestStatus.FINISHED_ABORTED)

    def _finished(self, request_id: str) -> None:
        """A real request ended (or never was)."""
        self._outcomes.pop(request_id, None)
        self._adopted.discard(request_id)
        program = self._feeders.pop(request_id, None)
        if program is not None:
            # By an abort too: that is how the front end ends a call at a stop string.
            self._followers.ended(program, self.grape_clock())

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, Any]:
        """Process a step's output; outputs of adopting calls also say what was adopted."""
        outputs: dict[int, Any] = super().update_from_output(*args, **kwargs)
        if self._off is not None or not (self._outcomes or self._feeders or self._adopted):
            return outputs
        for engine_outputs in outputs.values():
            for output in engine_outputs.outputs:
                outcome = self._outcomes.get(output.request_id)
                if outcome is not None:
                    # On every output: a slow reader sees several merged into the last one.
                    params = output.kv_transfer_params or {}
                    output.kv_transfer_params = {**params, "grape": dict(outcome)}
                if output.finish_reason is not None:
                    self._finished(output.request_id)
        return outputs

    def grape_release_all(self) -> int:
        """Release every open prompt; returns how many there were."""
        if self._off is not None:
            return 0
        keys = self._opens.keys()
        self.finish_requests(keys, RequestStatus.FINISHED_ABORTED)
        return len(keys)

    def shutdown(self) -> None:
        """End; open prompts do not hold it up."""
        self.grape_release_all()
        super().shutdown()

    # ------------------------------------------------------------------ steps

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step of vLLM, with open prompts in what real requests leave."""
        if self._off is not None:
            return super().schedule(*args, **kwargs)
        throttled = args[0] if args else kwargs.get("throttle_prefills", False)
        now = self.grape_clock()
        if self._step_began is not None:
            self._step_s += _STEP_WEIGHT * (now - self._step_began - self._step_s)
        self._expire(now)
        view = self._view(now)
        plan = plan_step(view, self._config)
        self._plan = plan
        self._pressed = plan.pressed
        self._caps = dict(plan.caps)
        self._switched = plan.limit is Limit.SWITCH
        if plan.limit is Limit.HOLD:
            # An empty step: the loop looks for new requests between steps.
            time.sleep(_HOLD_SLICE_S)
        grants = () if throttled or not self._unpaused else plan.grants
        queued = self._queue(grants)
        self.max_num_scheduled_tokens = plan.budget
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = self._max_tokens
            self._caps = {}
        self._step_began = now if output.num_scheduled_tokens else None
        ran = self._park(queued, output)
        if len(ran) == len(output.num_scheduled_tokens):
            # vLLM refused them though nothing real ran: not again until the pool changes.
            free = self._ledger.free_blocks
            for prompt in queued:
                if prompt not in ran:
                    prompt.stalled_at = free
        self.grape_counters["held" if plan.limit is Limit.HOLD else "steps"] += 1
        self.grape_counters["steps_with_open"] += bool(ran)
        if self._config.validate:
            self.grape_validate()
        return output

    @property
    def _unpaused(self) -> bool:
        return bool(self._pause_state == PauseState.UNPAUSED)

    def _expire(self, now: float) -> None:
        expired = self._opens.expired(now, self._config.ttl_s)
        if expired:
            self._end(expired, "refused:expired")
            self.grape_counters["expired"] += len(expired)

    def _view(self, now: float) -> StepView:
        """The queues as the policy sees them."""
        decodes = decode_tokens = 0
        prefills = []
        for request in self.running:
            tokens = (
                request.num_tokens_with_spec
                + request.num_output_placeholders
                - request.num_computed_tokens
            )
            if request.is_prefill_chunk:
                prefills.append(
                    PrefillView(request.request_id, tokens, request.request_id in self._adopted)
                )
            else:
                decodes += 1
                decode_tokens += max(tokens, 0)
        adopted_waiting = []
        waiting_tokens = 0
        for queue in (self.kv_holding_waiting, self.waiting):
            for request in _members(queue):
                tokens = request.num_tokens - request.num_computed_tokens
                if (
                    request.request_id in self._adopted
                    and request.num_computed_tokens > 0
                    and not self._is_blocked_waiting_status(request.status)
                ):
                    adopted_waiting.append(tokens)
                else:
                    waiting_tokens += tokens
                    if waiting_tokens >= self._max_tokens:
                        # More than a step: the rest of a long queue changes nothing.
                        break
        opens = self._opens.views()
        waiting = len(self.kv_holding_waiting) + len(self.waiting) - len(adopted_waiting)
        rows = min(self.max_num_running_reqs, self.max_num_active_reqs)
        # A streaming session that waits for its client keeps its row.
        rows -= len(self.running) + self.num_waiting_for_streaming_input
        return StepView(
            max_tokens=self._max_tokens,
            decodes=decodes,
            decode_tokens=decode_tokens,
            prefills=tuple(prefills),
            adopted_waiting=tuple(adopted_waiting),
            waiting=waiting,
            waiting_tokens=waiting_tokens,
            least_call_tokens=1 + self.num_spec_tokens,
            whole_tokens=self._whole_tokens(),
            free_rows=max(0, rows),
            free_blocks=self._ledger.free_blocks,
            total_blocks=self._ledger.total_blocks,
            block_size=self._ledger.block_size,
            groups=self._ledger.groups,
            needed_blocks=self._needed_blocks() if opens or self._pressed else 0,
            pressed=self._pressed,
            since_feeder=self._followers.waiting_since(now),
            follower_s=self._followers.expected,
            step_s=self._step_s,
            switched=self._switched,
            opens=opens,
        )

    def _must_be_whole(self, request: Any, tokens: int) -> bool:
        """Whether the ``tokens`` left of a request must be computed in one step.

        vLLM's CPU worker draws a token in every chunk of a prompt and turns a seeded generator
        back afterwards, which torch cannot do on a CPU: the engine ends, for everybody.
        """
        sampling = request.sampling_params
        seeded = sampling is not None and sampling.sampling_type == SamplingType.RANDOM_SEED
        return self._on_cpu and seeded and tokens <= self._whole_limit

    def _whole_tokens(self) -> int:
        """Tokens of the call whose turn it is to start, if it must be computed in one step."""
        queue = _members(self.kv_holding_waiting or self.waiting)
        request = next(iter(queue), None)
        if request is None:
            return 0
        tokens = request.num_tokens - request.num_computed_tokens
        return tokens if self._must_be_whole(request, tokens) else 0

    def _needed_blocks(self) -> int:
        """Blocks that real requests are about to need."""
        needed = 0
        free = self._ledger.free_blocks
        for queue in (self.running, self.kv_holding_waiting, self.waiting):
            for request in _members(queue):
                if needed > free:
                    return needed
                left = request.max_tokens - request.num_output_tokens
                tokens = request.num_tokens + max(1, min(left, self._config.horizon))
                tokens = min(tokens, self.max_model_len)
                held = self._ledger.held(request.request_id)
                needed += max(0, self._ledger.blocks_for(tokens) - held)
        return needed

    def _queue(self, grants: Iterable[Grant]) -> list[OpenPrompt]:
        """Put open prompts at the tail of ``waiting``; returns those."""
        queued: list[OpenPrompt] = []
        for grant in grants:
            prompt = self._opens.get(grant.key)
            if prompt is None:
                continue
            request = prompt.request
            if request.num_computed_tokens == 0:
                reserve = self._plan.reserve if self._plan is not None else 0
                limit = self._opens.allowed(prompt)
                request.num_computed_tokens = self._ledger.claim(request, limit, reserve)
            if request.num_computed_tokens >= self._opens.allowed(prompt):
                continue
            self._caps[grant.key] = grant.tokens
            request.priority = _LAST_PRIORITY + len(queued)
            self.waiting.add_request(request)
            queued.append(prompt)
        return queued

    def _park(self, queued: list[OpenPrompt], output: Any) -> list[OpenPrompt]:
        """Take open prompts out of all queues again; returns those that ran."""
        if not queued:
            return []
        requests = {prompt.request for prompt in queued}
        self.running = [request for request in self.running if request not in requests]
        self.waiting.remove_requests(requests)
        self.kv_holding_waiting.remove_requests(requests)
        self.deferred_waiting -= requests
        ran = []
        for prompt in queued:
            request = prompt.request
            request.status = RequestStatus.WAITING
            request.events.clear()
            self._inflight_prefills.discard(request)
            tokens = output.num_scheduled_tokens.get(request.request_id)
            if tokens is not None:
                ran.append(prompt)
                prompt.stalled_at = None
                self.grape_counters["open_tokens"] += tokens
                # The workers forget it in the next step, and then see it as a new request with
                # computed tokens: so it may grow, wait, or be adopted meanwhile.
                self.finished_req_ids.add(request.request_id)
        if self.prefill_capacity_bound:
            # vLLM counted the open prompts that were left over as waiting requests.
            waiting = len(self.waiting) + len(self.kv_holding_waiting)
            self.prefill_capacity_bound = waiting > len(self.deferred_waiting)
        return ran

    def _reserve_prefill_lookahead(
        self, request: Any, num_computed_tokens: int, *args: Any, **kwargs: Any
    ) -> int:
        tokens: int = super()._reserve_prefill_lookahead(
            request, num_computed_tokens, *args, **kwargs
        )
        if self._off is not None:
            return tokens
        left = request.num_tokens - num_computed_tokens
        if tokens < left and self._must_be_whole(request, left):
            return 0
        cap = self._caps.get(request.request_id)
        if cap is not None:
            tokens = min(tokens, cap)
        prompt = self._opens.get(request.request_id)
        if prompt is not None:
            tokens = min(tokens, self._opens.allowed(prompt) - num_computed_tokens)
        return max(tokens, 0)

    def get_num_unfinished_requests(self) -> int:
        """Requests that need steps; open prompts count only when nothing else is there.

        One that the policy would refuse does not count: the engine's loop would spin on it.
        """
        count: int = super().get_num_unfinished_requests()
        if count or self._off is not None or not self._opens or not self._unpaused:
            return count
        view = self._view(self.grape_clock())
        if in_grace(view, self._config):
            # Keep the loop awake, or nothing would wake it when the time is over.
            view = dataclasses.replace(view, since_feeder=None)
        return len(plan_step(view, self._config).grants)

    # ------------------------------------------------------------------ KV

    def _allocate(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's ``allocate_slots``; real requests get what open prompts hold."""
        if request.request_id in self._opens:
            return self._allocate_open(request, *args, **kwargs)
        blocks = self._stock_allocate(request, *args, **kwargs)
        while blocks is None and self._make_room(request, *args, **kwargs):
            blocks = self._stock_allocate(request, *args, **kwargs)
        return blocks

    def _allocate_open(self, request: Any, num_new_tokens: int, *args: Any, **kwargs: Any) -> Any:
        """Blocks for an open prompt, unless the reserve would suffer."""
        cached = kwargs.get("num_new_computed_tokens", 0)
        cost = self._ledger.cost(
            request.request_id,
            request.num_computed_tokens + cached + num_new_tokens,
            kwargs.get("new_computed_blocks"),
        )
        reserve = self._plan.reserve if self._plan is not None else 0
        if cost and self._ledger.free_blocks - cost < reserve:
            return None
        # The whole prompt need not fit: an open prompt may stay unfinished.
        kwargs["full_sequence_must_fit"] = False
        return self._stock_allocate(request, num_new_tokens, *args, **kwargs)

    def _make_room(self, request: Any, num_new_tokens: int, *_: Any, **kwargs: Any) -> bool:
        """Take KV from early work for a real request; whether anything was freed.

        A running request, whose failure would preempt a running one, gets everything bit by
        bit. One that waits gets it if that is enough to start it, or if nothing runs that could
        ever free more.
        """
        # Open prompts come last in a step: while a real request asks, none has joined `running`.
        opens = self._opens.views()
        if request.status != RequestStatus.RUNNING and self.running:
            tokens = request.num_computed_tokens + num_new_tokens
            tokens += kwargs.get("num_new_computed_tokens", 0)
            if kwargs.get("full_sequence_must_fit"):
                tokens = max(tokens, request.num_tokens)
            cached = kwargs.get("new_computed_blocks")
            cost = self._ledger.cost(request.request_id, tokens, cached)
            cost += getattr(self.kv_cache_manager, "watermark_blocks", 0)
            gain = self._ledger.freed_by([view.key for view in opens], cached)
            if self._ledger.free_blocks + gain < cost:
                return False
        victim = choose_drop(opens)
        if victim is not None:
            self._drop(self._opens[victim.key])
            self._pressed = True
            return True
        if request.status == RequestStatus.RUNNING or not self.running:
            return self._strip_last(request)
        return False

    def _drop(self, prompt: OpenPrompt) -> None:
        """Give up the KV of an open prompt; it stays open."""
        request = prompt.request
        self._free_request_blocks(request)
        self.grape_counters["dropped"] += 1
        self.grape_counters["dropped_tokens"] += request.num_computed_tokens
        request.num_computed_tokens = 0
        # It may be queued for this very step: it must not take back what it just gave.
        self._caps[request.request_id] = 0

    def _strip_last(self, spared: Any) -> bool:
        """Take the KV of the adopted call that waits at the end of its queue.

        Two such calls could otherwise hold each other's blocks for ever.
        """
        waiting = [
            request
            for request in self.kv_holding_waiting
            if request is not spared
            and request.request_id in self._adopted
            and request.num_computed_tokens > 0
        ]
        if not waiting:
            return False
        self._strip(waiting[-1])
        return True

    def _strip(self, request: Any) -> None:
        self.kv_holding_waiting.remove_requests([request])
        self.deferred_waiting.discard(request)
        self._free_request_blocks(request)
        request.num_computed_tokens = 0
        if self._is_blocked_waiting_status(request.status):
            self.deferred_waiting.add(request)
        self.waiting.prepend_request(request)
        self._lost(request.request_id)
        self.grape_counters["stripped"] += 1

    def _lost(self, request_id: str) -> None:
        """What a call adopted is gone before its first token."""
        if request_id in self._adopted:
            self._adopted.discard(request_id)
            outcome = self._outcomes.get(request_id)
            if outcome is not None:
                outcome.update(outcome="cold", tokens=0)

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if self._off is None:
            self.grape_counters["preemptions"] += 1
            if request.num_output_tokens == 0:
                self._lost(request.request_id)
        super()._preempt_request(request, *args, **kwargs)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        """Forget all KV that no running request needs, that of open prompts included."""
        if self._off is None:
            for prompt in self._opens:
                if prompt.request.num_computed_tokens > 0:
                    self._drop(prompt)
            self._caps = {}
            if args[0] if args else kwargs.get("reset_running_requests", False):
                while self._strip_last(None):
                    pass
        done: bool = super().reset_prefix_cache(*args, **kwargs)
        return done

    # ------------------------------------------------------------------ insight

    def grape_stats(self) -> dict[str, Any]:
        """Counters and present sizes; plain values that travel between processes."""
        if self._off is not None:
            return {"disabled": self._off, **self.grape_counters}
        self._expire(self.grape_clock())
        stats: dict[str, Any] = {
            "free_blocks": self._ledger.free_blocks,
            "total_blocks": self._ledger.total_blocks,
            "open_prompts": len(self._opens),
            "requests": len(self.requests),
            "running": len(self.running),
            "waiting": len(self.waiting) + len(self.kv_holding_waiting),
            "tracked": len(self._ledger.tracked),
            "pressed": self._pressed,
            "follower_ms": 1e3 * self._followers.expected,
            **self.grape_counters,
        }
        if self._unmovable is not None:
            stats["disabled"] = self._unmovable
        return stats

    def grape_validate(self) -> None:
        """Raise RuntimeError naming every broken invariant; for use between steps."""
        if self._off is not None:
            return
        found = self._opens.problems()
        queued = {
            request.request_id
            for queue in (
                self.running,
                self.waiting,
                self.kv_holding_waiting,
                self.deferred_waiting,
                self._inflight_prefills,
            )
            for request in queue
        }
        for prompt in self._opens:
            key = prompt.request.request_id
            if key in queued:
                found.append(f"open prompt {key} is in a queue between steps")
            if self.requests.get(key) is not prompt.request:
                found.append(f"open prompt {key} is not among the requests")
        orphans = sorted(self._ledger.tracked - set(self.requests))
        if orphans:
            found.append(f"KV of requests that are gone: {orphans}")
        ghosts = sorted(
            (self._adopted | set(self._outcomes) | set(self._feeders)) - set(self.requests)
        )
        if ghosts:
            found.append(f"remembered requests that are gone: {ghosts}")
        if found:
            raise RuntimeError("open prompts: " + "; ".join(found))


def _members(queue: Any) -> Iterable[Any]:
    # vLLM's priority queue sorts a copy of itself to be read in order, which is not needed here.
    return getattr(queue, "_heap", queue)  # type: ignore[no-any-return]


class GrapeScheduler(OpenPromptMixin, Scheduler):
    """vLLM's synchronous scheduler with open prompts."""


class GrapeAsyncScheduler(OpenPromptMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler with open prompts."""


install_utilities()
