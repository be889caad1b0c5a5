"""Early work and the calls: whatever happens to a call, its open prompt has one owner or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from grape_lc.engine.base import CallRequest
from grape_lc.runtime.ahead import Ahead
from grape_lc.scheduler.types import Hint
from tests.unit.runtime.tables import CharacterText, chain

PLAN = "1. find a flower 2. fly"


class OpenPrompts(CharacterText):
    """Keeps open prompts by key; can be told to hold every release, or to fail at rendering."""

    def __init__(self) -> None:
        self.open_now: dict[str, Hint] = {}
        self.released: list[str] = []
        self.hold: asyncio.Event | None = None
        self.broken = False

    def render(self, prompt: Any, *args: Any, **kwargs: Any) -> str:
        if self.broken:
            raise KeyError("the template does not like it")
        return super().render(prompt, *args, **kwargs)

    async def open(self, key: str, ids: Sequence[int], hint: Hint) -> None:
        self.open_now[key] = hint

    async def append(
        self, key: str, ids: Sequence[int], hops: int, final: bool, source: str | None
    ) -> None:
        del key, ids, hops, final, source

    async def release(self, keys: Sequence[str]) -> None:
        self.released += keys
        for key in keys:
            self.open_now.pop(key, None)
        if self.hold is not None:
            await self.hold.wait()


@pytest.fixture
def engine() -> OpenPrompts:
    return OpenPrompts()


@pytest.fixture
async def ahead(engine: OpenPrompts) -> Ahead:
    ahead = Ahead(engine, enabled=True)
    await ahead.open_program("p", chain().model_dump(mode="json"), {"topic": "bees"})
    return ahead


def plan(**fields: Any) -> CallRequest:
    return CallRequest(messages=({"role": "user", "content": "Plan bees"},), **fields)


def draft(**fields: Any) -> CallRequest:
    messages = (
        {"role": "system", "content": "Write."},
        {"role": "user", "content": f"About bees: {PLAN} Go!"},
    )
    return CallRequest(messages=messages, **fields)


async def answer(ahead: Ahead, request: CallRequest, text: str) -> tuple[str, str | None]:
    """Run a call to its end; how it was found, and the key that it took over."""
    bound = await ahead.begin_call(request)
    await ahead.call_text(bound, text, len(text))
    await ahead.end_call(bound, complete=True)
    return bound.found_by, bound.key


async def test_a_run_without_names(ahead: Ahead, engine: OpenPrompts) -> None:
    assert await answer(ahead, plan(), PLAN) == ("content", None)
    found_by, key = await answer(ahead, draft(), "a draft")
    assert found_by == "content"
    assert key in engine.open_now
    assert await answer(ahead, draft(), "a draft") == ("none", None)


async def test_hints_say_which_task_was_found(ahead: Ahead) -> None:
    await ahead.open_program("q", chain().model_dump(mode="json"), {"topic": "bees"}, "t")
    bound = await ahead.begin_call(plan(tenant="t", ttft_s=0.5))
    hint = bound.hint
    assert (hint.program, hint.task, hint.depth, hint.feeds) == ("q", "plan", 0, True)
    assert (hint.tenant, hint.ttft_s) == ("t", 0.5)


async def test_a_call_that_is_cancelled_while_it_begins_gives_its_prompt_back(
    ahead: Ahead, engine: OpenPrompts
) -> None:
    """What was built on an older answer is released then, which takes a while."""
    await answer(ahead, plan(program="p", task="plan"), PLAN)
    await answer(ahead, draft(program="p", task="draft"), "a draft")
    (review,) = [key for key in engine.open_now if key.split("/")[2] == "review"]
    engine.hold = asyncio.Event()
    begin = asyncio.create_task(ahead.begin_call(plan(program="p", task="plan")))
    await asyncio.sleep(0)
    assert review in engine.released
    begin.cancel()
    engine.hold.set()
    with pytest.raises(asyncio.CancelledError):
        await begin
    ahead.table.validate()
    # As if it had not been made: the same call may come again, and be found by its content.
    assert (await ahead.begin_call(plan())).found_by == "content"


async def test_a_named_call_ends_what_a_guess_feeds(ahead: Ahead, engine: OpenPrompts) -> None:
    guess = await ahead.begin_call(plan())
    await ahead.call_text(guess, "something", 9)
    named = await ahead.begin_call(plan(program="p", task="plan"))
    await ahead.call_text(guess, " else", 5)
    await ahead.call_text(named, PLAN, len(PLAN))
    await ahead.end_call(guess, complete=True)
    await ahead.end_call(named, complete=True)
    assert guess.program is None
    found_by, key = await answer(ahead, draft(), "a draft")
    assert found_by == "content"
    assert key in engine.open_now


async def test_trouble_with_looking_costs_the_early_work_only(
    ahead: Ahead, engine: OpenPrompts, caplog: pytest.LogCaptureFixture
) -> None:
    engine.broken = True
    bound = await ahead.begin_call(plan())
    assert (bound.found_by, bound.key, bound.program) == ("none", None, None)
    await ahead.call_text(bound, PLAN, 9)
    await ahead.end_call(bound, complete=True)
    assert ahead.table.counts["failed"] == 1
    assert "without looking for its open prompt" in caplog.text
    engine.broken = False
    assert (await ahead.begin_call(plan())).found_by == "content"
