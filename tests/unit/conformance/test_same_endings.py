"""A run that fails, is cancelled or is left ends as it would without attach, and leaves nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from grape_lc import ScriptedEngine
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.engine.base import CallRequest
from grape_lc.runtime.scripted import VirtualClock
from tests.shapes import SHAPES, Shape
from tests.shapes.compare import comparable, config_of, history
from tests.shapes.coverage import LEARNING, play
from tests.shapes.making import Source, make

SOURCES: tuple[Source, ...] = ("learned", "traced")

# A synchronous entrypoint that waits for a task whose run was left waits for ever, and so does its
# thread. That is LangGraph's, attached or not.
shapes_to_leave = pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if shape.name != "functional"], ids=str
)
sources = pytest.mark.parametrize("source", SOURCES)


class HoldingClock(VirtualClock):
    """Holds a coroutine before a piece, for ever; ``left`` counts the pieces before that one."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self.left = -1

    async def asleep(self, seconds: float) -> None:
        self.left -= 1
        if self.left == -1:
            self.reached.set()
            await asyncio.Event().wait()


def check_idle(graph: Any, engine: ScriptedEngine) -> None:
    """Nothing of a run is left; a run that LangGraph drops is noticed a moment later."""
    end = time.monotonic() + 60
    while engine.open_programs and time.monotonic() < end:
        time.sleep(0.01)
    assert engine.open_programs == ()
    callbacks = (graph.config or {}).get("callbacks") or []
    handlers = getattr(callbacks, "handlers", callbacks)
    running = [h.running for h in handlers if isinstance(h, ProgramHandler)]
    assert running == [0]


def prepared(
    shape: Shape, source: Source, answer: Callable[[CallRequest], Any], clock: Any = None
) -> tuple[Any, ScriptedEngine]:
    graph, engine = make(shape, source, ScriptedEngine(answer, clock=clock))
    for number in range(LEARNING):
        play(graph, shape, shape.runs[number], thread=f"early {number}")
    return graph, engine


# -- errors -----------------------------------------------------------------------------------


class BrokenLineError(Exception):
    """What the model's provider raises."""


def outcome(shape: Shape, source: Source, label: str) -> tuple[Any, ...]:
    """The error, and what a thread keeps, when the calls of a node fail."""
    failing = False

    def answer(request: CallRequest) -> Any:
        if failing and request.label == label:
            return BrokenLineError(f"no answer for {label}")
        return shape.answer(request)

    graph, engine = prepared(shape, source, answer)
    failing = True
    with pytest.raises(BrokenLineError) as caught:
        play(graph, shape, shape.runs[LEARNING], thread="t")
    if source != "plain":
        check_idle(graph, engine)
    kept = history(graph, "t")
    if shape.parallel:
        # What else has ended of the step that failed is a matter of time.
        kept = kept[1:]
    return (
        comparable(caught.value),
        [call.request.label for call in engine.calls].count(label),
        kept,
    )


FAILURES = [
    pytest.param(shape, label, id=f"{shape}-{label}")
    for shape in SHAPES
    for label in sorted({call.split("#")[0] for call in shape.runs[LEARNING].calls})
    if label != "model"  # a call from a bare thread has no name
]


@pytest.mark.parametrize(("shape", "label"), FAILURES)
def test_a_call_that_fails(shape: Shape, label: str) -> None:
    expected = outcome(shape, "plain", label)
    for source in SOURCES:
        assert outcome(shape, source, label) == expected


# -- runs that are left -----------------------------------------------------------------------


@sources
@shapes_to_leave
def test_a_stream_that_is_closed(shape: Shape, source: Source) -> None:
    graph, engine = prepared(shape, source, shape.answer)
    turn = shape.runs[LEARNING].turns[0]
    if shape.sync:
        stream = graph.stream(turn, config_of("t"), stream_mode="updates")
        next(stream)
        stream.close()
        check_idle(graph, engine)

    async def leave() -> None:
        async with aclosing(graph.astream(turn, config_of("u"), stream_mode="updates")) as items:
            await anext(items)

    asyncio.run(leave())
    check_idle(graph, engine)
    # The graph is as good as before.
    play(graph, shape, shape.runs[LEARNING], thread="v")
    check_idle(graph, engine)


@sources
@shapes_to_leave
def test_a_run_that_is_cancelled_between_two_steps(shape: Shape, source: Source) -> None:
    for kind in ("plain", source):
        graph, engine = prepared(shape, kind, shape.answer)

        async def cancel(graph: Any) -> None:
            begun = asyncio.Event()

            async def consume() -> None:
                turn = shape.runs[LEARNING].turns[0]
                async for _ in graph.astream(turn, config_of("t"), stream_mode="updates"):
                    begun.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(consume())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel(graph))
        if kind != "plain":
            check_idle(graph, engine)


ASYNC = next(shape for shape in SHAPES if not shape.sync)


@sources
@pytest.mark.parametrize("pieces", [0, 1, 20, 40, 70])
@pytest.mark.parametrize("limit", [False, True])
def test_a_run_that_is_cancelled_in_a_call(source: Source, pieces: int, limit: bool) -> None:
    """Coroutine nodes, whose calls end with the run: by ``cancel``, or by a time limit."""
    kept = []
    for kind in ("plain", source):
        clock = HoldingClock()
        graph, engine = prepared(ASYNC, kind, ASYNC.answer, clock)
        before = len(engine.calls)

        async def run(graph: Any, clock: HoldingClock) -> None:
            clock.left = pieces
            call = graph.ainvoke(ASYNC.runs[LEARNING].turns[0], config_of("t"))
            task = asyncio.create_task(asyncio.wait_for(call, 0.2) if limit else call)
            await clock.reached.wait()
            if not limit:
                task.cancel()
            with pytest.raises(TimeoutError if limit else asyncio.CancelledError):
                await task

        asyncio.run(run(graph, clock))
        calls = engine.calls[before:]
        outcomes = {call.outcome for call in calls}
        assert "cancelled" in outcomes <= {"finished", "cancelled"}
        if kind != "plain":
            check_idle(graph, engine)
        kept.append([call.text for call in calls])
    assert kept[0] == kept[1]
