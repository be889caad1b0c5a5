"""What one engine's policy remembers between steps, and the step itself.

The driver (vLLM's scheduler subclass, or the simulator) reports events and, before each step,
the running requests and the state of its pool; it gets a plan back. No clock: time comes with
every event. No engine: requests are ``RequestView``s, which the driver keeps up to date.

    call      ->  waiting  ->  running  ->  ended
                     ^---- preempted ---'
    open      ->  grew*  ->  ended (adopted, of no use, released)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from grape_lc.scheduler.batching import decode_load, is_short
from grape_lc.scheduler.cost import StepCost, StepLoad, chunk_weight
from grape_lc.scheduler.followers import Followers
from grape_lc.scheduler.measures import Measures
from grape_lc.scheduler.outlook import Outlook
from grape_lc.scheduler.policy import plan
from grape_lc.scheduler.priority import rank
from grape_lc.scheduler.refresh import StepError
from grape_lc.scheduler.settings import Constraint, PolicyConfig, Rule
from grape_lc.scheduler.types import (
    Decodes,
    Level,
    Limit,
    Plan,
    Pool,
    RequestView,
    Snapshot,
    Stage,
)

_PROGRAMS = 16_384  # programs that are remembered; the one unheard of for the longest goes first
_FIRST_CALL_S = 1.0  # after which a program's open prompts no longer wait for its first call
_SHARING = 2  # tenants from which on what each was served is counted
_SERVED_HALF = 1e5  # tokens, of all tenants, after which what one was served counts half
_WEIGH_STEPS = 32  # after which the weight of a partial edge is looked up in F again
_OVERLOADED = 2.0  # times ``root_s`` that the oldest call waits in an engine that is overloaded


class Costs(Protocol):
    """Where F comes from: ``refresh.CostTracker``, or a cost that is known."""

    @property
    def cost(self) -> StepCost | None:
        """F, or None while none is trusted."""
        ...

    @property
    def error(self) -> StepError | None:
        """Its relative errors of late; None if they are not known."""
        ...

    def observe(self, load: StepLoad, seconds: float) -> None:
        """A step was measured."""
        ...


@dataclass(frozen=True)
class KnownCost:
    """A cost that needs no learning, as in a simulation."""

    cost: StepCost | None
    error: StepError | None = None

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Nothing to learn."""


class Machine(NamedTuple):
    """What the driver knows of the engine before a step.

    max_tokens: most tokens of a step. free_rows: run slots that no request has. free, total: KV
    blocks. least_call_tokens: as in ``Snapshot``.
    """

    max_tokens: int
    free_rows: int
    free: int
    total: int
    least_call_tokens: int = 1


@dataclass(slots=True)
class _Program:
    """A program as long as it is heard of.

    arrived: of its first call. attained: seconds of service of its calls, all together.
    """

    arrived: float
    attained: float = 0.0


class Controller:
    """One engine's policy with its memory.

    block_size: tokens of a KV block; groups: KV groups. costs: predicts steps; without one the
    policy keeps to its fixed cap.
    """

    def __init__(
        self,
        config: PolicyConfig,
        *,
        block_size: int,
        groups: int = 1,
        costs: Costs | None = None,
    ) -> None:
        self.config = config
        self.costs: Costs = costs if costs is not None else KnownCost(None)
        self.outlook = Outlook(config, block_size, groups)
        self.measures = Measures(config)
        late = 4 * config.hold_s
        self.followers = Followers(max(config.grace_s, config.hold_s), late)
        self.waiting: dict[str, RequestView] = {}
        self.opens: dict[str, RequestView] = {}
        self.plan = Plan(0, Limit.NONE)
        self.snapshot: Snapshot | None = None
        self._block_size = block_size
        self._groups = groups
        self._step = 0
        self._programs: OrderedDict[str, _Program] = OrderedDict()
        self._served: dict[str, float] = {}
        self._tenants: set[str] = set()  # no more of them than ``_SHARING``
        self._needs: dict[str, int] = {}  # blocks of waiting calls, as long as they wait
        self._waiting_blocks = 0
        self._overloaded = False

    # ------------------------------------------------------------------ calls

    def call_arrived(self, view: RequestView, now: float) -> None:
        """A call came in at ``view.arrived``, even if it is noticed only ``now``."""
        hint = view.hint
        if hint.program is not None:
            self.followers.arrived(hint.program, view.arrived)
            program = self._program(hint.program, view.arrived)
            view.program_arrived = program.arrived
        self.outlook.call_arrived(view, self.measures.step_s)
        if len(self._tenants) < _SHARING:
            self._tenants.add(hint.tenant)
        self._join(hint.tenant)
        self._wait(view)

    def call_requeued(self, view: RequestView) -> None:
        """A call lost its KV: a running one waits again, a waiting one has adopted nothing."""
        if view.stage is not Stage.WAITING:
            self.measures.preempted(view.tokens)
            self._wait(view)
        elif view.id in self.waiting:
            self._need(view)

    def call_grew(self, view: RequestView, tokens: int) -> None:
        """A call that waits has ``tokens`` tokens now: those on their way when it lost its KV."""
        view.tokens = tokens
        if view.id in self.waiting:
            self._need(view)

    def call_started(self, view: RequestView, stage: Stage) -> None:
        """A waiting call runs."""
        short = is_short(view, self.config)
        if self._unwait(view):
            self.outlook.foresee(view)
            if not short:
                self.measures.prefill_begins()
        view.stage = stage

    def call_ended(self, view: RequestView, now: float, *, complete: bool, limited: bool) -> None:
        """A call is gone; ``complete``: by itself, not cancelled; ``limited``: at its limit."""
        self._unwait(view)
        self.outlook.call_ended(view, complete=complete, limited=limited)
        hint = view.hint
        if hint.program is None:
            return
        if hint.feeds:
            # After an abort too: that is how the front end ends a call at a stop string.
            self.followers.ended(hint.program, now)
        program = self._programs.get(hint.program)
        if program is not None:
            program.attained += max(0.0, now - view.arrived)
            if self.config.rule in (Rule.ATTAINED, Rule.AUTO, Rule.SHORTEST):
                for other in self.waiting.values():
                    if other.hint.program == hint.program:
                        other.rank = self._rank(other)

    # ------------------------------------------------------------------ open prompts

    def opened(self, view: RequestView) -> None:
        """An open prompt came in."""
        view.stage = Stage.OPEN
        view.static = view.tokens
        view.early = self._is_early(view, view.arrived)
        self.opens[view.id] = view

    def open_ended(self, view: RequestView, adopted: int | None) -> None:
        """An open prompt is gone; ``adopted``: tokens that its call took over.

        None: it was never claimed by a call, which says nothing about predictions.
        """
        self.opens.pop(view.id, None)
        if adopted is None or view.computed <= 0:
            self.measures.unclaimed()
        else:
            self.measures.adopted(adopted, view.computed)

    def dropped(self, view: RequestView) -> None:
        """An open prompt gave up its KV; it stays open."""
        self.measures.dropped()

    # ------------------------------------------------------------------ steps

    def measured(self, load: StepLoad, seconds: float) -> None:
        """A step was measured."""
        self.costs.observe(load, seconds)
        self.measures.step_ended(seconds)

    def decide(self, now: float, machine: Machine, running: Sequence[RequestView]) -> Plan:
        """Plan the next step. ``running``: up to date, ``held_blocks`` only if ``short`` says so.

        The snapshot that the plan was made from stays in ``snapshot`` until the next step.
        """
        self._follow(now, machine.free)
        self.snapshot = self.look(now, machine, running)
        self.plan = plan(self.snapshot, self.config)
        self._step += 1
        self.measures.switched = self.plan.limit is Limit.SWITCH
        return self.plan

    def look(self, now: float, machine: Machine, running: Sequence[RequestView]) -> Snapshot:
        """The snapshot of this moment; calls for no decision."""
        decodes, prefills, growth = self.outlook.tally(now, running, self._alone_s())
        pool = Pool(
            machine.free,
            machine.total,
            self._block_size,
            self._groups,
            growth,
            self._waiting_blocks,
        )
        self.measures.recover(pool, running=bool(running))
        chunk = self.config.chunk if running or self.waiting else 1
        for view in self.opens.values():
            if view.early:
                view.early = self._is_early(view, now)
            # With less than a chunk it does not run, whatever is expected.
            pending = view.tokens - view.hold_back - view.computed
            if (pending >= chunk or view.final) and view.hint.hops <= 1:
                self.outlook.expect_source(view)
        error, followers = self.costs.error, self.followers
        if self._step % _WEIGH_STEPS == 0:
            self._weigh(decodes)
        return Snapshot(
            step=self._step,
            now=now,
            max_tokens=machine.max_tokens,
            free_rows=machine.free_rows,
            pool=pool,
            decodes=decodes,
            prefills=prefills,
            running=running if self.short(machine.free, len(running)) else (),
            waiting=tuple(self.waiting.values()),
            opens=tuple(self.opens.values()),
            signals=self.measures.signals(now, None if error is None else error.p95, followers),
            cost=self.costs.cost,
            served=self._served,
            least_call_tokens=machine.least_call_tokens,
        )

    def idle_work(self, now: float, machine: Machine) -> int:
        """Open prompts that could run in an engine that has nothing else to do.

        While a call is about to arrive they count too, though they do not run: or nothing would
        wake the engine when that time is over.
        """
        snapshot = self.look(now, machine, ())
        awake = replace(snapshot, signals=snapshot.signals._replace(since_feeder=None))
        return len(plan(awake, self.config).opens)

    def short(self, free: int, running: int) -> bool:
        """Whether KV may run short in the next step: then views must have ``held_blocks``."""
        step = self._blocks(self.config.open_cap) + 2 * self._groups * running
        return free < step or self.measures.pressed or self.measures.thrashing

    def ran(self, tokens: int, rows: Iterable[tuple[RequestView | None, int]]) -> None:
        """A step was handed to the workers: ``tokens`` in all, and those of each request.

        ``rows`` is not read while there is one tenant only: nobody shares with it.
        """
        self.measures.computed(tokens)
        if len(self._tenants) < _SHARING:
            return
        for view, count in rows:
            if view is not None:
                tenant = view.hint.tenant
                self._served[tenant] = self._served.get(tenant, 0.0) + count
        self._fade(tokens)

    @property
    def sizes(self) -> dict[str, int]:
        """Entries of what is kept beside ``waiting`` and ``opens``: programs, tenants, the rest."""
        return {
            "remembered_programs": len(self._programs),
            "tenants": len(self._served),
            "followers": len(self.followers),
            **self.outlook.sizes,
        }

    # ------------------------------------------------------------------ inside

    def _program(self, name: str, now: float) -> _Program:
        program = self._programs.get(name)
        if program is None:
            program = self._programs[name] = _Program(now)
            if len(self._programs) > _PROGRAMS:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(name)
        return program

    def _is_early(self, view: RequestView, now: float) -> bool:
        """Whether the first call of an open prompt's program is still on its way.

        It is announced together with its open prompts, and would have to sit out their step.
        """
        program = view.hint.program
        waits = program is not None and program not in self._programs
        return waits and now - view.arrived < _FIRST_CALL_S

    def _join(self, tenant: str) -> None:
        """A tenant begins to wait: it is not behind those that wait already, nor before them.

        As in start-time fair queueing; or a tenant that was served once would let every new one
        go first, and they might never end.
        """
        waiting = {view.hint.tenant for view in self.waiting.values()}
        if not waiting or tenant in waiting:
            return
        least = min(self._served.get(other, 0.0) for other in waiting)
        if least > self._served.get(tenant, 0.0):
            self._served[tenant] = least

    def _wait(self, view: RequestView) -> None:
        view.stage = Stage.WAITING
        view.rank = self._rank(view)
        self._unwait(view)
        self.waiting[view.id] = view
        self._need(view)

    def _need(self, view: RequestView) -> None:
        """Note the blocks that a waiting call needs, beyond those that it took over."""
        need = max(0, self._blocks(view.tokens) - view.held_blocks)
        self._waiting_blocks += need - self._needs.get(view.id, 0)
        self._needs[view.id] = need

    def _unwait(self, view: RequestView) -> bool:
        """Take a call out of those that wait; False if it was none of them."""
        if self.waiting.pop(view.id, None) is None:
            return False
        self._waiting_blocks -= self._needs.pop(view.id)
        return True

    def _rank(self, view: RequestView) -> tuple[float, ...]:
        program = self._programs.get(view.hint.program or "")
        attained = program.attained if program is not None else 0.0
        return rank(view, self.config, attained=attained, overloaded=self._overloaded)

    def _follow(self, now: float, free: int) -> None:
        waiting = self.waiting
        tight = self._waiting_blocks > free
        if tight:
            # Open prompts give way: what they hold keeps no call waiting.
            held = sum(view.held_blocks for view in self.opens.values())
            tight = self._waiting_blocks > free + held
        oldest = next(iter(waiting.values()), None)
        behind = now - oldest.arrived if oldest is not None else 0.0
        self.measures.step_begins(len(waiting), behind, tight=tight)
        overloaded = behind > _OVERLOADED * self.config.root_s
        if overloaded != self._overloaded:
            self._overloaded = overloaded
            if self.config.rule is Rule.AUTO:
                for view in waiting.values():
                    view.rank = self._rank(view)

    def _fade(self, tokens: int) -> None:
        """Count what was served before for less; a tenant with less than a token is forgotten."""
        factor = 0.5 ** (tokens / _SERVED_HALF)
        faded = ((name, value * factor) for name, value in self._served.items())
        self._served = {name: value for name, value in faded if value >= 1.0}

    def _alone_s(self) -> float:
        """Seconds of the latest step's decodes without prefill; 0 if that is not known."""
        cost, last = self.costs.cost, self.snapshot
        if cost is None or last is None or not last.decodes.rows:
            return 0.0
        return cost.seconds(decode_load(last.decodes))

    def _weigh(self, decodes: Decodes) -> None:
        """Take the weight of a partial edge from F, beside such decodes."""
        config, cost = self.config, self.costs.cost
        weight = 0
        if cost is not None and config.constraint is Constraint.ADAPTIVE:
            most = max(config.chunk, min(config.lump, config.open_cap))
            weight = chunk_weight(cost, decode_load(decodes), least=config.chunk, most=most)
        self.measures.weight = weight

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self._block_size) * self._groups

    def validate(self) -> None:
        """Raise AssertionError if what is kept contradicts itself."""
        self.outlook.lengths.validate()
        self.measures.validate()
        needed = sum(self._needs.values())
        assert self._waiting_blocks == needed, f"{self._waiting_blocks} blocks, not {needed}"
        assert self._needs.keys() == self.waiting.keys(), "calls that wait, and what they need"
        for key, view in self.waiting.items():
            assert view.id == key, f"{view.id} waits as {key}"
            assert view.stage is Stage.WAITING, f"{key} waits at stage {view.stage}"
            assert view.rank, f"{key} waits without a rank"
        for key, view in self.opens.items():
            assert view.id == key, f"{view.id} is open as {key}"
            assert view.stage is Stage.OPEN, f"{key} is open at stage {view.stage}"
        assert not set(self.waiting) & set(self.opens), "a request waits and is open"
        assert self.plan.level in Level, self.plan.level
