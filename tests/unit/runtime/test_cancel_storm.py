"""Hundreds of runs of all kinds, ended at random moments; those beside them are right."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Iterator

import pytest

from grape_lc import ChatGrape, GrapeEngine, attach
from tests.unit.runtime.word_graphs import LIMIT_S, MODEL, flow, graph, until_idle, word_hosts

GIVEN = {"topic": "bees"}
ANSWER = "weigh for plan bees and against plan bees "
LONGEST_S = 0.3

Moments = list[float]
"""Seconds after which runs are ended."""


@pytest.fixture(scope="module")
def engine() -> Iterator[GrapeEngine]:
    with word_hosts(), GrapeEngine(MODEL, progress=False) as engine:
        yield engine


async def run(engine: GrapeEngine, number: int) -> None:
    """One of four kinds of runs."""
    match number % 4:
        case 0:
            await flow().run(engine, GIVEN)
        case 1 | 2 as kind:
            plain = graph(engine, use_async=kind == 1)
            await attach(plain, flow(), model=engine, learn=False).ainvoke(GIVEN)
        case _:
            await ChatGrape(engine=engine).ainvoke("one two three four five")


async def ended(engine: GrapeEngine, number: int, moment: float) -> None:
    """A run that is cancelled; every third one twice, the second time amid its cleaning up."""
    task = asyncio.create_task(run(engine, number))
    await asyncio.sleep(moment)
    task.cancel()
    if number % 3 == 0:
        await asyncio.sleep(0)
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def by_cancels(engine: GrapeEngine, moments: Moments) -> None:
    async def storm() -> None:
        await asyncio.gather(*(ended(engine, n, moment) for n, moment in enumerate(moments)))

    asyncio.run(storm())


def by_the_end_of_the_loop(engine: GrapeEngine, moments: Moments) -> None:
    """``asyncio.run`` cancels what its coroutine leaves behind."""

    async def leave(moment: float) -> None:
        tasks = [asyncio.create_task(run(engine, n)) for n in range(len(moments) // 4)]
        await asyncio.sleep(moment)
        assert tasks

    for moment in moments[:4]:
        asyncio.run(leave(moment))


def by_closing(engine: GrapeEngine, moments: Moments) -> None:
    """Synchronous streams, left after some events."""
    for moment in moments:
        source = flow().stream_sync(engine, GIVEN)
        for _, _ in zip(range(int(moment / LONGEST_S * 25)), source, strict=False):
            pass
        source.close()  # type: ignore[attr-defined]


def test_a_storm_from_tasks_threads_and_loops_that_end(engine: GrapeEngine) -> None:
    rng = random.Random(11)
    ways: list[Callable[[GrapeEngine, Moments], None]] = [
        by_cancels,
        by_cancels,
        by_the_end_of_the_loop,
        by_the_end_of_the_loop,
        by_closing,
    ]
    threads = [
        threading.Thread(
            target=way, args=(engine, [LONGEST_S * rng.random() ** 2 for _ in range(60)])
        )
        for way in ways
    ]
    for thread in threads:
        thread.start()
    good = [flow().run_sync(engine, GIVEN).outputs["text"] for _ in range(5)]
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert good == [ANSWER] * 5
    until_idle(engine)
