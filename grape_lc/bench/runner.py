"""Runs a workload on a graph: one thread a program, each started when its turn comes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple, Protocol

from grape_lc.bench.collect import MeasuredEngine, current_program, current_tenant
from grape_lc.bench.metrics import ProgramRecord, RunRecord
from grape_lc.bench.workload import Arrival

_TICK_S = 0.25


class Graph(Protocol):
    """The part of a compiled LangGraph graph that a run needs."""

    def invoke(self, input: dict[str, Any], /) -> Any:  # noqa: A002 - LangGraph's own name
        """Run the graph to its end and return the final state."""
        ...


class RunResult(NamedTuple):
    """What a run measured, and the final state of each program by name."""

    record: RunRecord
    states: dict[str, dict[str, Any]]


class _Stopped(Exception):  # noqa: N818 - a signal between threads of this module
    """The run was given up before this program arrived."""


def run_programs(
    graph: Graph,
    arrivals: Sequence[Arrival],
    engine: MeasuredEngine,
    *,
    arm: str,
    number: int,
    in_flight: int | None = None,
    on_tick: Callable[[int], None] = lambda done: None,
) -> RunResult:
    """Run every program of ``arrivals`` and wait for all of them.

    engine: the one that the graph's model is served by; it records the calls.
    arm, number: name this run among those that the engine has records of.
    in_flight: most programs at a time; those whose time has come wait for one to end, in their
        order. None: no limit.
    on_tick: called with the number of finished programs several times a second.

    Raises what a program raised first. Then, and on KeyboardInterrupt, programs that have not
    arrived never start, and those that run are left to end when their engine is closed.
    """
    stop = threading.Event()

    def program(arrival: Arrival) -> tuple[float, float, float, dict[str, Any]]:
        if stop.wait(arrival.at - (time.monotonic() - begin)):
            raise _Stopped
        # In this thread only; LangGraph copies the context to wherever it runs nodes.
        current_program.set(_label(arm, number, arrival))
        current_tenant.set(arrival.tenant)
        arrived = time.monotonic()
        # A closed loop has no schedule: a program is due when there is room for it.
        due = begin + arrival.at if in_flight is None else arrived
        state = graph.invoke(dict(arrival.state))
        return due, arrived, time.monotonic(), state

    threads = max(min(len(arrivals), in_flight or len(arrivals)), 1)
    pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="program")
    begin = time.monotonic()
    try:
        futures = [pool.submit(program, arrival) for arrival in arrivals]
        _wait(futures, on_tick)
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()

    records, states = [], {}
    for arrival, future in zip(arrivals, futures, strict=True):
        due, arrived, finished, state = future.result()
        calls = engine.calls(_label(arm, number, arrival))
        records.append(ProgramRecord(arrival.name, arrived, finished, calls, due, arrival.tenant))
        states[arrival.name] = state
    return RunResult(RunRecord(arm, tuple(records)), states)


def _wait(futures: Sequence[Future[Any]], on_tick: Callable[[int], None]) -> None:
    pending: set[Future[Any]] = set(futures)
    while pending:
        done, pending = wait(pending, timeout=_TICK_S, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()
        on_tick(len(futures) - len(pending))


def _label(arm: str, number: int, arrival: Arrival) -> str:
    return f"{arm} {number}: {arrival.name}"
