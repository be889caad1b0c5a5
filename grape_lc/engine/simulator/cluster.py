"""Many engines, programs sent to them, and the clock that moves them all.

A program stays on one engine, so that its open prompts and its cached prefixes are there: the
one with the fewest programs at the time it arrives, the lowest number among equals. Programs are
made when they arrive and forgotten when they end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple, Protocol

from grape_lc.engine.simulator.arrivals import Arrivals, Closed
from grape_lc.engine.simulator.engine import Engine
from grape_lc.engine.simulator.host import Host, HostSettings
from grape_lc.engine.simulator.messages import Message
from grape_lc.engine.simulator.programs import Head, Program
from grape_lc.engine.simulator.runs import Run
from grape_lc.engine.simulator.settings import EngineSettings
from grape_lc.engine.simulator.statistics import Statistics
from grape_lc.errors import ConfigError
from grape_lc.scheduler.controller import Costs
from grape_lc.scheduler.cost import StepCost
from grape_lc.scheduler.record import StepRecord
from grape_lc.scheduler.settings import PolicyConfig


class Programs(Protocol):
    """Where programs come from."""

    def program(self, number: int) -> Program:
        """The program of a number, counted from 0."""
        ...


class Fleet(NamedTuple):
    """Engines of one kind. costs: makes what the policy of one engine knows of F."""

    replicas: int
    settings: EngineSettings
    config: PolicyConfig
    cost: StepCost
    costs: Callable[[], Costs]
    blocks: int
    block_size: int


class Cluster:
    """One simulation; ``run`` it once.

    record: given the record of every step, with the number of its engine. ended: told of every run
    that ended. keep: runs remember the time of each token. heads: static texts that every engine
    has in its prefix cache at the start, as far as there is room.
    """

    def __init__(
        self,
        fleet: Fleet,
        host: HostSettings,
        *,
        seed: int = 0,
        keep: bool = False,
        record: Callable[[int, StepRecord], None] | None = None,
        ended: Callable[[Run, float], None] | None = None,
        heads: Sequence[Head] = (),
    ) -> None:
        if fleet.replicas < 1:
            raise ConfigError(f"a cluster needs at least one replica, not {fleet.replicas}")
        self.statistics = Statistics()
        self._host = Host(host, self.statistics, self._ended, keep=keep)
        self._seed = seed
        self._told = ended
        self._events: list[tuple[float, int, Engine | None, Message | None]] = []
        self._count = 0
        self.engines = [self._engine(fleet, number, record) for number in range(fleet.replicas)]
        for engine in self.engines:
            for head in heads:
                engine.warm(head)
        self._programs = [0] * fleet.replicas  # on each engine
        self._to_come = 0  # programs that did not arrive yet
        self._announced = 0  # of these, such with an arrival time
        self._closed = False

    def _engine(
        self, fleet: Fleet, number: int, record: Callable[[int, StepRecord], None] | None
    ) -> Engine:
        return Engine(
            number,
            fleet.settings,
            fleet.config,
            cost=fleet.cost,
            costs=fleet.costs(),
            blocks=fleet.blocks,
            block_size=fleet.block_size,
            clock=self,
            statistics=self.statistics,
            sampled=self._host.sampled,
            record=None if record is None else lambda step: record(number, step),
            seed=self._seed,
        )

    # ------------------------------------------------------------------ the clock

    def wake(self, at: float, engine: Engine) -> None:
        """Call ``engine.woken`` at a time."""
        self._count += 1
        heappush(self._events, (at, self._count, engine, None))

    def post(self, at: float, engine: Engine, message: Message) -> None:
        """Deliver a message to an engine at a time."""
        self._count += 1
        heappush(self._events, (at, self._count, engine, message))

    def _arrive(self, at: float) -> None:
        self._count += 1
        self._announced += 1
        heappush(self._events, (at, self._count, None, None))

    # ------------------------------------------------------------------ the run

    def run(self, programs: Programs, arrivals: Arrivals, count: int) -> Statistics:
        """Run ``count`` programs to their ends.

        Raises AssertionError if the engines stop before.
        """
        if count < 1:
            raise ConfigError(f"a simulation needs at least one program, not {count}")
        times: Iterator[float] | None = None
        self._to_come = count
        if isinstance(arrivals, Closed):
            self._closed = True
            for _ in range(min(arrivals.population, count)):
                self._arrive(0.0)
        else:
            times = arrivals.times(self._seed)
            self._arrive(next(times))
        events = self._events
        while events:
            now, _, engine, message = heappop(events)
            if engine is None:
                self._begin(programs.program(count - self._to_come), now)
                self._to_come -= 1
                self._announced -= 1
                if times is not None and self._to_come:
                    self._arrive(next(times))
            elif message is None:
                engine.woken(now)
            else:
                engine.deliver(message, now)
        left = count - self.statistics.programs
        assert not left, f"{left} of {count} programs did not end"
        return self.statistics

    def _begin(self, program: Program, now: float) -> None:
        number = min(range(len(self._programs)), key=self._programs.__getitem__)
        self._programs[number] += 1
        self._host.begin(program, self.engines[number], now)

    def _ended(self, run: Run, now: float) -> None:
        self._programs[run.engine.number] -= 1
        if self._told is not None:
            self._told(run, now)
        if self._closed and self._to_come > self._announced:
            self._arrive(now)

    def validate(self) -> None:
        """Raise AssertionError if an engine's state contradicts itself."""
        for engine in self.engines:
            engine.validate()
