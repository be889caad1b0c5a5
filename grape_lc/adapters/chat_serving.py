"""Calls made on an engine: closed when the caller goes away, made again when the engine died."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import NamedTuple

from grape_lc.engine.base import CallDelta, CallRequest, EngineClient, Usage
from grape_lc.errors import EngineDiedError


class Call(NamedTuple):
    """A call that is about to be made, and who wants to know what it took; None: nobody.

    ``ended`` is called once, with the usage, when the answer is complete.
    """

    request: CallRequest
    ended: Callable[[Usage], None] | None = None

    def several(self, n: int) -> list[Call]:
        """``n`` calls for as many answers, of which the first is told of.

        Only the first takes over an open prompt and is a task of its program; the others find the
        prompt in the prefix cache. With a seed each has a seed of its own, or all were the same.
        """
        seed = self.request.sampling.seed
        calls = [self]
        for number in range(1, n):
            sampling = self.request.sampling
            if seed is not None:
                sampling = sampling.model_copy(update={"seed": seed + number})
            # The program stays: a call without one is looked for by its prompt.
            update = {"task": None, "sampling": sampling}
            calls.append(Call(self.request.model_copy(update=update)))
        return calls

    def note(self, delta: CallDelta) -> None:
        """Pass on the usage that the last delta carries."""
        if delta.usage is not None and self.ended is not None:
            self.ended(delta.usage)


def stream(engine: EngineClient, call: Call, retries: int) -> Iterator[CallDelta]:
    """The deltas of a call. It is made again only if nothing of it was seen yet."""
    while True:
        seen = False
        try:
            with closing(engine.stream(call.request)) as deltas:
                for delta in deltas:
                    seen = True
                    call.note(delta)
                    yield delta
                return
        except EngineDiedError:
            if seen or retries == 0 or not _restarts(engine):
                raise
        retries -= 1


async def astream(engine: EngineClient, call: Call, retries: int) -> AsyncIterator[CallDelta]:
    """As ``stream``."""
    while True:
        seen = False
        try:
            async with aclosing(engine.astream(call.request)) as deltas:
                async for delta in deltas:
                    seen = True
                    call.note(delta)
                    yield delta
                return
        except EngineDiedError:
            if seen or retries == 0 or not _restarts(engine):
                raise
        retries -= 1


def collect(engine: EngineClient, calls: Sequence[Call], retries: int) -> list[list[CallDelta]]:
    """All deltas of calls that run side by side."""
    while True:
        try:
            with ExitStack() as stack:
                open_ = [stack.enter_context(closing(engine.stream(c.request))) for c in calls]
                # A call begins with its first delta. One after the other: what the first one
                # prefilled is there for the others.
                begun = [[next(deltas)] for deltas in open_]
                answers = [[*first, *rest] for first, rest in zip(begun, open_, strict=True)]
            return _noted(calls, answers)
        except EngineDiedError:
            if retries == 0 or not _restarts(engine):
                raise
        retries -= 1


async def acollect(
    engine: EngineClient, calls: Sequence[Call], retries: int
) -> list[list[CallDelta]]:
    """As ``collect``."""
    while True:
        try:
            async with AsyncExitStack() as stack:
                open_ = [
                    await stack.enter_async_context(aclosing(engine.astream(c.request)))
                    for c in calls
                ]
                answers = [[await anext(deltas)] for deltas in open_]
                for answer, rest in zip(answers, open_, strict=True):
                    answer += [delta async for delta in rest]
            return _noted(calls, answers)
        except EngineDiedError:
            if retries == 0 or not _restarts(engine):
                raise
        retries -= 1


def _noted(calls: Sequence[Call], answers: list[list[CallDelta]]) -> list[list[CallDelta]]:
    for call, answer in zip(calls, answers, strict=True):
        call.note(answer[-1])
    return answers


def _restarts(engine: EngineClient) -> bool:
    """Whether the engine starts anew at its next use."""
    return hasattr(engine, "start")


@contextmanager
def closing(deltas: Iterator[CallDelta]) -> Iterator[Iterator[CallDelta]]:
    """End the call when the caller goes away, not when the garbage collector comes by."""
    try:
        yield deltas
    finally:
        if (close := getattr(deltas, "close", None)) is not None:
            close()


@asynccontextmanager
async def aclosing(deltas: AsyncIterator[CallDelta]) -> AsyncIterator[AsyncIterator[CallDelta]]:
    """As ``closing``."""
    try:
        yield deltas
    finally:
        if (aclose := getattr(deltas, "aclose", None)) is not None:
            await aclose()
