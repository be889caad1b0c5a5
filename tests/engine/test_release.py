"""Whatever way a run ends, its blocks, slots and open prompts come back."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from grape_lc import GrapeEngine, TaskFlow
from grape_lc.engine.base import CallRequest
from grape_lc.errors import EmptyPromptError, PromptTooLongError, RequestError
from grape_lc.flow.sampling import Sampling
from tests.engine.flows import SUBJECTS, chain, fan_in
from tests.engine.runs import run_program

LONG = CallRequest(
    messages=({"role": "user", "content": "Count from one to one thousand."},),
    sampling=Sampling(temperature=0.0, max_tokens=400, ignore_eos=True),
)

SHORT = Sampling(temperature=0.0, max_tokens=5, ignore_eos=True)


def wait_until(engine: GrapeEngine, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Statistics at the first look at which ``done`` holds."""
    end = time.monotonic() + 120
    while True:
        stats = engine.stats()
        if done(stats):
            return stats
        assert time.monotonic() < end, stats


def test_two_hundred_cancelled_runs_leave_nothing(
    engine: GrapeEngine, quiet: dict[str, Any]
) -> None:
    """Cancelled at any moment, ten at a time, beside runs that go on.

    Every other one after a number of events, so that as many get as far on every machine.
    """
    rng = random.Random(7)

    async def cancelled(number: int) -> None:
        flow = (chain if number % 3 else fan_in)(24)
        subject = SUBJECTS[number % len(SUBJECTS)]
        moment = rng.random() ** 2
        if number % 2:
            run: asyncio.Task[Any] = asyncio.create_task(run_program(engine, flow, subject))
            await asyncio.sleep(moment)
        else:
            reached = asyncio.Event()
            run = asyncio.create_task(count_events(flow, subject, int(40 * moment), reached))
            await reached.wait()
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run

    async def count_events(
        flow: TaskFlow, subject: str, wanted: int, reached: asyncio.Event
    ) -> None:
        seen = 0
        try:
            async for _ in flow.stream(engine, {"topic": subject}):
                seen += 1
                if seen > wanted:
                    reached.set()
        finally:
            reached.set()

    async def all_of_them() -> None:
        gate = asyncio.Semaphore(10)

        async def one(number: int) -> None:
            async with gate:
                await cancelled(number)

        survivor = asyncio.create_task(run_program(engine, chain(), "the last one"))
        await asyncio.gather(*(one(number) for number in range(200)))
        tokens, _ = await survivor
        assert set(tokens) == {"plan", "draft", "review"}

    asyncio.run(all_of_them())
    wait_until(engine, lambda s: s["requests"] == 0)
    assert engine.stats()["opened"] >= quiet["opened"] + 100  # by those that saw an event


def test_cancel_frees_everything_within_one_step(
    engine: GrapeEngine, quiet: dict[str, Any]
) -> None:
    """Another call keeps the engine stepping, so that steps can be counted.

    On a busy machine more steps pass before the engine hears of it: the best of some tries counts.
    """

    async def story() -> int:
        other = asyncio.create_task(drain())
        run = asyncio.create_task(run_program(engine, chain(300), "bees"))
        while True:
            stats = await asyncio.to_thread(engine.stats)
            if stats["open_prompts"] == 2 and stats["running"] == 2:
                break
        before = (await asyncio.to_thread(engine.stats))["steps"]
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        after = await asyncio.to_thread(
            wait_until, engine, lambda s: s["open_prompts"] == 0 and s["requests"] == 1
        )
        other.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await other
        return int(after["steps"] - before)

    async def drain() -> None:
        async for _ in engine.astream(LONG):
            pass

    steps: list[int] = []
    for _ in range(10):
        steps.append(asyncio.run(story()))
        wait_until(engine, lambda s: s["requests"] == 0)
        # A question is answered between steps, so asking takes a step itself, twice.
        if steps[-1] <= 1 + 2:
            return
    pytest.fail(f"freed after {steps} steps")


def test_an_error_in_the_consumer_releases_the_run(
    engine: GrapeEngine, quiet: dict[str, Any]
) -> None:
    """As when a node raises while its upstream's prompt is still open."""

    async def broken() -> None:
        async for _ in chain().stream(engine, {"topic": "bees"}):
            raise KeyError("node")

    with pytest.raises(KeyError):
        asyncio.run(broken())
    wait_until(engine, lambda s: s["requests"] == 0)


@pytest.mark.parametrize(
    ("request_", "error", "says"),
    [
        (CallRequest(text="word " * 3000), PromptTooLongError, "2048"),
        (CallRequest(text="hi", sampling=Sampling(max_tokens=2048)), PromptTooLongError, "2048"),
        (CallRequest(messages=()), EmptyPromptError, "messages"),
        (CallRequest(), RequestError, "exactly one"),
        (CallRequest(token_ids=()), EmptyPromptError, "no tokens"),
        (CallRequest(token_ids=(10**6,)), RequestError, "0..49151"),
        (CallRequest(text="hi", sampling=Sampling(extra={"nope": 1})), RequestError, "nope"),
        (CallRequest(text="hi", sampling=Sampling(top_k=-7)), RequestError, "top_k"),
        (
            CallRequest(text="hi", sampling=Sampling(extra={"include_stop_str_in_output": "yes"})),
            RequestError,
            "include_stop_str_in_output",
        ),
        (CallRequest(text="hi", sampling=Sampling(seed=2**70)), RequestError, "sampling"),
        (CallRequest(text="hi", sampling=Sampling(extra={"extra_args": 5})), RequestError, "extra"),
        (
            CallRequest(text="hi", sampling=Sampling(extra={"detokenize": False})),
            RequestError,
            "extra has 'detokenize'",
        ),
        (
            CallRequest(text="hi", sampling=Sampling(extra={"bad_words": "ab"})),
            RequestError,
            "list",
        ),
        (CallRequest(messages=({"content": "no role"},)), RequestError, "has no role"),
        (CallRequest(text="Now.", priority=-1), RequestError, "scheduling_policy='priority'"),
    ],
)
def test_bad_requests_get_our_error_and_others_finish(
    engine: GrapeEngine,
    quiet: dict[str, Any],
    request_: CallRequest,
    error: type[Exception],
    says: str,
) -> None:
    """At once, naming what is wrong, beside a call that goes on undisturbed."""
    good = engine.stream(LONG.model_copy(update={"sampling": SHORT}))
    next(good)
    with pytest.raises(error, match=says):
        list(engine.stream(request_))
    assert list(good)[-1].finish_reason == "length"
