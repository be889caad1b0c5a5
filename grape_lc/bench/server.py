"""One arm at work: its engine, the workflow on it, and a run of programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from grape_lc.bench.arms import Arm
from grape_lc.bench.collect import Live, MeasuredEngine
from grape_lc.bench.engines import WARM_UP_TOKENS, MeasurableEngine, empty_cache
from grape_lc.bench.examples import Example
from grape_lc.bench.metrics import RunRecord
from grape_lc.bench.ranking import RankedEngine
from grape_lc.bench.released import ReleasedProgram
from grape_lc.bench.runner import Graph, run_programs
from grape_lc.bench.warming import static_heads, warm
from grape_lc.bench.workload import Arrival
from grape_lc.engine.base import EngineClient
from grape_lc.errors import EngineError

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph

    from grape_lc.flow.taskflow import TaskFlow


class BenchEngine(MeasurableEngine, Protocol):
    """An engine that also tells about itself."""

    def stats(self) -> dict[str, Any]:
        """Counters and sizes; those of the scheduler only where it is ours."""
        ...

    def info(self) -> dict[str, Any]:
        """Facts that do not change while it lives, ``block_size`` (tokens) among them."""
        ...


EngineOf = Callable[[Arm], AbstractContextManager[BenchEngine]]


HISTORY_FIRST = "history_first"
"""The layout of the workflows' prompts in which each call repeats the beginning of earlier ones."""


class ArmRun(NamedTuple):
    """One run of one arm.

    repeat: counted from 1. position: which run of its repeat it was, from 1.
    record: what was measured; None where the run failed, and ``error`` says why.
    counters: by how much the counters of the engine's scheduler rose.
    offered: programs that it had to run.
    """

    arm: str
    repeat: int
    position: int
    record: RunRecord | None
    counters: Mapping[str, float]
    error: str | None = None
    offered: int = 0


class ArmServer:
    """Starts the engine of an arm when it is needed, and runs programs on it.

    limit_s: a run that takes longer, from its last arrival on, is given up with an EngineError.
    in_flight: programs at a time, in a closed loop, whose limit counts from its start.
    fixed_lengths: every answer is exactly ``max_tokens`` long: the model's end of text is ignored.
    """

    def __init__(
        self,
        arm: Arm,
        example: Example,
        max_tokens: int,
        engine_of: EngineOf,
        limit_s: float,
        in_flight: int | None = None,
        *,
        fixed_lengths: bool = False,
    ) -> None:
        self.arm = arm
        self.info: dict[str, Any] = {}
        self._example = example
        self._max_tokens = max_tokens
        self._engine_of = engine_of
        self._limit_s = limit_s
        self._in_flight = in_flight
        self._fixed_lengths = fixed_lengths
        self._stack = ExitStack()
        self._engine: BenchEngine | None = None
        self._flow: TaskFlow | None = None

    def start(self) -> BenchEngine:
        """The running engine, started and warmed up if it was not yet.

        Raises what the engine raises; it is closed then.
        """
        if self._engine is None:
            engine = self._stack.enter_context(self._engine_of(self.arm))
            try:
                self.info = engine.info()
                self._program(self._measured(engine), WARM_UP_TOKENS).invoke(
                    dict(self._example.warm_up)
                )
            except BaseException:
                self.close()
                raise
            self._engine = engine
        return self._engine

    def close(self) -> None:
        """End the engine; it is started again when it is needed."""
        self._engine = None
        self._stack.close()

    def run(
        self,
        arrivals: Sequence[Arrival],
        repeat: int,
        on_tick: Callable[[int, Live], None] = lambda done, live: None,
    ) -> tuple[RunRecord, dict[str, float]]:
        """Run the programs on an empty prefix cache; returns records and risen counters.

        On a warmed arm the cache of every tenant holds the static heads of the prompts, computed
        before the run.
        What the example's scorer counts is among the counters.

        on_tick: called with the number of finished programs several times a second.
        Raises what engine and workflow raise; the caller then closes the server, which ends
        programs that still run.
        """
        engine = self.start()
        empty_cache(self.arm.name, engine)
        if self.arm.warmed:
            tenants = dict.fromkeys(arrival.tenant for arrival in arrivals)
            warm(engine, static_heads(self._traced(engine), tenants))
        measured = self._measured(engine)
        graph = self._program(measured, self._max_tokens)
        before = engine.stats()
        allowed = max((arrival.at for arrival in arrivals), default=0.0) + self._limit_s
        begin = time.monotonic()

        def tick(done: int) -> None:
            on_tick(done, measured.live())
            if done < len(arrivals) and time.monotonic() - begin > allowed:
                raise EngineError(
                    f"only {done} of {len(arrivals)} programs ended within {allowed:.0f} s "
                    f"({self._limit_s:.0f} s after the last arrival)"
                )

        result = run_programs(
            graph,
            arrivals,
            measured,
            arm=self.arm.name,
            number=repeat,
            in_flight=self._in_flight,
            on_tick=tick,
        )
        counters = _risen(before, engine.stats())
        if self._example.counter is not None:
            counters |= self._example.counter(result.states)
        if self._example.scorer is not None:
            counters |= self._example.scorer(result.states)
        return result.record, counters

    def _measured(self, engine: EngineClient) -> MeasuredEngine:
        if not self.arm.ranked:
            return MeasuredEngine(engine)
        return RankedEngine(engine, self._traced(engine), self.arm.tuning.order)

    def _traced(self, engine: EngineClient) -> TaskFlow:
        """The workflow's flow, whichever engine it was traced with first."""
        from grape_lc.adapters.langgraph import to_taskflow

        if self._flow is None:
            self._flow = to_taskflow(self._bare_graph(engine, WARM_UP_TOKENS))
        return self._flow

    def _program(self, engine: EngineClient, max_tokens: int) -> Graph:
        """What runs the programs: the graph, attached or not, or the flow without it."""
        if self.arm.released:
            return ReleasedProgram(
                engine, self._example, max_tokens, fixed_lengths=self._fixed_lengths
            )
        graph = self._bare_graph(engine, max_tokens)
        if not self.arm.attached:
            return graph
        from grape_lc.adapters.langgraph import attach, to_taskflow

        return attach(graph, to_taskflow(graph), learn=False, learned="memory")

    def _bare_graph(self, engine: EngineClient, max_tokens: int) -> CompiledStateGraph[Any]:
        from grape_lc.adapters.langchain import ChatGrape

        llm = ChatGrape(engine=engine, temperature=0.0, ignore_eos=self._fixed_lengths)
        example = self._example
        if self.arm.layout:
            example = example._replace(options={**example.options, "layout": HISTORY_FIRST})
        graph: CompiledStateGraph[Any] = example.build(llm, max_tokens)
        return graph


def _risen(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, float]:
    """How much each number rose or fell; sizes that are back where they were count as zero.

    A highest value (``peak_...``) is that since the cache was emptied, and stays what it is.
    """
    return {
        name: value if name.startswith("peak_") else value - before.get(name, 0)
        for name, value in after.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
