"""One simulated engine: vLLM's loop around the same policy that drives the real one.

    messages that came in  ->  Controller.decide  ->  Scheduler.step  ->  T = F(load)  ->  tokens

Messages that arrive while a step runs are read behind it, as vLLM reads them. Steps do not
overlap (no asynchronous scheduling), and the time that scheduling takes is part of T.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple, Protocol

from grape_lc.engine.simulator.checks import check_state, check_step
from grape_lc.engine.simulator.drafting import NO_MATCH
from grape_lc.engine.simulator.kv import KV
from grape_lc.engine.simulator.life import Life
from grape_lc.engine.simulator.messages import Message
from grape_lc.engine.simulator.programs import Head
from grape_lc.engine.simulator.queues import Queues
from grape_lc.engine.simulator.requests import Request
from grape_lc.engine.simulator.room import Room, Row
from grape_lc.engine.simulator.runs import Call
from grape_lc.engine.simulator.schedule import Scheduler
from grape_lc.engine.simulator.settings import EngineSettings, fitting
from grape_lc.engine.simulator.statistics import Statistics
from grape_lc.engine.simulator.tokens import Text
from grape_lc.errors import ConfigError
from grape_lc.scheduler import preemption
from grape_lc.scheduler.controller import Controller, Costs, Machine
from grape_lc.scheduler.cost import StepCost, StepLoad
from grape_lc.scheduler.record import StepRecord
from grape_lc.scheduler.settings import Eviction, PolicyConfig
from grape_lc.scheduler.types import Plan, RequestView, Stage

_EMPTY_STEP_S = 0.001
"""How long the engine sleeps when it has work and runs none, unless a message wakes it."""

_STUCK_S = 60.0
"""Work that waits this long in an engine that computes nothing will never run."""


class _Step(NamedTuple):
    """A step on its way."""

    rows: list[Row]
    load: StepLoad
    seconds: float


class Clock(Protocol):
    """Calls back at a time."""

    def wake(self, at: float, engine: Engine) -> None:
        """Call ``engine.woken`` at ``at``."""
        ...

    def post(self, at: float, engine: Engine, message: Message) -> None:
        """Call ``engine.deliver`` with a message at ``at``."""
        ...


class Engine:
    """An engine and its KV pool of ``blocks`` blocks.

    number: its place in a cluster. cost: the true F. costs: what the policy knows of it. sampled:
    told of the calls that got a token. record: given the record of every step.
    """

    def __init__(
        self,
        number: int,
        settings: EngineSettings,
        config: PolicyConfig,
        *,
        cost: StepCost,
        costs: Costs,
        blocks: int,
        block_size: int,
        clock: Clock,
        statistics: Statistics,
        sampled: Callable[[list[Call], float], None],
        record: Callable[[StepRecord], None] | None = None,
        seed: int = 0,
    ) -> None:
        self.config = config = fitting(config, settings)
        self.number = number
        self.block_size = block_size
        self.kv = KV(blocks, block_size)
        self.queues = Queues(by_priority=settings.by_priority)
        self.controller = Controller(config, block_size=block_size, costs=costs)
        self._settings = settings
        self._cost = cost
        self._clock = clock
        self._stats = statistics
        self._sampled = sampled
        self._record = record
        self._dice = random.Random(f"noise {seed} {number}")  # noqa: S311 - a simulation
        self._drafts = 0 if settings.drafting is None else settings.drafting.tokens
        self._life = Life(
            self.queues, self.kv, self.controller, statistics, drafting=settings.drafting, seed=seed
        )
        self._inbox: list[Message] = []
        self._running: _Step | None = None
        self._wake_at: float | None = None
        self._empty_since: float | None = None
        room = Room(
            self.queues,
            self.kv,
            self._life.events,
            lambda views: preemption.choose(views, config, cost=costs.cost, use=self._hit_rate),
            picks=config.eviction is not Eviction.TAIL and not settings.by_priority,
        )
        self._scheduler = Scheduler(
            self.queues,
            self.kv,
            room,
            settings.rows,
            self._life.started,
            drafts=bool(self._drafts),
        )

    def warm(self, head: Head) -> None:
        """Put a static text into the prefix cache; it takes no time."""
        text = Text(self.block_size)
        for source, tokens in head:
            text.append(source, tokens)
        self.kv.warm(Request(RequestView("head", 0, 0.0, Stage.OPEN, text.length), text, 0))

    # ------------------------------------------------------------------ time

    def send(self, at: float, message: Message) -> None:
        """Deliver a message at a time that is not past."""
        self._clock.post(at, self, message)

    def deliver(self, message: Message, now: float) -> None:
        """A message arrives; it is read at once if the engine sleeps, or behind its step."""
        self._inbox.append(message)
        if self._running is None and self._wake_at != now:
            self._wake(now)  # and not at once: others may arrive at the same moment

    def woken(self, now: float) -> None:
        """The step that ran is done, or it is time to look again."""
        if now != self._wake_at:
            return  # a message woke it before
        step, self._running = self._running, None
        if step is not None:
            self._finish(step, now)
        self._loop(now)

    def _loop(self, now: float) -> None:
        self._life.now = now
        for message in self._inbox:
            self._life.read(message)
        self._inbox.clear()
        queues = self.queues
        machine = self._machine()
        if queues.idle and not (queues.opens and self.controller.idle_work(now, machine)):
            self._empty_since = self._wake_at = None
            return
        plan = self.controller.decide(now, machine, [r.view for r in queues.running])
        record = None
        if self._record is not None and self.controller.snapshot is not None:
            record = StepRecord.of(self.controller.snapshot, plan)
        rows = self._scheduler.step(plan)
        self._life.stall(self._scheduler.refused(rows))
        if rows:
            self._empty_since = None
            self._begin(plan, rows, now)
        else:
            self._sleep(plan, now)
        if record is not None and self._record is not None:
            record.finish(plan, {request.view.id: tokens for request, tokens in rows})
            if self._running is not None:
                record.load, record.seconds = self._running.load, self._running.seconds
            self._record(record)

    def _wake(self, at: float) -> None:
        self._wake_at = at
        self._clock.wake(at, self)

    @property
    def _hit_rate(self) -> float:
        snapshot = self.controller.snapshot
        return 1.0 if snapshot is None else snapshot.signals.hit_rate

    def _machine(self) -> Machine:
        kv, queues = self.kv, self.queues
        free = kv.free
        self._life.notice(free)
        return Machine(
            max_tokens=self._settings.max_tokens,
            free_rows=self._settings.rows - len(queues.running),
            free=free,
            total=kv.pool.total,
            least_call_tokens=1 + self._drafts,
        )

    def _sleep(self, plan: Plan, now: float) -> None:
        """An empty step."""
        self._stats.held += 1
        if self._empty_since is None:
            self._empty_since = now
        queues = self.queues
        if now - self._empty_since > _STUCK_S:
            for request in (*queues.holding, *queues.waiting):
                need = self.kv.blocks(request.view.tokens)
                if need > self.kv.pool.total:
                    raise ConfigError(
                        f"a prompt of {request.view.tokens} tokens needs {need} KV blocks, and "
                        f"there are {self.kv.pool.total}; no engine of this size can serve it"
                    )
            raise AssertionError(
                f"engine {self.number} computed nothing for {_STUCK_S:.0f} s: "
                f"{len(queues.running)} running, {len(queues.holding)} holding, "
                f"{len(queues.waiting)} waiting, {self.kv.free} of {self.kv.pool.total} blocks "
                f"free, limit {plan.limit.value!r}, refused {plan.refused}"
            )
        self._wake(now + _EMPTY_STEP_S)

    # ------------------------------------------------------------------ steps

    def _begin(self, plan: Plan, rows: list[Row], now: float) -> None:
        stats = self._stats
        kv_tokens = total = 0
        pairs = 0.0
        for request, tokens in rows:
            before = request.view.computed
            total += tokens
            kv_tokens += before + tokens
            if tokens > 1:
                pairs += (tokens - 1) * (before + 0.5 * tokens + 1.0)
        load = StepLoad(len(rows), total, kv_tokens, pairs)
        seconds = self._cost.seconds(load)
        if self._settings.noise:
            seconds *= self._dice.lognormvariate(0.0, self._settings.noise)
        if self._settings.validate:
            check_step(plan, rows, self._settings.max_tokens, self._settings.rows)
        self._running = _Step(rows, load, seconds)
        stats.steps += 1
        stats.busy_s += seconds
        stats.computed_tokens += total
        used = self.kv.pool.total - self.kv.free
        if used > stats.peak_blocks:
            stats.peak_blocks = used
        self._wake(now + seconds)

    def _finish(self, step: _Step, now: float) -> None:
        """The tokens of a step are there."""
        self._life.now = now
        stats = self._stats
        sampled: list[Call] = []
        ended: list[Request] = []
        drafts = self._drafts
        for request, tokens in step.rows:
            view = request.view
            before = view.computed
            computed = before + tokens
            if drafts and computed > view.tokens:
                sampled += [request.owner] * self._verify(request, computed - view.tokens)
                if view.output == request.answer:
                    ended.append(request)
                continue
            view.computed, view.touched = computed, now
            if request.peak > before:
                stats.recomputed_tokens += min(tokens, request.peak - before)
            if computed > request.peak:
                request.peak = computed
            if view.stage is Stage.OPEN:
                stats.early_tokens += tokens
                request.spent += tokens
            elif computed == view.tokens:
                view.stage = Stage.DECODE
                view.tokens = computed + 1
                view.output += 1
                view.last_token = now
                sampled.append(request.owner)
                if view.output == request.answer:
                    ended.append(request)
                elif drafts:
                    self._draft(request)
        self.controller.measured(step.load, step.seconds)
        rows = ((request.view, tokens) for request, tokens in step.rows)
        self.controller.ran(sum(tokens for _, tokens in step.rows), rows)
        for request in ended:
            self._life.end(request)
        if self._settings.validate:
            self.validate()
        self._sampled(sampled, now)

    def _draft(self, request: Request) -> None:
        """A call got tokens; look whether the next ones are found in its text."""
        view = request.view
        assert request.matches is not None, f"{view.id} came before the engine drafted"
        found = request.matches[view.output] != NO_MATCH
        view.step_tokens = 1 + self._drafts if found else 1

    def _verify(self, request: Request, drafted: int) -> int:
        """The drafts of a decode were computed; the tokens that it got, one for certain."""
        view, stats = request.view, self._stats
        assert request.matches is not None, f"{view.id} came before the engine drafted"
        right = min(drafted, request.matches[view.output])
        gained = min(1 + right, request.answer - view.output)
        # The latest token is not computed, nor are drafts that were wrong.
        view.computed = request.peak = view.tokens - 1 + gained
        view.tokens += gained
        view.output += gained
        view.touched = view.last_token = self._life.now
        stats.drafted_tokens += drafted
        stats.accepted_tokens += gained - 1
        if view.output < request.answer:
            self._draft(request)
        return gained

    def validate(self) -> None:
        """Raise AssertionError if queues, KV and controller contradict each other."""
        check_state(self._life)
