"""The application fails, goes away or runs out of time: its run ends, others go on, all is freed.

Host, sockets, LangGraph and event loops are the real ones; the engine answers with the prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from grape_lc import ChatGrape, GrapeEngine, attach
from grape_lc.engine.base import CallRequest
from grape_lc.errors import CallTimeoutError, EngineClosedError
from tests.unit.runtime.word_graphs import (
    LIMIT_S,
    MODEL,
    flow,
    graph,
    left_in,
    until,
    until_idle,
    word_hosts,
)

GIVEN = {"topic": "bees"}
ANSWER = "weigh for plan bees and against plan bees "
LONG = {"topic": "bees " * 300}
"""Calls of some seconds."""

NEVER = {"topic": "bees slow"}
"""Its first call does not end."""


@pytest.fixture(scope="module")
def engine() -> Iterator[GrapeEngine]:
    with word_hosts(), GrapeEngine(MODEL, progress=False) as engine:
        yield engine


@pytest.fixture(autouse=True)
def idle_again(engine: GrapeEngine) -> Iterator[None]:
    """Whatever a test does: nothing is left, and the engine serves."""
    yield
    until_idle(engine)
    assert flow().run_sync(engine, GIVEN).outputs == {"text": ANSWER}


def attached(engine: GrapeEngine, *, use_async: bool, **options: Any) -> Any:
    return attach(graph(engine, use_async=use_async, **options), flow(), model=engine, learn=False)


def under_way(engine: GrapeEngine) -> bool:
    left = left_in(engine)
    return left["running"] >= 1


# -- streams that are left ---------------------------------------------------------------------

Stream = Callable[[GrapeEngine, dict[str, str]], AsyncIterator[Any]]


def of_flow(engine: GrapeEngine, given: dict[str, str]) -> AsyncIterator[Any]:
    return flow().stream(engine, given)


def of_graph(engine: GrapeEngine, given: dict[str, str]) -> AsyncIterator[Any]:
    stream: AsyncIterator[Any] = attached(engine, use_async=True).astream(
        given, stream_mode="messages"
    )
    return stream


def of_model(engine: GrapeEngine, given: dict[str, str]) -> AsyncIterator[Any]:
    return ChatGrape(engine=engine).astream(f"plan {given['topic']} and go on")


streams = pytest.mark.parametrize("stream", [of_flow, of_graph, of_model])


@streams
def test_closed_at_any_point(stream: Stream, engine: GrapeEngine) -> None:
    """By ``aclose``, between any two of its items."""

    async def closed_after(items: int) -> bool:
        source = stream(engine, GIVEN)
        async with contextlib.aclosing(source):  # type: ignore[type-var]
            for _ in range(items):
                if await anext(source, None) is None:
                    return True
        return False

    async def all_of_them() -> None:
        items = 0
        while not await closed_after(items):
            items += 1
        assert items > 4

    asyncio.run(all_of_them())


@streams
@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_left_to_the_end_of_the_loop(stream: Stream, loops: str, engine: GrapeEngine) -> None:
    """Its consumer ended with it half read: ``shutdown_asyncgens`` finds it, amid a call."""
    new_loop = pytest.importorskip(loops).new_event_loop
    held: list[AsyncIterator[Any]] = []

    async def half_read() -> None:
        for _ in range(3):
            source = stream(engine, LONG)
            held.append(source)
            await anext(source)

    for _ in range(2):  # a second loop after the first
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(half_read())
        until_idle(engine)


@streams
def test_a_consumer_that_breaks_out(stream: Stream, engine: GrapeEngine) -> None:
    """The loop goes on: the dropped iterator is finalised by it, or by the collector."""

    async def some() -> None:
        async for _ in stream(engine, LONG):
            break

    async def and_then() -> None:
        await some()
        end = asyncio.get_running_loop().time() + LIMIT_S
        while await asyncio.to_thread(under_way, engine):
            assert asyncio.get_running_loop().time() < end

    asyncio.run(and_then())


@pytest.mark.parametrize("what", ["flow", "graph", "model", "threads"])
def test_a_synchronous_stream_that_is_dropped(what: str, engine: GrapeEngine) -> None:
    """In a cycle, so that it is the garbage collector, on some thread, that ends it."""

    def begin() -> None:
        match what:
            case "flow":
                source: Iterator[Any] = flow().stream_sync(engine, LONG)
            case "graph" | "threads":
                # With updates the first item comes behind the first call; the next are in threads.
                mode = "messages" if what == "graph" else "updates"
                given = LONG if what == "graph" else GIVEN
                source = attached(engine, use_async=False).stream(given, stream_mode=mode)
            case _:
                source = ChatGrape(engine=engine).stream(LONG["topic"])
        next(source)
        cycle: list[Any] = [source]
        cycle.append(cycle)

    for _ in range(3):
        begin()


async def test_a_slow_reader_gets_it_all_and_holds_nobody_up(engine: GrapeEngine) -> None:
    """Others run past it; the engine is done with its call long before it has read it."""
    words = " ".join(f"w{number}" for number in range(300))
    source = engine.astream(CallRequest(text=words))
    read = [(await anext(source)).text]
    assert (await flow().run(engine, GIVEN)).outputs == {"text": ANSWER}
    await asyncio.to_thread(until_idle, engine)
    read += [delta.text async for delta in source]
    assert "".join(read) == f"{words} "


# -- errors ------------------------------------------------------------------------------------


class NodeError(Exception):
    """Of the user's code."""


@pytest.mark.parametrize("use_async", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("name", ["plan", "pro", "text"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_node_raises(use_async: bool, name: str, when: str, engine: GrapeEngine) -> None:
    """Before or after its call; ``pro`` beside another branch. A second run goes on undisturbed."""

    def hook(node: str, at: str) -> None:
        if (node, at) == (name, when):
            raise NodeError(name)

    broken = attached(engine, use_async=use_async, hook=hook)
    good = attached(engine, use_async=True)
    beside = asyncio.create_task(good.ainvoke(GIVEN))
    with pytest.raises(NodeError):
        await broken.ainvoke(GIVEN)
    assert (await beside)["text"] == ANSWER


async def test_a_branch_raises_while_another_one_decodes(engine: GrapeEngine) -> None:
    """That one's call would never end: it is cut off."""
    begun = asyncio.Event()

    async def endless(state: Any) -> Any:
        source = ChatGrape(engine=engine).astream("on and on slow")
        async for _ in source:
            begun.set()
        return {}

    async def broken(state: Any) -> Any:
        await begun.wait()
        raise NodeError("pro")

    builder = graph(engine, use_async=True).builder
    builder.nodes["contra"].runnable.afunc = endless
    builder.nodes["pro"].runnable.afunc = broken
    both = attach(builder.compile(), flow(), model=engine, learn=False)
    with pytest.raises(NodeError):
        await both.ainvoke(GIVEN)


class Broken(BaseCallbackHandler):
    """Raises where it is told to."""

    raise_error = True
    run_inline = True

    def __init__(self, at: str) -> None:
        self._at = at

    def _comes(self, at: str) -> None:
        if at == self._at:
            raise NodeError(at)

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self._comes("start")

    def on_llm_new_token(self, *args: Any, **kwargs: Any) -> None:
        self._comes("token")

    def on_llm_end(self, *args: Any, **kwargs: Any) -> None:
        self._comes("end")


# LangChain does not await the other handlers then.
@pytest.mark.filterwarnings("ignore:coroutine 'ahandle_event' was never awaited")
@pytest.mark.parametrize("at", ["start", "token", "end"])
@pytest.mark.parametrize("use_async", [True, False], ids=["async", "sync"])
async def test_a_callback_raises(at: str, use_async: bool, engine: GrapeEngine) -> None:
    """The user's own, in the middle of an answer or around it."""
    run = attached(engine, use_async=use_async)
    with pytest.raises(NodeError):
        async for _ in run.astream(GIVEN, {"callbacks": [Broken(at)]}, stream_mode="messages"):
            pass


# -- time that is up ---------------------------------------------------------------------------


@pytest.mark.parametrize("use_async", [True, False], ids=["async", "sync"])
async def test_a_call_has_had_its_time(use_async: bool, engine: GrapeEngine) -> None:
    run = attached(engine, use_async=use_async, timeout=0.2)
    with pytest.raises(CallTimeoutError, match=r"0\.2 s"):
        await run.ainvoke(NEVER)


async def test_a_run_has_had_its_time(engine: GrapeEngine) -> None:
    """By a limit around it, or LangGraph's own on a step; whole flows alike."""
    run = attached(engine, use_async=True)
    for work in (
        lambda: run.ainvoke(NEVER),
        lambda: flow().run(engine, NEVER),
        lambda: ChatGrape(engine=engine).ainvoke("slow"),
    ):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work(), 0.2)
        await asyncio.to_thread(until_idle, engine)
    run.step_timeout = 0.2
    with pytest.raises(TimeoutError):
        await run.ainvoke(NEVER)


# -- cancels that come again -------------------------------------------------------------------


@streams
def test_cancelled_again_amid_its_cleaning_up(stream: Stream, engine: GrapeEngine) -> None:
    """As anyio does it. LangGraph's own clean-up is cut off by that, and would leave the call."""

    async def consume(begun: asyncio.Event) -> None:
        async for _ in stream(engine, NEVER):
            begun.set()

    async def cancelled() -> None:
        begun = asyncio.Event()
        task = asyncio.create_task(consume(begun))
        await begun.wait()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)
        # The loop goes on, and the run must not.
        await asyncio.to_thread(until_idle, engine)

    asyncio.run(cancelled())


async def test_a_cancel_that_its_caller_survives(engine: GrapeEngine) -> None:
    """Who ran the graph is not cancelled a second time, nor is what else it does."""
    run = attached(engine, use_async=True)
    beside = asyncio.create_task(attached(engine, use_async=True).ainvoke(GIVEN))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await run.ainvoke(NEVER)
    assert (await run.ainvoke(GIVEN))["text"] == (await beside)["text"] == ANSWER


# -- handles that are closed -------------------------------------------------------------------


def test_a_handle_that_is_closed_under_its_run(engine: GrapeEngine) -> None:
    """Another one holds the engine, so the run's program has to be closed by itself."""
    handle = GrapeEngine(MODEL, progress=False)
    events = flow().stream_sync(handle, NEVER)
    next(events)
    handle.close()
    assert left_in(engine)["programs"] == 1
    events.close()  # type: ignore[attr-defined]
    until_idle(engine)

    async def next_call_fails() -> None:
        other = GrapeEngine(MODEL, progress=False)
        run = attached(other, use_async=True, hook=lambda name, when: other.close())
        with pytest.raises(EngineClosedError):
            await run.ainvoke(GIVEN)

    asyncio.run(next_call_fails())


def test_a_call_that_meets_a_close_starts_no_new_engine() -> None:
    """It came before the close was complete, and waits for it."""
    with word_hosts():
        handle = GrapeEngine(MODEL, progress=False, max_model_len=77).start()
        errors: list[BaseException] = []

        def call() -> None:
            try:
                handle.info()
            except EngineClosedError as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        with handle._shared.lock:
            thread.start()
            until(lambda: _waits(thread), "the call waits")
            handle.close()
        thread.join(LIMIT_S)
        assert len(errors) == 1
        assert handle._shared.running is None


def _waits(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name in ("_host", "host")
