"""KV for real requests: who gives way before, and instead of, whom vLLM would preempt."""

from __future__ import annotations

from typing import Any

from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.request import RequestStatus

from grape_lc.engine.vllm_open_prompts import OpenPrompt
from grape_lc.engine.vllm_state import SchedulerState
from grape_lc.scheduler.preemption import choose
from grape_lc.scheduler.settings import Eviction
from grape_lc.scheduler.types import Plan


class RoomMixin(SchedulerState):
    """Stands between vLLM's scheduler and its KV manager."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._off is None:
            self._stock_allocate = self.kv_cache_manager.allocate_slots
            self.kv_cache_manager.allocate_slots = self._allocate
            # vLLM preempts the tail of `running`; by priority it chooses itself.
            self._picks = (
                self._config.eviction is not Eviction.TAIL
                and self.policy is not SchedulingPolicy.PRIORITY
            )

    # ------------------------------------------------------------------ blocks

    def _allocate(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """vLLM's ``allocate_slots``; real requests get what open prompts hold."""
        # For each request in each step.
        if self._queued and request.request_id in self._queued:
            return self._allocate_open(request, *args, **kwargs)
        blocks = self._stock_allocate(request, *args, **kwargs)
        if blocks is not None:
            return blocks
        while blocks is None and self._make_room(request, *args, **kwargs):
            blocks = self._stock_allocate(request, *args, **kwargs)
        if blocks is None and self._picks and request.status == RequestStatus.RUNNING:
            self._pick_victim(request)
        return blocks

    def _allocate_open(self, request: Any, num_new_tokens: int, *args: Any, **kwargs: Any) -> Any:
        """Blocks for an open prompt, unless the reserve would suffer."""
        cached = kwargs.get("num_new_computed_tokens", 0)
        cost = self._ledger.cost(
            request.request_id,
            request.num_computed_tokens + cached + num_new_tokens,
            kwargs.get("new_computed_blocks"),
        )
        if cost and self._ledger.free_blocks - cost < self._reserve:
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
        if request.status != RequestStatus.RUNNING and self.running:
            tokens = request.num_computed_tokens + num_new_tokens
            tokens += kwargs.get("num_new_computed_tokens", 0)
            if kwargs.get("full_sequence_must_fit"):
                tokens = max(tokens, request.num_tokens)
            cached = kwargs.get("new_computed_blocks")
            cost = self._ledger.cost(request.request_id, tokens, cached)
            cost += getattr(self.kv_cache_manager, "watermark_blocks", 0)
            gain = self._ledger.freed_by(self._opens.keys(), cached)
            if self._ledger.free_blocks + gain < cost:
                return False
        victim = self._next_drop()
        if victim is not None:
            self._drop(victim)
            return True
        if request.status == RequestStatus.RUNNING or not self.running:
            return self._strip_last(request)
        return False

    # ------------------------------------------------------------------ early work

    def _next_drop(self) -> OpenPrompt | None:
        """The open prompt that gives up its KV next: as planned, then by the policy's rule."""
        while self._victims:
            prompt = self._opens.get(self._victims.pop(0))
            if prompt is not None and prompt.view.held_blocks:
                return prompt
        chosen = choose(
            (prompt.view for prompt in self._opens),
            self._config,
            cost=self._costs.cost,
            use=self._hit_rate,
        )
        return None if chosen is None else self._opens[chosen.id]

    def _drop(self, prompt: OpenPrompt) -> None:
        """Give up the KV of an open prompt; it stays open."""
        request = prompt.request
        self._free_request_blocks(request)
        self._kv_counts.lost(request.request_id, request.num_computed_tokens)
        self.grape_counters["dropped"] += 1
        self.grape_counters["dropped_tokens"] += request.num_computed_tokens
        request.num_computed_tokens = 0
        self._opens.look(prompt)
        self._controller.dropped(prompt.view)
        # It may be queued for this very step: it must not take back what it just gave.
        self._caps[request.request_id] = 0

    def _strip_last(self, spared: Any) -> bool:
        """Take the KV of the adopted call that waits at the end of its queue.

        Two such calls could otherwise hold each other's blocks for ever.
        """
        queue = list(self.kv_holding_waiting)
        if self._staging is not None:
            queue += self._staging.held_out()
        waiting = [
            request
            for request in queue
            if request is not spared
            and request.num_computed_tokens > 0
            and request.request_id in self._views
            and self._views[request.request_id].adopted
        ]
        if not waiting:
            return False
        self._strip(waiting[-1])
        return True

    def _strip(self, request: Any) -> None:
        self.deferred_waiting.discard(request)
        self._free_request_blocks(request)
        self._kv_counts.lost(request.request_id, request.num_computed_tokens)
        request.num_computed_tokens = 0
        if self._is_blocked_waiting_status(request.status):
            self.deferred_waiting.add(request)
        if self._staging is not None:
            self._staging.strip(request)
        else:
            self.kv_holding_waiting.remove_requests([request])
            self.waiting.prepend_request(request)
        self._lost(request)
        self.grape_counters["stripped"] += 1

    def _lost(self, request: Any) -> None:
        """A call that waits has no KV any more; before its first token it adopted nothing then."""
        view = self._views[request.request_id]
        self._views.look(request, view)
        if view.adopted:
            view.adopted = False
            outcome = self._outcomes.get(view.id)
            if outcome is not None and not request.num_output_tokens:
                outcome.update(outcome="cold", tokens=0)

    # ------------------------------------------------------------------ running calls

    def _arrange(self, plan: Plan) -> None:
        """Make ready to take KV in the planned order, if the step needs it."""
        self._reserve = plan.reserve
        self._victims = [victim.id for victim in plan.preempt]
        if not self._picks or not plan.preempt:
            return
        # vLLM takes from the tail: the first victim goes last.
        late = {victim.id: number for number, victim in enumerate(reversed(plan.preempt), start=1)}
        if any(request.request_id in late for request in self.running):
            self.running.sort(key=lambda request: late.get(request.request_id, 0))

    def _pick_victim(self, request: Any) -> None:
        """Put to the tail whom the policy preempts: of those that vLLM has not scheduled yet."""
        place = self.running.index(request)
        views = [self._views[r.request_id] for r in self.running[place:]]
        self._ledger.hold(views)
        chosen = choose(views, self._config, cost=self._costs.cost, use=self._hit_rate)
        if chosen is not None and chosen.id != self.running[-1].request_id:
            index = place + views.index(chosen)
            self.running.append(self.running.pop(index))

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        computed = request.num_computed_tokens
        super()._preempt_request(request, *args, **kwargs)
        if self._off is not None:
            return
        self._kv_counts.lost(request.request_id, computed)
        self.grape_counters["preemptions"] += 1
        view = self._views[request.request_id]
        self._lost(request)
        self._size_up(request, view)
        if not request.resumable:
            self._controller.call_requeued(view)

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
        if done and self._off is None:
            self._kv_counts.emptied()
        return done
