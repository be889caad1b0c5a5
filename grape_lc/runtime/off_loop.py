"""Blocking work for an event loop, on a thread that nobody waits for once it is not wanted."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Generic, TypeVar

T = TypeVar("T")


async def off_loop(work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
    """What ``work`` returns or raises, while the event loop goes on; in the caller's context.

    Starting an engine takes up to minutes. The threads of ``asyncio.to_thread`` are joined by
    ``asyncio.run`` and by the interpreter, so a run that is cancelled would end only with the
    start. This thread is joined by nobody.

    undo: gets the result if who waits for it has gone away: was cancelled, or was dropped with an
        event loop that is never resumed. Called once, on any thread.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    job = _Job(work, undo)

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    def run() -> None:
        job.run()
        try:
            loop.call_soon_threadsafe(tell)
        except RuntimeError:  # the loop is closed
            job.leave()

    context = copy_context()
    threading.Thread(target=context.run, args=(run,), name="grape-off-loop", daemon=True).start()
    try:
        await done
    except BaseException:
        job.leave()
        raise
    return job.take()


class _Job(Generic[T]):
    """Work and its result, which exactly one of two threads takes: no lock decides, for the
    garbage collector may be what makes one of them leave, in the middle of anything.
    """

    def __init__(self, work: Callable[[], T], undo: Callable[[T], object] | None) -> None:
        self._work = work
        self._undo = undo
        self._results: deque[T] = deque()
        self._error: BaseException | None = None
        self._left = False

    def run(self) -> None:
        """Do the work."""
        try:
            self._results.append(self._work())
        except BaseException as error:  # noqa: BLE001 - raised again by take()
            self._error = error
        if self._left:
            self.leave()

    def take(self) -> T:
        """The result. Raises what the work raised."""
        if self._error is not None:
            raise self._error
        return self._results.pop()

    def leave(self) -> None:
        """Nobody takes the result any more: undo it, now or when it is there."""
        self._left = True
        with contextlib.suppress(IndexError):
            result = self._results.pop()
            if self._undo is not None:
                self._undo(result)
