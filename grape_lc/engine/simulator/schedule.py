"""One step of vLLM's scheduler, and of the open prompts behind it.

    running    in order, each with what it lacks, within the token budget; who finds no KV makes
               open prompts give way, then preempts
    waiting    if nothing was preempted: calls that hold KV, then the others, until one cannot
    opens      if no call was left behind: open prompts that the plan names

What the policy decides (budget, caps, who starts, who gives way) comes in as a ``Plan``; with a
plan that decides nothing this is vLLM's own step.
"""

from __future__ import annotations

from collections.abc import Callable

from grape_lc.engine.simulator.kv import KV
from grape_lc.engine.simulator.queues import Queues
from grape_lc.engine.simulator.requests import Request
from grape_lc.engine.simulator.room import Room, Row
from grape_lc.scheduler.types import Plan, Stage


class Scheduler:
    """Carries plans out on queues and KV.

    rows: most requests of a step. started: told of every call that begins. drafts: whether decodes
    may hold drafts.
    """

    def __init__(
        self,
        queues: Queues,
        kv: KV,
        room: Room,
        rows: int,
        started: Callable[[Request], None],
        *,
        drafts: bool = False,
    ) -> None:
        self._queues = queues
        self._kv = kv
        self._room = room
        self._rows = rows
        self._started = started
        self._drafts = drafts
        # Open prompts that may run in this step, with the most tokens of each.
        self._queued: list[Row] = []

    def step(self, plan: Plan) -> list[Row]:
        """The rows of a step, real ones first; their tokens are not counted as computed yet."""
        self._room.arrange(plan)
        self._queue(plan)
        rows: list[Row] = []
        left = self._run(plan, rows)
        if not self._room.preempted:
            left, all_started = self._start(plan, rows, left)
            if all_started:
                self._early(plan, rows, left)
        return rows

    def refused(self, rows: list[Row]) -> list[Request]:
        """Open prompts that the step could not run though nothing else ran."""
        if not self._queued:
            return []
        ran = {request.view.id for request, _ in rows}
        queued = [request for request, _ in self._queued]
        if ran - {request.view.id for request in queued}:
            return []
        return [request for request in queued if request.view.id not in ran]

    def _queue(self, plan: Plan) -> None:
        """Open prompts that may run; one of which the cache holds all takes that at once."""
        self._queued = []
        for item in plan.opens:
            request = self._queues.opens.get(item.id)
            if request is not None:
                view = request.view
                if view.computed == 0:
                    limit = max(0, view.tokens - view.hold_back)
                    view.computed = request.hit = self._kv.claim(request, limit, plan.reserve)
                if view.pending:
                    self._queued.append((request, item.tokens))

    # ------------------------------------------------------------------ running calls

    def _run(self, plan: Plan, rows: list[Row]) -> int:
        running, kv = self._queues.running, self._kv
        size, drafts = kv.block_size, self._drafts
        caps = {item.id: item.tokens for item in plan.prefills}
        left, index = plan.budget, 0
        while index < len(running) and left > 0:
            request = running[index]
            view = request.view
            computed = view.computed
            tokens = view.tokens - computed
            if tokens > 1 or view.stage is Stage.PREFILL:
                tokens = min(tokens, left, caps.get(view.id, tokens))
                if tokens <= 0:
                    index += 1
                    continue
            elif drafts:
                tokens = min(view.step_tokens, left)
            # A decode needs a block, or completes one, in two of ``size`` steps only; after drafts
            # that were right it may have completed one without a look.
            after = computed + tokens
            if tokens > 1 or drafts or after % size <= 1:
                while not kv.grow(request, after):
                    if self._room.give_way(request):
                        continue
                    victim, index, freed = self._room.preempt(index, rows)
                    left += freed
                    if victim is request:
                        return left
            rows.append((request, tokens))
            left -= tokens
            index += 1
        return left

    # ------------------------------------------------------------------ waiting calls

    def _start(self, plan: Plan, rows: list[Row], left: int) -> tuple[int, bool]:
        """Start calls; the tokens left, and whether all that the plan named did start."""
        if plan.starts is None:
            queues = self._queues
            while left > 0:
                request = queues.holding.head() or queues.waiting.head()
                if request is None:
                    return left, True
                tokens = self._try(request, left, left)
                if tokens is None:
                    return left, False
                rows.append((request, tokens))
                left -= tokens
            return left, queues.holding.head() is None and queues.waiting.head() is None
        waiting = {r.view.id: r for r in (*self._queues.holding, *self._queues.waiting)}
        named = [(waiting[item.id], item.tokens) for item in plan.starts if item.id in waiting]
        # vLLM admits calls that hold KV before all others.
        named.sort(key=lambda entry: entry[0] not in self._queues.holding)
        for request, cap in named:
            if left <= 0:
                return left, False
            tokens = self._try(request, left, cap)
            if tokens is None:
                return left, False
            rows.append((request, tokens))
            left -= tokens
        return left, True

    def _try(self, request: Request, left: int, cap: int) -> int | None:
        """Start one call with at most ``cap`` tokens; how many, or None if it cannot."""
        queues, kv, view = self._queues, self._kv, request.view
        if len(queues.running) >= self._rows:
            return None
        cached = kv.cached(request) if view.computed == 0 else []
        hit = len(cached) * kv.block_size
        tokens = min(view.tokens - view.computed - hit, left, cap)
        if tokens <= 0:
            return None
        after = view.computed + hit + tokens
        # vLLM admits a call only if all its known tokens fit.
        while kv.cost(request, view.tokens, cached) > kv.free or not kv.start(
            request, cached, after
        ):
            if not self._room.make(request, view.tokens, cached):
                return None
        (queues.holding if request in queues.holding else queues.waiting).remove(request)
        request.hit = hit
        view.computed += hit
        queues.running.append(request)
        self._started(request)
        return tokens

    # ------------------------------------------------------------------ open prompts

    def _early(self, plan: Plan, rows: list[Row], left: int) -> None:
        """Run open prompts until one cannot."""
        kv = self._kv
        slots = self._rows - len(self._queues.running)
        for request, cap in self._queued:
            view = request.view
            if slots <= 0 or left <= 0 or view.id in self._room.gone:
                return
            cached = kv.cached(request) if view.computed == 0 else []
            hit = len(cached) * kv.block_size
            tokens = min(view.pending - hit, cap, left)
            if tokens <= 0:
                return
            after = view.computed + hit + tokens
            cost = kv.cost(request, after, cached)
            if (cost and kv.free - cost < plan.reserve) or not kv.start(request, cached, after):
                return
            if cached:
                request.hit = hit
            view.computed += hit
            rows.append((request, tokens))
            left -= tokens
            slots -= 1
