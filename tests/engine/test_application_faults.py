"""The application fails, goes away or runs out of time, on a real engine under attached graphs.

The same without a model, in more ways, is in ``tests/unit/runtime``.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler

from grape_lc import ChatGrape, GrapeEngine, InputVar, IntermediateVar, OutputVar, TaskFlow, attach
from grape_lc.engine.base import CallRequest
from grape_lc.errors import CallTimeoutError, PromptTooLongError
from grape_lc.flow.sampling import Sampling
from tests.engine.flows import chain
from tests.engine.runs import run_program
from tests.engine.test_langgraph import config, team
from tests.engine.test_release import wait_until

GIVEN = {"problem": "sorting numbers"}
ENDLESS = 1500
"""Tokens of an answer that takes longer than any test waits."""


def attached(engine: GrapeEngine, max_tokens: int = 24) -> Any:
    return attach(team(engine, {}, max_tokens=max_tokens), trace=True, model=engine, learn=False)


def idle(stats: dict[str, Any]) -> bool:
    return bool(stats["requests"] == stats["open_prompts"] == stats["programs"] == 0)


# -- a run that fails --------------------------------------------------------------------------


class UserError(Exception):
    """Of the user's own code."""


class Broken(BaseCallbackHandler):
    """Raises at the fifth piece of an answer."""

    raise_error = True
    run_inline = True

    def __init__(self) -> None:
        self._left = 5

    def on_llm_new_token(self, *args: Any, **kwargs: Any) -> None:
        self._left -= 1
        if self._left == 0:
            raise UserError("token")


async def a_branch_raises(engine: GrapeEngine) -> None:
    """While the other one decodes."""
    graph = team(engine, {})
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=ENDLESS, ignore_eos=True)
    begun = asyncio.Event()

    async def endless(state: Any) -> Any:
        async for _ in llm.astream(f"{state['prd']}\n\nName some tests for that."):
            begun.set()
        return {}

    async def broken(state: Any) -> Any:
        await begun.wait()
        raise UserError("design")

    graph.builder.nodes["tests"].runnable.afunc = endless
    graph.builder.nodes["design"].runnable.afunc = broken
    both = attach(graph.builder.compile(), model=engine, learn=False, trace=False)
    await both.ainvoke(GIVEN)


async def a_callback_raises(engine: GrapeEngine) -> None:
    run = attached(engine, ENDLESS)
    options = {**config("callback"), "callbacks": [Broken()]}
    async for _ in run.astream(GIVEN, options, stream_mode="messages"):
        pass


async def a_call_takes_too_long(engine: GrapeEngine) -> None:
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=ENDLESS, ignore_eos=True, timeout=0.5)
    await llm.ainvoke("Count from one to one thousand.")


async def a_run_takes_too_long(engine: GrapeEngine) -> None:
    await asyncio.wait_for(attached(engine, ENDLESS).ainvoke(GIVEN, config("run")), 0.5)


@pytest.mark.parametrize(
    ("fails", "error"),
    [
        (a_branch_raises, UserError),
        (a_callback_raises, UserError),
        (a_call_takes_too_long, CallTimeoutError),
        (a_run_takes_too_long, TimeoutError),
    ],
)
async def test_a_run_that_fails_gives_its_blocks_and_slots_back(
    fails: Callable[[GrapeEngine], Any],
    error: type[Exception],
    engine: GrapeEngine,
    quiet: dict[str, Any],
) -> None:
    """Long before its calls are done, while another run goes on undisturbed."""
    beside = asyncio.create_task(run_program(engine, chain(12), "the sea"))
    with pytest.raises(error):
        await fails(engine)
    tokens, _ = await beside
    assert set(tokens) == {"plan", "draft", "review"}
    await asyncio.to_thread(wait_until, engine, idle)


# -- prompts that do not fit -------------------------------------------------------------------


def too_long_later() -> TaskFlow:
    """Its first call fits, its second one never: with and without what it reads from the first."""
    flow = TaskFlow(name="too long later")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(InputVar("book"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("text"))
    sampling = Sampling(temperature=0.0, max_tokens=24, ignore_eos=True)
    flow.add_task([("user", "Plan a text about {topic}.")], "plan", sampling=sampling)
    flow.add_task([("user", "{book}\n{plan}\nGo on.")], "text", sampling=sampling)
    return flow


async def test_a_prompt_over_the_limit_in_the_middle_of_a_program(
    engine: GrapeEngine, quiet: dict[str, Any]
) -> None:
    """Its open prompt is over the limit as well, and is cut there; the run beside it is right."""
    beside = asyncio.create_task(run_program(engine, chain(12), "the sea"))
    given = {"topic": "bees", "book": "word " * 3000}
    with pytest.raises(PromptTooLongError, match="2048"):
        await too_long_later().run(engine, given)
    tokens, _ = await beside
    assert (await run_program(engine, chain(12), "the sea"))[0] == tokens
    assert (await asyncio.to_thread(engine.stats))["opened"] > quiet["opened"]


# -- a client that is slow ---------------------------------------------------------------------


async def test_a_slow_reader_gets_it_all(engine: GrapeEngine, quiet: object) -> None:
    """The engine is done with the call, and free, long before it was read."""
    request = CallRequest(
        text="One, two, three,", sampling=Sampling(temperature=0.0, max_tokens=40, ignore_eos=True)
    )
    whole = [delta async for delta in engine.astream(request)]
    source = engine.astream(request)
    read = [await anext(source)]
    await asyncio.to_thread(wait_until, engine, idle)
    read += [delta async for delta in source]
    assert "".join(d.text for d in read) == "".join(d.text for d in whole)
    assert read[-1].finish_reason == "length"


# -- a storm -----------------------------------------------------------------------------------


def test_a_storm_of_cancelled_runs_of_graphs(engine: GrapeEngine, quiet: object) -> None:
    """Of graphs and of bare models, from two threads; some loops end under them. One is right."""
    expected = asyncio.run(attached(engine).ainvoke(GIVEN, config("before")))
    rng = random.Random(5)
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=60, ignore_eos=True)

    async def one(number: int, moment: float) -> None:
        if number % 3:
            work = attached(engine).ainvoke(GIVEN, config(f"{number} {moment}"))
        else:
            work = llm.ainvoke(f"Count to {number}.")
        task = asyncio.create_task(work)
        await asyncio.sleep(moment)
        task.cancel()
        if number % 2:
            await asyncio.sleep(0)
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def some(moments: list[float]) -> None:
        tasks = [asyncio.create_task(one(n, moment)) for n, moment in enumerate(moments)]
        # The loop ends when half of them have ended: it cancels the others.
        for task in tasks[::2]:
            await task

    def storm(batches: list[list[float]]) -> None:
        for moments in batches:
            asyncio.run(some(moments))

    batches = [[rng.random() ** 2 * 2 for _ in range(8)] for _ in range(4)]
    threads = [threading.Thread(target=storm, args=(batches[k::2],)) for k in (0, 1)]
    for thread in threads:
        thread.start()
    beside = asyncio.run(attached(engine).ainvoke(GIVEN, config("beside")))
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()
    assert beside == expected
    wait_until(engine, idle)
