"""The smallest engine that does what a plan says, with KV blocks that are really counted.

No prefix cache, no drafts, no text: a request is its view. What vLLM does by itself is done here
too: running calls in order, then waiting ones until one cannot start, then open prompts.
"""

from __future__ import annotations

from typing import Any

from grape_lc.scheduler import preemption
from grape_lc.scheduler.controller import Controller, Costs, Machine
from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import Hint, Limit, Plan, RequestView, Stage

BLOCK = 4


class ToyEngine:
    """An engine with ``blocks`` KV blocks and ``rows`` run slots; its steps take ``step_s``."""

    def __init__(
        self,
        config: PolicyConfig,
        *,
        blocks: int,
        rows: int = 4,
        max_tokens: int = 32,
        groups: int = 1,
        step_s: float = 0.01,
        costs: Costs | None = None,
    ) -> None:
        self.config = config
        self.controller = Controller(config, block_size=BLOCK, groups=groups, costs=costs)
        self.blocks = self.free = blocks
        self.rows, self.max_tokens, self.groups, self.step_s = rows, max_tokens, groups, step_s
        self.now = 0.0
        self.running: list[RequestView] = []
        self.waiting: list[RequestView] = []
        self.opens: dict[str, RequestView] = {}
        self.answers: dict[str, int] = {}
        self.ended: list[str] = []
        self.started: dict[str, float] = {}
        self.preemptions = 0
        self._seq = 0

    # ------------------------------------------------------------------ events

    def call(
        self,
        tokens: int,
        answer: int,
        hint: Hint,
        *,
        adopt: RequestView | None = None,
        max_output: int | None = None,
        whole: bool = False,
        blocked: bool = False,
    ) -> RequestView:
        """A call arrives; ``answer``: tokens until it ends by itself."""
        view = self._new(Stage.WAITING, tokens, hint)
        view.max_output = answer if max_output is None else max(max_output, answer)
        view.whole, view.blocked = whole and tokens <= self.max_tokens, blocked
        self.answers[view.id] = answer
        if adopt is not None:
            view.computed = min(adopt.computed, tokens - 1)
            view.adopted = view.computed > 0
            view.held_blocks, adopt.held_blocks = adopt.held_blocks, 0
            self._hold(view, self._size(view.computed))
            self._close(adopt, view.computed)
        self.waiting.append(view)
        self.controller.call_arrived(view, self.now)
        return view

    def cancel(self, view: RequestView) -> None:
        """The client is gone."""
        self._end(view, complete=False)

    def open(self, tokens: int, hint: Hint) -> RequestView:
        """An open prompt arrives."""
        view = self._new(Stage.OPEN, tokens, hint)
        view.hold_back = 1
        self.opens[view.id] = view
        self.controller.opened(view)
        return view

    def append(self, view: RequestView, tokens: int, *, final: bool) -> None:
        """An open prompt grows."""
        view.tokens += tokens
        view.final = final
        view.stalled = False
        view.touched = self.now

    def release(self, view: RequestView) -> None:
        """An open prompt is not needed."""
        self._close(view, None)

    def _new(self, stage: Stage, tokens: int, hint: Hint) -> RequestView:
        self._seq += 1
        return RequestView(f"r{self._seq}", self._seq, self.now, stage, tokens, hint)

    def _close(self, view: RequestView, adopted: int | None) -> None:
        self._hold(view, 0)
        del self.opens[view.id]
        self.controller.open_ended(view, adopted)

    def _end(self, view: RequestView, *, complete: bool) -> None:
        self._hold(view, 0)
        (self.waiting if view in self.waiting else self.running).remove(view)
        self.ended.append(view.id)
        limited = complete and view.output == view.max_output
        self.controller.call_ended(view, self.now, complete=complete, limited=limited)

    # ------------------------------------------------------------------ a step

    def step(self) -> Plan:
        """Plan, compute, and let time pass."""
        plan = self.controller.decide(self.now, self.machine, list(self.running))
        self._victims = [victim.id for victim in plan.preempt]
        first = min(self.running, key=lambda view: view.seq, default=None)
        assert first is None or first.id not in self._victims, "the first one gives way"
        self._preempted, self._gone = False, set[str]()
        ran = self._compute(plan)
        self.check(plan, ran)
        self.now += self.step_s
        self._finish(ran)
        self.validate()
        return plan

    @property
    def machine(self) -> Machine:
        """What the policy is told of the engine."""
        return Machine(self.max_tokens, self.rows - len(self.running), self.free, self.blocks)

    @property
    def busy(self) -> bool:
        """Whether any call is there."""
        return bool(self.running or self.waiting)

    def _compute(self, plan: Plan) -> dict[str, int]:
        late = {key: -place for place, key in enumerate(self._victims)}
        self.running.sort(key=lambda view: late.get(view.id, -len(late)))
        ran: dict[str, int] = {}
        left = self._run(plan, ran, plan.budget)
        if not self._preempted:
            left, all_started = self._start(plan, ran, left)
            if all_started:
                self._early(plan, ran, left)
        return ran

    def _run(self, plan: Plan, ran: dict[str, int], left: int) -> int:
        caps = {item.id: item.tokens for item in plan.prefills}
        place = 0
        while place < len(self.running) and left > 0:
            view = self.running[place]
            tokens = min(view.pending, left, caps.get(view.id, left))
            if tokens > 0:
                while not self._grow(view, view.computed + tokens):
                    if self._drop_next() or self._strip():
                        continue
                    if self._preempt(place) is view:
                        return left
                ran[view.id] = tokens
                left -= tokens
            place += 1
        return left

    def _start(self, plan: Plan, ran: dict[str, int], left: int) -> tuple[int, bool]:
        """Start calls; the tokens left, and whether all did start that should."""
        if plan.starts is None:
            caps = dict.fromkeys((view.id for view in self.waiting), self.max_tokens)
            queue = list(self.waiting)
        else:
            caps = {item.id: item.tokens for item in plan.starts}
            known = {view.id: view for view in self.waiting}
            queue = [known[key] for key in caps]
        # Calls that hold KV go first, as in vLLM.
        for view in sorted(queue, key=lambda view: not view.adopted):
            if view.blocked:
                continue
            tokens = min(view.pending, left, caps[view.id])
            cut = view.whole and tokens < view.pending
            if tokens <= 0 or cut or len(self.running) >= self.rows or not self._admit(view):
                return left, False
            assert self._grow(view, view.computed + tokens)
            self.waiting.remove(view)
            self.running.append(view)
            self.started.setdefault(view.id, self.now)
            self.controller.call_started(view, Stage.PREFILL if view.pending > 1 else Stage.DECODE)
            ran[view.id] = tokens
            left -= tokens
        return left, True

    def _admit(self, view: RequestView) -> bool:
        """Whether all known tokens of a call fit; open prompts give way if that is enough."""
        need = self._size(view.tokens) - view.held_blocks
        early = sum(other.held_blocks for other in self.opens.values())
        if self.running and self.free + early < need:
            return False
        while self.free < need and (self._drop_next() or self._strip(view)):
            pass
        return self.free >= need

    def _early(self, plan: Plan, ran: dict[str, int], left: int) -> None:
        slots = self.rows - len(self.running)
        for item in plan.opens:
            view = self.opens[item.id]
            tokens = min(item.tokens, left, view.pending)
            cost = self._size(view.computed + tokens) - view.held_blocks
            refused = tokens <= 0 or slots <= 0 or (cost and self.free - cost < plan.reserve)
            if refused or item.id in self._gone:
                view.stalled = not ran
                return
            assert self._grow(view, view.computed + tokens)
            ran[view.id] = tokens
            left -= tokens
            slots -= 1

    def _finish(self, ran: dict[str, int]) -> None:
        load = StepLoad()
        for view in [*self.running, *self.opens.values()]:
            tokens = ran.get(view.id, 0)
            if not tokens:
                continue
            load = load.plus(tokens, view.computed)
            view.computed += tokens
            view.touched = self.now
            if view.stage is not Stage.OPEN and view.computed == view.tokens:
                view.stage = Stage.DECODE
                view.tokens += 1
                view.output += 1
                view.last_token = self.now
        views = {view.id: view for view in [*self.running, *self.opens.values()]}
        rows = [(views.get(request_id), tokens) for request_id, tokens in ran.items()]
        self.controller.ran(sum(ran.values()), rows)
        if ran:
            self.controller.measured(load, self.step_s)
        for view in list(self.running):
            if view.output >= self.answers[view.id]:
                self._end(view, complete=True)

    # ------------------------------------------------------------------ KV

    def _size(self, tokens: int) -> int:
        return -(-tokens // BLOCK) * self.groups

    def _hold(self, view: RequestView, blocks: int) -> None:
        self.free += view.held_blocks - blocks
        view.held_blocks = blocks

    def _grow(self, view: RequestView, tokens: int) -> bool:
        blocks = max(view.held_blocks, self._size(tokens))
        if blocks - view.held_blocks > self.free:
            return False
        self._hold(view, blocks)
        return True

    def _drop_next(self) -> bool:
        """The next open prompt gives up its KV."""
        named = [self.opens[key] for key in self._victims if key in self.opens]
        view = next((view for view in named if view.held_blocks), None)
        view = view or preemption.choose(self.opens.values(), self.config)
        if view is None:
            return False
        self._hold(view, 0)
        self.controller.dropped(view)
        view.computed = 0
        self._gone.add(view.id)
        return True

    def _strip(self, spared: RequestView | None = None) -> bool:
        """The last waiting call that adopted KV gives it up."""
        for view in reversed(self.waiting):
            if view.held_blocks and view is not spared:
                self._hold(view, 0)
                view.computed, view.adopted = 0, False
                self.controller.call_requeued(view)
                return True
        return False

    def _preempt(self, place: int) -> RequestView:
        """Of the running calls that are not in this step yet, the next victim or the last."""
        rest = self.running[place:]
        view = preemption.choose(rest, self.config, cost=self.controller.costs.cost) or rest[-1]
        self._hold(view, 0)
        view.computed, view.adopted = 0, False
        # With what it decoded it may be longer than a step.
        view.whole = view.whole and view.tokens <= self.max_tokens
        self.running.remove(view)
        self.waiting.insert(0, view)
        self._preempted = True
        self.preemptions += 1
        self.controller.call_requeued(view)
        return view

    # ------------------------------------------------------------------ checks

    def check(self, plan: Plan, ran: dict[str, int]) -> None:
        """Raise AssertionError if a step breaks what no step may break."""
        views: dict[str, Any] = {v.id: v for v in [*self.running, *self.opens.values()]}
        assert sum(ran.values()) <= plan.budget <= self.max_tokens
        assert (plan.budget == 0) == (plan.limit is Limit.HOLD)
        assert not {victim.id for victim in plan.preempt} & {
            item.id for item in (*plan.prefills, *(plan.starts or ()), *plan.opens)
        }
        for key, tokens in ran.items():
            view = views[key]
            assert 1 <= tokens <= view.tokens - view.hold_back - view.computed, key

    def validate(self) -> None:
        """Raise AssertionError if queues, KV and controller contradict each other."""
        self.controller.validate()
        everyone = [*self.running, *self.waiting, *self.opens.values()]
        assert self.free + sum(view.held_blocks for view in everyone) == self.blocks
        assert 0 <= self.free <= self.blocks
        for view in everyone:
            assert view.held_blocks == self._size(view.computed), view
            assert view.computed <= max(0, view.tokens - view.hold_back), view
        assert len(self.running) <= self.rows
        assert {view.id for view in self.waiting} == set(self.controller.waiting)
        assert self.opens.keys() == self.controller.opens.keys()
        assert all(not view.output for view in self.opens.values()), "an open prompt sampled"
        stages = {view.stage for view in self.running}
        assert stages <= {Stage.PREFILL, Stage.DECODE}, stages
