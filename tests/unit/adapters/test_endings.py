"""However a run of an attached graph ends, its program is closed and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, TypedDict

import pytest
from langgraph.errors import GraphRecursionError
from langgraph.graph import START, StateGraph

from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.engine.base import CallRequest
from grape_lc.flow import TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine

HoldingEngine = Callable[[int], ScriptedEngine]
MakeTeam = Callable[..., Any]
INPUT = {"problem": "p"}


def handler_of(graph: Any) -> ProgramHandler:
    (handler,) = graph.config["callbacks"]
    assert isinstance(handler, ProgramHandler)
    return handler


def check_closed(graph: Any, engine: ScriptedEngine) -> None:
    assert len(engine.programs) == 1
    assert engine.open_programs == ()
    assert handler_of(graph).running == 0


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.002)


class Attached:
    """The team graph, attached to an engine that holds before one piece."""

    def __init__(
        self, make_team: MakeTeam, flow: TaskFlow, engine: ScriptedEngine, *, use_async: bool
    ) -> None:
        self.engine = engine
        self.graph = attach(make_team(ChatGrape(engine=engine), use_async=use_async), flow)

    @property
    def clock(self) -> Any:
        return self.engine.clock


# Pieces of the first answer (prd): 6. So piece 3 is in its middle, piece 8 in a parallel one.
@pytest.fixture(params=[3, 8], ids=["in the first call", "in parallel calls"])
def held(request: pytest.FixtureRequest, holding_engine: HoldingEngine) -> ScriptedEngine:
    return holding_engine(request.param)


async def test_the_task_is_cancelled(
    held: ScriptedEngine, make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    attached = Attached(make_team, team_flow, held, use_async=True)
    task = asyncio.create_task(attached.graph.ainvoke(INPUT))
    await attached.clock.reached.wait()
    assert len(held.open_programs) == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    check_closed(attached.graph, held)
    assert "cancelled" in {call.outcome for call in held.calls}
    assert "running" not in {call.outcome for call in held.calls}


async def test_the_run_takes_too_long(
    held: ScriptedEngine, make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    attached = Attached(make_team, team_flow, held, use_async=True)

    async def run() -> None:
        async with asyncio.timeout(None) as limit:
            task = asyncio.create_task(expire(limit))
            await attached.graph.ainvoke(INPUT)
            await task

    async def expire(limit: asyncio.Timeout) -> None:
        await attached.clock.reached.wait()
        limit.reschedule(asyncio.get_running_loop().time())

    with pytest.raises(TimeoutError):
        await run()
    check_closed(attached.graph, held)
    assert "running" not in {call.outcome for call in held.calls}


async def test_one_of_several_runs_is_cancelled(
    held: ScriptedEngine, make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    attached = Attached(make_team, team_flow, held, use_async=True)
    task = asyncio.create_task(attached.graph.ainvoke(INPUT))
    await attached.clock.reached.wait()
    other = await attached.graph.ainvoke({"problem": "q"})
    assert other["code"] == "def solve(): pass"
    assert [program.open for program in held.programs] == [True, False]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [program.open for program in held.programs] == [False, False]
    assert handler_of(attached.graph).running == 0


@pytest.mark.parametrize("stream_mode", ["updates", "messages"])
async def test_the_async_stream_is_closed(
    stream_mode: str, engine: ScriptedEngine, make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    attached = Attached(make_team, team_flow, engine, use_async=True)
    stream = attached.graph.astream(INPUT, stream_mode=stream_mode)
    await anext(stream)
    assert len(engine.open_programs) == 1
    await stream.aclose()
    check_closed(attached.graph, engine)


async def test_the_async_stream_is_dropped(
    engine: ScriptedEngine, make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    attached = Attached(make_team, team_flow, engine, use_async=True)

    async def peek(stream: AsyncIterator[Any]) -> None:
        async for _ in stream:
            break

    await peek(attached.graph.astream(INPUT))
    gc.collect()
    for _ in range(1000):
        if engine.programs and not engine.open_programs:
            break
        await asyncio.sleep(0.002)
    check_closed(attached.graph, engine)


NEVER_RESUMED = """
import asyncio, gc, time
from tests.unit.adapters.conftest import ANSWERS, make_team_flow, team_graph
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.runtime.scripted import ScriptedEngine

engine = ScriptedEngine(ANSWERS)
graph = attach(team_graph(ChatGrape(engine=engine), use_async=True), make_team_flow())
stream = graph.astream({"problem": "p"})
loop = asyncio.new_event_loop()
loop.run_until_complete(anext(stream))
assert len(engine.open_programs) == 1
# No loop is there to run the iterator to its end: LangGraph makes no further callback.
loop.close()
del stream
gc.collect()
deadline = time.monotonic() + 60
while engine.open_programs or graph.config["callbacks"][0].running:
    assert time.monotonic() < deadline, "the program stays open"
    time.sleep(0.002)
print("closed")
"""


def test_the_event_loop_is_never_resumed() -> None:
    # In a process of its own: Python complains, rightly, about such a loop.
    done = subprocess.run(
        [sys.executable, "-c", NEVER_RESUMED],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout == "closed\n", done.stderr


@pytest.mark.parametrize("drop", [False, True], ids=["closed", "dropped"])
@pytest.mark.parametrize("stream_mode", ["updates", "messages"])
def test_the_stream_is_left_early(
    stream_mode: str, drop: bool, engine: ScriptedEngine, make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    attached = Attached(make_team, team_flow, engine, use_async=False)
    stream = attached.graph.stream(INPUT, stream_mode=stream_mode)
    next(stream)
    assert len(engine.open_programs) == 1
    if drop:
        del stream
        gc.collect()
    else:
        stream.close()
    check_closed(attached.graph, engine)


def test_a_held_stream_keeps_its_program(
    engine: ScriptedEngine, make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    attached = Attached(make_team, team_flow, engine, use_async=False)
    stream = attached.graph.stream(INPUT)
    next(stream)
    gc.collect()
    assert len(engine.open_programs) == 1
    list(stream)
    check_closed(attached.graph, engine)


class State(TypedDict, total=False):
    problem: str


@pytest.mark.parametrize("use_async", [False, True])
async def test_a_node_fails(use_async: bool, engine: ScriptedEngine, team_flow: TaskFlow) -> None:
    llm = ChatGrape(engine=engine)

    def ask(state: State) -> State:
        llm.invoke("code")
        return {}

    def fail(state: State) -> State:
        raise RuntimeError("boom")

    builder = StateGraph(State).add_node("prd", ask).add_node("design", fail)
    builder.add_node("risks", ask).add_node("code", ask).add_edge(START, "prd")
    builder.add_edge("prd", "design").add_edge("design", "risks").add_edge("risks", "code")
    graph = attach(builder.compile(), team_flow)
    with pytest.raises(RuntimeError, match="boom"):
        await graph.ainvoke({"problem": "p"}) if use_async else graph.invoke({"problem": "p"})
    check_closed(graph, engine)


def test_a_call_fails(make_team: MakeTeam, team_flow: TaskFlow) -> None:
    engine = ScriptedEngine({"prd": "fine", "design": ValueError("no"), "risks": "some"})
    graph = attach(make_team(ChatGrape(engine=engine)), team_flow)
    with pytest.raises(ValueError, match="no"):
        graph.invoke(INPUT)
    check_closed(graph, engine)


def test_the_engine_is_closed_under_way(make_team: MakeTeam, team_flow: TaskFlow) -> None:
    def close_and_answer(request: CallRequest) -> str:
        engine.close()
        return "too late"

    engine = ScriptedEngine(close_and_answer)
    graph = attach(make_team(ChatGrape(engine=engine)), team_flow)
    with pytest.raises(RuntimeError, match="after close"):
        graph.invoke(INPUT)
    check_closed(graph, engine)


def test_the_graph_goes_in_circles(engine: ScriptedEngine, team_flow: TaskFlow) -> None:
    def ask(state: State) -> State:
        ChatGrape(engine=engine).invoke("code")
        return {}

    builder = StateGraph(State).add_edge(START, "prd")
    names = ["prd", "design", "risks", "code"]
    for name, after in zip(names, [*names[1:], names[0]], strict=True):
        builder.add_node(name, ask).add_edge(name, after)
    graph = attach(builder.compile(), team_flow)
    with pytest.raises(GraphRecursionError):
        graph.invoke({"problem": "p"}, {"recursion_limit": 9})
    check_closed(graph, engine)


def test_an_end_waits_for_a_program_that_is_being_opened(
    make_team: MakeTeam, team_flow: TaskFlow
) -> None:
    """A program must not be opened behind the back of the run's end."""
    opening, go_on = threading.Event(), threading.Event()

    class SlowEngine(ScriptedEngine):
        def open_program(self, flow: TaskFlow, inputs: Any, tenant: str = "") -> str:
            opening.set()
            assert go_on.wait(60)
            return super().open_program(flow, inputs, tenant)

    engine = SlowEngine("ok")

    def ask(state: State) -> State:
        ChatGrape(engine=engine).invoke("code")
        return {}

    async def fail(state: State) -> State:
        await asyncio.to_thread(opening.wait, 60)
        raise RuntimeError("boom")

    builder = StateGraph(State).add_node("prd", ask).add_node("design", fail)
    builder.add_node("risks", ask).add_node("code", ask)
    builder.add_edge(START, "prd").add_edge(START, "design")
    builder.add_edge("prd", "risks").add_edge("risks", "code")
    graph = attach(builder.compile(), team_flow)

    async def run() -> None:
        with pytest.raises(RuntimeError, match="boom"):
            await graph.ainvoke({"problem": "p"})

    threading.Timer(0.2, go_on.set).start()
    asyncio.run(run())
    eventually(lambda: len(engine.programs) == 1, "the program was opened")
    eventually(lambda: engine.open_programs == (), "and closed")
