"""One step: plan, stage, vLLM's own ``schedule()``, park.

``schedule()`` is never copied:

    plan            ask the policy, from views of all requests
    stage           queue what the plan starts, and behind it the open prompts that may run
    super()         vLLM's own step, with a token budget and caps that the plan gave
    park            take the open prompts out of the queues again, and let the workers forget
                    them; their KV stays
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from vllm.v1.request import RequestStatus

from grape_lc.engine.vllm_insight import InsightMixin
from grape_lc.engine.vllm_open_prompts import OpenPrompt
from grape_lc.engine.vllm_staging import Staging
from grape_lc.engine.vllm_steplog import load_of
from grape_lc.scheduler.batching import decode_load
from grape_lc.scheduler.controller import Machine
from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.types import Item, Limit, Plan, Stage

logger = logging.getLogger(__name__)

# How long an empty step of a hold takes.
_HOLD_SLICE_S = 0.0003

# Above any priority that a client sets: with vLLM's priority policy, open prompts come last.
_LAST_PRIORITY = 1 << 62


class StepMixin(InsightMixin):
    """Carries out plans."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Tokens by request of the step before.
        self._ran: Mapping[str, int] = {}

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step of vLLM as the policy plans it, with open prompts behind real requests."""
        if self._off is not None:
            return super().schedule(*args, **kwargs)
        throttled = bool(args[0] if args else kwargs.get("throttle_prefills", False))
        now = self.grape_clock()
        self._expire(now)
        plan = self._decide(now)
        record = self._trace.planned(self._snapshot, plan) if self._trace is not None else None
        if plan.limit is Limit.HOLD:
            # An empty step: the loop looks for new requests between steps.
            time.sleep(_HOLD_SLICE_S)
        running = len(self.running)
        self._stage(plan, early=not throttled and self._unpaused)
        self.max_num_scheduled_tokens = plan.budget
        try:
            output = super().schedule(*args, **kwargs)
        finally:
            self.max_num_scheduled_tokens = self._max_tokens
            new = self._unstage(running, recount=not throttled)
        ran = self._park(output, now)
        for request in new:
            self._started(request)
        load = self._begin(output, [*new, *(prompt.request for prompt in ran)])
        if record is not None and self._trace is not None:
            self._trace.began(record, plan, output.num_scheduled_tokens, load)
        self._count(plan, output.num_scheduled_tokens, early=bool(ran))
        if self._config.validate:
            self.grape_validate()
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, Any]:
        """A step came back: learn how long it took, then process its output."""
        step = args[0] if args else kwargs["scheduler_output"]
        if self._off is None and step.num_scheduled_tokens:
            now = self._views.updated = self.grape_clock()
            measured = self._step_log.end(now)
            if measured is not None:
                self._learn(*measured)
        return super().update_from_output(*args, **kwargs)

    # ------------------------------------------------------------------ plan

    def _decide(self, now: float) -> Plan:
        plain = not (self._overlaps or self.num_spec_tokens)
        views = self._views.running(self.running, plain=plain)
        free = self._ledger.free_blocks
        if self._controller.short(free, len(views)):
            self._views.hold(views, self._ran, now)
        for request_id in list(self._blocked):
            self._check_blocked(request_id)
        return self._controller.decide(now, self._machine(free), views)

    def _machine(self, free: int) -> Machine:
        self._opens.notice(free)
        rows = min(self.max_num_running_reqs, self.max_num_active_reqs)
        # A streaming session that waits for its client keeps its row.
        rows -= len(self.running) + self.num_waiting_for_streaming_input
        return Machine(
            max_tokens=self._max_tokens,
            free_rows=max(0, rows),
            free=free,
            total=self._ledger.total_blocks,
            least_call_tokens=1 + self.num_spec_tokens,
        )

    def _check_blocked(self, request_id: str) -> None:
        request, view = self.requests[request_id], self._views[request_id]
        if request.num_tokens != view.tokens:
            # Tokens that were on their way when it was preempted.
            self._controller.call_grew(view, request.num_tokens)
            view.output = request.num_output_tokens
        view.blocked = self._is_blocked(request)
        if not view.blocked:
            self._blocked.discard(request_id)

    def get_num_unfinished_requests(self) -> int:
        """Requests that need steps; open prompts count only when nothing else is there.

        One that the policy would refuse does not count: the engine's loop would spin on it.
        """
        count: int = super().get_num_unfinished_requests()
        if count or self._off is not None or not self._opens or not self._unpaused:
            return count
        machine = self._machine(self._ledger.free_blocks)
        return self._controller.idle_work(self.grape_clock(), machine)

    # ------------------------------------------------------------------ stage

    def _stage(self, plan: Plan, *, early: bool) -> None:
        """Set the step up as planned."""
        self._arrange(plan)
        self._caps = {}
        if self._uncapped is None:
            for items in (plan.prefills, plan.starts or ()):
                for item in items:
                    self._caps[item.id] = item.tokens
        if plan.starts is not None:
            named = [self.requests[item.id] for item in plan.starts]
            if self._sessions:
                # The policy does not know them: vLLM's order stands.
                waiting = (*self.kv_holding_waiting, *self.waiting)
                named += [request for request in waiting if request.resumable]
            self._staging = Staging(self, named)
        self._queued = {}
        if early:
            self._queue(plan.opens)

    def _queue(self, items: Iterable[Item]) -> None:
        """Put open prompts at the tail of ``waiting``."""
        for item in items:
            prompt = self._opens.get(item.id)
            if prompt is None:
                continue
            request = prompt.request
            limit = self._opens.allowed(prompt)
            if request.num_computed_tokens == 0:
                request.num_computed_tokens = self._ledger.claim(request, limit, self._reserve)
                self._opens.look(prompt)
            if request.num_computed_tokens >= limit:
                continue
            self._caps[item.id] = item.tokens
            request.priority = _LAST_PRIORITY + len(self._queued)
            self.waiting.add_request(request)
            self._queued[item.id] = prompt

    def _unstage(self, running: int, *, recount: bool) -> list[Any]:
        """Take open prompts out of all queues, put the real ones back; returns who started."""
        self._caps = {}
        # Whoever starts joins the tail; if somebody was preempted, nobody started.
        new = self.running[running:]
        # Of the requests that are left, vLLM counted only those that were staged.
        recount = recount and self._staging is not None
        if self._queued:
            opens = {prompt.request for prompt in self._queued.values()}
            new = [request for request in new if request not in opens]
            self.running[running:] = new
            self.waiting.remove_requests(opens)
            self.kv_holding_waiting.remove_requests(opens)
            self.deferred_waiting -= opens
            # And it counted open prompts that were left over.
            recount |= self.prefill_capacity_bound
        if self._staging is not None:
            self._staging.leave()
            self._staging = None
        if recount:
            waiting = len(self.waiting) + len(self.kv_holding_waiting)
            self.prefill_capacity_bound = waiting > len(self.deferred_waiting)
        return new

    def _park(self, output: Any, now: float) -> list[OpenPrompt]:
        """Let the workers forget open prompts; returns those that ran."""
        ran = []
        for prompt in self._queued.values():
            request = prompt.request
            request.status = RequestStatus.WAITING
            request.events.clear()
            self._inflight_prefills.discard(request)
            tokens = output.num_scheduled_tokens.get(request.request_id)
            if tokens is not None:
                ran.append(prompt)
                self._opens.ran(prompt, now)
                self.grape_counters["open_tokens"] += tokens
                # The workers forget it in the next step, and then see it as a new request with
                # computed tokens: so it may grow, wait, or be adopted meanwhile.
                self.finished_req_ids.add(request.request_id)
        if len(ran) == len(output.num_scheduled_tokens):
            # vLLM refused them though nothing real ran: not again until the pool changes.
            for prompt in self._queued.values():
                if prompt not in ran:
                    self._opens.stall(prompt)
        self._queued = {}
        return ran

    def _reserve_prefill_lookahead(
        self, request: Any, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        # For each request in each step. With a lookahead of one vLLM's own changes nothing.
        tokens: int = num_new_tokens
        if self.num_prefill_lookahead > 1 or self._off is not None:
            tokens = super()._reserve_prefill_lookahead(
                request, num_computed_tokens, num_new_tokens
            )
            if self._off is not None:
                return tokens
        request_id = request.request_id
        cap = self._caps.get(request_id)
        if cap is None and not self._seeded:
            return tokens
        left = request.num_tokens - num_computed_tokens
        most = tokens
        if cap is not None and tokens <= left:
            # (A row padded with drafts is taken as it is or not at all.)
            most = min(tokens, cap)
        prompt = self._queued.get(request_id)
        if prompt is not None:
            return max(0, min(most, self._opens.allowed(prompt) - num_computed_tokens))
        if most < left and self._must_be_whole(request, left):
            return tokens if tokens >= left else 0
        return most

    # ------------------------------------------------------------------ what came of it

    def _started(self, request: Any) -> None:
        """A waiting call runs."""
        view = self._views[request.request_id]
        if view.blocked:
            view.blocked = False
            self._blocked.discard(view.id)
        if not request.resumable:
            stage = Stage.PREFILL if request.is_prefill_chunk else Stage.DECODE
            self._controller.call_started(view, stage)

    def _begin(self, output: Any, new: list[Any]) -> StepLoad | None:
        """The step is on its way; its load, None if it computes nothing."""
        ran = self._ran = output.num_scheduled_tokens
        if not ran:
            return None
        load = self._load(output, new)
        self._step_log.begin(load, self.grape_clock())
        views = self._views.by_id
        rows = ((views.get(request_id), tokens) for request_id, tokens in ran.items())
        self._controller.ran(output.total_num_scheduled_tokens, rows)
        return load

    def _load(self, output: Any, new: list[Any]) -> StepLoad:
        """Load of a step: what its decodes were counted as, and what runs besides."""
        snapshot, ran = self._snapshot, output.num_scheduled_tokens
        load = decode_load(snapshot.decodes)
        for view in snapshot.prefills:
            tokens = ran.get(view.id)
            if tokens:
                load = load.plus(tokens, view.computed)
        for request in new:
            tokens = ran[request.request_id]
            load = load.plus(tokens, request.num_computed_tokens - tokens)
        whole = load.rows == len(ran) and load.tokens == output.total_num_scheduled_tokens
        if whole and snapshot.decodes.tokens == snapshot.decodes.rows:
            return load
        # Drafts, or a decode that did not run: row by row.
        return load_of(output, self.requests)

    def _learn(self, load: StepLoad, seconds: float) -> None:
        """A step was measured."""
        profiled = self._costs.fitted
        self._controller.measured(load, seconds)
        if self._trace is not None:
            self._trace.measured(seconds)
        if profiled and not self._costs.fitted:
            logger.warning("grape_cost is given up, F is learned instead: %s", self._costs.reason)
