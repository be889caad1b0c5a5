"""One program, run to its end or to what goes wrong in it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from grape_lc.engine.base import CallRequest
from grape_lc.errors import CallTimeoutError, PromptTooLongError, RequestError
from tests.soak.flows import flow_of
from tests.soak.graphs import NodeError
from tests.soak.moments import Moment, Outputs, Workplace, inputs_of, moments
from tests.soak.plan import Fault, Job


class Outcome(NamedTuple):
    """How a program ended.

    outputs: its answer, if it got one. error: the error that it got. left: whoever ran it went
    away, so it got neither.
    """

    outputs: Outputs | None = None
    error: BaseException | None = None
    left: bool = False

    def __str__(self) -> str:
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        return "left" if self.left else f"answered {self.outputs}"


ERRORS: dict[Fault, type[BaseException]] = {
    Fault.NODE_RAISES: NodeError,
    Fault.PROMPT_TOO_LONG: PromptTooLongError,
    Fault.BAD_SAMPLING: RequestError,
    Fault.TIMEOUT: CallTimeoutError,
}
"""What a program gets to hear of its fault."""

_CANCELLED_AT: dict[Fault, str | None] = {
    Fault.CANCELLED_IN_CALL: "token",
    Fault.CANCELLED_BETWEEN_CALLS: "answer",
    Fault.CANCELLED_AT_START: None,
}
_LEAVES = frozenset({*_CANCELLED_AT, Fault.READER_STOPS, Fault.ABANDONED, Fault.NEVER_CALLED})


async def run(job: Job, place: Workplace) -> Outcome:
    """Run a program and do to it what its fault says; what it raises is its outcome."""
    try:
        match job.fault:
            case Fault.READER_STOPS:
                await _stop_reading(job, place)
            case Fault.ABANDONED:
                await _abandon(job, place)
            case Fault.NEVER_CALLED:
                await _never_call(job, place)
            case fault if fault in _CANCELLED_AT:
                return await _cancel(job, place, _CANCELLED_AT[fault])
            case _:
                return Outcome(await _outputs(moments(job, place, streamed=False)))
    except Exception as error:  # noqa: BLE001 - whether it is the right one is judged elsewhere
        return Outcome(error=error)
    return Outcome(left=True)


def why_wrong(job: Job, outcome: Outcome) -> str | None:
    """Why a program should not have ended as it did; None if it should."""
    wanted = ERRORS.get(job.fault) if job.fault is not None else None
    if wanted is not None:
        right = isinstance(outcome.error, wanted)
    elif job.fault in _LEAVES:
        # It may have been quicker than what was to go wrong.
        right = outcome.left or outcome.outputs is not None
    else:
        right = outcome.outputs is not None
    return None if right else f"program {job.number} ({job}): {outcome}"


async def _outputs(stream: AsyncIterator[Moment]) -> Outputs:
    outputs: Moment = {}
    async for moment in stream:
        outputs = moment
    assert not isinstance(outputs, str), "the outputs come last"
    return outputs


async def _cancel(job: Job, place: Workplace, when: str | None) -> Outcome:
    """Cancel the task that runs it; ``when``: behind the first such moment, None: at once."""
    now = asyncio.Event()

    async def consume() -> Outputs:
        last: Moment = {}
        async for last in moments(job, place, streamed=True):
            if last == when:
                now.set()
        assert not isinstance(last, str)
        return last

    task = asyncio.create_task(consume())
    if when is None:
        await asyncio.sleep(job.pause_s / 10)
    else:
        waiting = asyncio.create_task(now.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
    task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        return Outcome(left=True)
    error = task.exception()
    return Outcome(task.result()) if error is None else Outcome(error=error)


async def _stop_reading(job: Job, place: Workplace) -> None:
    """Read one moment, then nothing for a while, and close the iterator."""
    stream: Any = moments(job, place, streamed=True)
    async with contextlib.aclosing(stream):
        await anext(stream)
        await asyncio.sleep(job.pause_s)


async def _abandon(job: Job, place: Workplace) -> None:
    """Read one moment and drop the iterator."""
    stream = moments(job, place, streamed=True)
    await anext(stream)
    del stream
    gc.collect(0)


async def _never_call(job: Job, place: Workplace) -> None:
    """Announce a program, make its first call, and leave the others open for a while."""
    flow, inputs, engine = flow_of(job.shape), inputs_of(job, place), place.engine
    program = engine.open_program(flow, inputs)
    try:
        first = flow.tasks[0]
        prompt: Any = first.prompt.render_partial(lambda slot: inputs[slot.variable])
        request = CallRequest(
            messages=tuple(prompt), sampling=first.sampling, program=program, task=first.name
        )
        async for _ in engine.astream(request):
            pass
        await asyncio.sleep(job.pause_s)
    finally:
        engine.close_program(program)
