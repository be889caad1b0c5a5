"""The application's process or loop ends under its runs: no hang, no process, nothing open."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from grape_lc import ChatGrape, GrapeEngine, attach
from grape_lc.engine.base import CallRequest
from grape_lc.errors import EngineClosedError
from grape_lc.runtime import process
from tests.unit.runtime.word_graphs import (
    HOSTED,
    LIMIT_S,
    MODEL,
    flow,
    graph,
    until,
    until_idle,
    word_hosts,
)

ROOT = Path(__file__).resolve().parents[3]

BEGIN = """
import asyncio, gc, signal, sys, threading, time
from grape_lc import ChatGrape, GrapeEngine, attach
from grape_lc.runtime import client
from tests.unit.runtime.word_graphs import flow, graph, until, until_idle
client._VLLM = "word_engine:WordEngine"
# What runs in the background of a shell has SIGINT ignored, and so has all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
engine = GrapeEngine("someone/words", progress=False).start()
print(engine.pid, flush=True)
def attached(use_async):
    return attach(graph(engine, use_async=use_async), flow(), model=engine, learn=False)
seen = set()
def tell(call, request, delta):
    if call not in seen:
        seen.add(call)
        print("piece", flush=True)
engine.observe(tell)
NEVER = {"topic": "bees slow"}
# Longer than any test waits, word by word: Python hears of a signal when an event loop wakes up.
ON = {"topic": "on " * 20000}
LONG = {"topic": "bees " * 300}
"""


def begin(code: str) -> subprocess.Popen[str]:
    """A script that has a host with a word engine, whose pid is the first line it prints."""
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(HOSTED)])},
    )


def finish(code: str) -> tuple[str, str, int]:
    """What such a script prints to both channels, and its exit status. It must not hang."""
    with begin(code) as script:
        try:
            return *script.communicate(timeout=LIMIT_S), script.returncode
        finally:
            script.kill()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


# -- signals -----------------------------------------------------------------------------------

WORK = {
    "graph": "attached(False).invoke(ON)",
    "graph on a loop": "asyncio.run(attached(True).ainvoke(ON))",
    "flow": "flow().run_sync(engine, ON)",
    "flow on a loop": "asyncio.run(flow().run(engine, ON))",
    "stream of a model": "for _ in ChatGrape(engine=engine).stream(ON['topic']): pass",
}


@pytest.mark.parametrize(
    ("sent", "work"),
    [(signal.SIGINT, list(WORK)), (signal.SIGTERM, ["graph on a loop"])],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_ends_a_script_and_its_engine(sent: signal.Signals, work: list[str]) -> None:
    """Amid a call. A shell sees 130 of a SIGINT; all at once, to save time."""
    scripts = {what: begin(WORK[what]) for what in work}
    hosts: dict[str, int] = {}
    try:
        for what, script in scripts.items():
            assert script.stdout is not None
            hosts[what] = int(script.stdout.readline())
            assert script.stdout.readline() == "piece\n", what
            script.send_signal(sent)
        for what, script in scripts.items():
            _, errors = script.communicate(timeout=LIMIT_S)
            assert script.returncode == -sent, (what, errors)
            assert "ignored" not in errors, what
            assert "never retrieved" not in errors, what
            assert "was destroyed" not in errors, what
            until(lambda: gone(hosts[what]), "no host is left")  # noqa: B023 - called at once
    finally:
        for script in scripts.values():
            script.kill()
            script.wait()


HALF_READ = """
things = [
    flow().stream_sync(engine, NEVER),
    # Its call is in a thread that the interpreter waits for.
    attached(False).stream(LONG, stream_mode="messages"),
    ChatGrape(engine=engine).stream("one slow"),
]
for thing in things:
    next(thing)
loop = asyncio.new_event_loop()
things += [flow().stream(engine, NEVER), ChatGrape(engine=engine).astream("one slow")]
for thing in things[-2:]:
    loop.run_until_complete(anext(thing))
loop.close()
print("end", flush=True)
"""


def test_a_script_that_ends_with_streams_half_read_does_not_hang() -> None:
    """They are variables of the module: the interpreter ends before anyone closes them."""
    out, errors, status = finish(HALF_READ)
    host, *lines = out.splitlines()
    assert "end" in lines, errors
    assert status == 0, errors
    until(lambda: gone(int(host)), "no host is left")


# -- event loops -------------------------------------------------------------------------------

LOOPS = """
def gone_loop(close):
    loop = asyncio.new_event_loop()
    streams = [
        flow().stream(engine, LONG),
        attached(True).astream(LONG, stream_mode="messages"),
        ChatGrape(engine=engine).astream(LONG["topic"]),
    ]
    for stream in streams:
        loop.run_until_complete(anext(stream))
    assert engine.stats()["programs"] == 2
    if close:
        loop.close()
    asyncio.set_event_loop(None)

for close in (True, False):
    gone_loop(close)
    until_idle(engine)
    print("closed" if close else "never resumed", flush=True)

async def in_threads():
    loop = asyncio.get_running_loop()
    llm = ChatGrape(engine=engine)
    for topic in ("one two three", "four five six"):
        loop.run_in_executor(None, llm.invoke, topic)
    loop.run_in_executor(None, attached(False).invoke, {"topic": "bees"})
    await asyncio.sleep(0)

asyncio.run(in_threads())
until_idle(engine)
print("threads", flush=True)

async def inner():
    return (await attached(True).ainvoke({"topic": "bees"}))["text"]

async def outer():
    loop = asyncio.get_running_loop()
    beside = asyncio.ensure_future(inner())
    texts = [loop.run_until_complete(inner()), asyncio.run(inner()), await beside]
    texts.append(attached(False).invoke({"topic": "bees"})["text"])
    texts.append(flow().run_sync(engine, {"topic": "bees"}).outputs["text"])
    never = loop.create_task(attached(True).ainvoke(NEVER))
    loop.run_until_complete(asyncio.sleep(0.2))
    never.cancel()
    try:
        loop.run_until_complete(never)
    except asyncio.CancelledError:
        texts.append("cancelled")
    return texts

import nest_asyncio2
nest_asyncio2.apply()
texts = asyncio.run(outer())
until_idle(engine)
print(texts)
"""

TEXT = "weigh for plan bees and against plan bees "


@pytest.fixture(scope="module")
def loops() -> tuple[list[str], str]:
    """What the script prints, without the pieces of answers; its errors."""
    pytest.importorskip("nest_asyncio2")
    out, errors, _ = finish(LOOPS)
    return [line for line in out.splitlines() if line != "piece"], errors


@pytest.mark.parametrize(
    "story",
    [
        # Its calls in flight end, and its programs, though no code of it ever runs again. In a
        # process of its own: Python complains, rightly, about such a loop.
        "closed",
        "never resumed",
        # ``asyncio.run`` waits for them; their calls are served until then.
        "threads",
        # A patched asyncio, as old notebooks have it, enters the running loop again.
        str([TEXT] * 5 + ["cancelled"]),
    ],
)
def test_a_loop_that_ends_or_is_entered_again(story: str, loops: tuple[list[str], str]) -> None:
    lines, errors = loops
    assert story in lines, errors


# -- an engine that is still starting ----------------------------------------------------------

Way = Callable[[GrapeEngine], Awaitable[Any]]


async def enter(engine: GrapeEngine) -> None:
    async with engine:
        pytest.fail("entered")


async def call(engine: GrapeEngine) -> None:
    async for _ in engine.astream(CallRequest(text="one")):
        pass


WAYS: dict[str, Way] = {
    "entered": enter,
    "a call": call,
    "a model": lambda engine: ChatGrape(engine=engine).ainvoke("one"),
    "a flow": lambda engine: flow().run(engine, {"topic": "bees"}),
    "a graph": lambda engine: attach(
        graph(engine, use_async=True), flow(), model=engine, learn=False
    ).ainvoke({"topic": "bees"}),
}


def test_a_cancel_while_the_engine_starts_waits_for_nothing(tmp_path: Path) -> None:
    """The run ends at once, and so does ``asyncio.run``. What starts is there for the next one."""
    gate, begun = tmp_path / "gate", tmp_path / "begun"

    async def cancelled(way: Way, engine: GrapeEngine) -> None:
        task = asyncio.ensure_future(way(engine))
        while not begun.exists():  # noqa: ASYNC110 - made by another process
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with word_hosts("gated_engine:GatedEngine"):
        args: dict[str, Any] = {"progress": False, "gate": str(gate), "begun": str(begun)}
        engines = {what: GrapeEngine(MODEL, **args) for what in WAYS}
        for what, way in WAYS.items():
            asyncio.run(cancelled(way, engines[what]))
            assert not gate.exists()
        gate.touch()
        answer = flow().run_sync(engines["a call"], {"topic": "bees"}).outputs["text"]
        assert answer == "weigh for plan bees and against plan bees "
        until_idle(engines["a call"])
        with pytest.raises(EngineClosedError):
            engines["entered"].info()
        pid = engines["a call"].pid
        for engine in engines.values():
            engine.close()
        until(lambda: gone(pid), "no host is left")


def test_an_entered_engine_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    """Nobody else holds it: it comes up, and is closed."""
    gate, begun = tmp_path / "gate", tmp_path / "begun"

    async def too_long(engine: GrapeEngine) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await enter(engine)

    with word_hosts("gated_engine:GatedEngine"):
        engine = GrapeEngine(MODEL, progress=False, gate=str(gate), begun=str(begun))
        asyncio.run(too_long(engine))
        until(begun.exists, "it starts")
        (host,) = [host for host in process._live if host.alive and not host.info]
        gate.touch()
        until(lambda: gone(host.pid), "it ends")
