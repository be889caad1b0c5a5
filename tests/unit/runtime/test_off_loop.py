"""Blocking work beside an event loop: nothing holds up who goes away, and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from contextvars import ContextVar
from typing import NoReturn

import pytest

from grape_lc.runtime.off_loop import off_loop

LIMIT_S = 60.0


class Work:
    """Begins at once, ends when it may; notes what is undone."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.undone: list[str] = []

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(LIMIT_S)
        return "result"

    async def has_begun(self) -> None:
        while not self.begun.is_set():  # noqa: ASYNC110 - set by a thread
            await asyncio.sleep(0.001)

    def undoes(self) -> bool:
        end = time.monotonic() + LIMIT_S
        while not self.undone and time.monotonic() < end:
            gc.collect()
            time.sleep(0.001)
        return self.undone == ["result"]


def fail() -> NoReturn:
    raise KeyError("work")


where: ContextVar[str] = ContextVar("where", default="nowhere")


async def test_results_errors_and_the_context_come_through() -> None:
    where.set("here")
    assert await off_loop(where.get) == "here"
    with pytest.raises(KeyError, match="work"):
        await off_loop(fail)
    undone: list[int] = []
    assert await off_loop(lambda: 7, undone.append) == 7
    assert undone == []


async def test_the_loop_goes_on_meanwhile() -> None:
    work = Work()
    waits = asyncio.create_task(off_loop(work))
    await work.has_begun()
    assert not waits.done()
    work.may_end.set()
    assert await waits == "result"


def test_a_cancelled_run_does_not_wait_for_it_and_the_result_is_undone() -> None:
    """``asyncio.run`` ends while the work is at it."""
    work = Work()

    async def cancelled() -> None:
        waits = asyncio.create_task(off_loop(work, work.undone.append))
        await work.has_begun()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    asyncio.run(cancelled())
    assert not work.may_end.is_set()
    assert work.undone == []
    work.may_end.set()
    assert work.undoes()


def test_a_result_that_came_too_late_is_undone_at_once() -> None:
    """It is there, but the cancel was before it."""
    undone: list[int] = []

    async def cancelled() -> None:
        ended = threading.Event()

        def work() -> int:
            ended.set()
            return 7

        waits = asyncio.create_task(off_loop(work, undone.append))
        await asyncio.sleep(0)
        assert ended.wait(LIMIT_S)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits

    asyncio.run(cancelled())
    end = time.monotonic() + LIMIT_S
    while not undone and time.monotonic() < end:
        time.sleep(0.001)
    assert undone == [7]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("close", [True, False], ids=["closed", "never resumed"])
def test_a_loop_that_ends_under_it(close: bool) -> None:
    """No cancel ever comes: the loop is closed, or everybody lets go of it."""
    work = Work()
    loop = asyncio.new_event_loop()
    waits = loop.create_task(off_loop(work, work.undone.append))
    loop.run_until_complete(work.has_begun())
    if close:
        loop.close()
    work.may_end.set()
    del loop, waits
    assert work.undoes()
