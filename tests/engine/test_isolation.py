"""Tenants on one real engine: one asks exactly what another has asked, and finds nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from grape_lc import GrapeEngine, InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.flow import Sampling
from grape_lc.flow.events import TaskFinished, TaskStarted

SAMPLING = Sampling(temperature=0, max_tokens=24, ignore_eos=True)
ASKED = (
    {"role": "system", "content": "You keep the accounts of a small bakery, and tell nobody."},
    {"role": "user", "content": "What did we sell on the busiest day of the year, and to whom?"},
)


def ask(engine: GrapeEngine, tenant: str, **fields: Any) -> tuple[list[int], CallDelta]:
    """The tokens of an answer, and its last delta."""
    request = CallRequest(messages=ASKED, sampling=SAMPLING, tenant=tenant, **fields)
    deltas = list(engine.stream(request))
    return [token for delta in deltas for token in delta.token_ids], deltas[-1]


def test_each_tenant_has_a_prefix_cache_of_its_own(engine: GrapeEngine, quiet: object) -> None:
    answers = {}
    for tenant in ("bakery", "rival", ""):
        answers[tenant], last = ask(engine, tenant)
        assert last.usage is not None
        assert last.usage.cached_tokens == 0, tenant
    assert answers["bakery"] == answers["rival"] == answers[""]
    for tenant in ("bakery", "rival", ""):
        again, last = ask(engine, tenant)
        assert last.usage is not None
        assert last.usage.cached_tokens >= engine.info()["block_size"]
        assert again == answers[tenant]


def story() -> TaskFlow:
    flow = TaskFlow(name="accounts")
    flow.add_variable(InputVar("day"))
    flow.add_variable(IntermediateVar("sales"))
    flow.add_variable(OutputVar("report"))
    flow.add_task([("user", "List what we sold on {day}.")], "sales", sampling=SAMPLING)
    flow.add_task(
        [
            ("system", "You write the weekly report of a small bakery for its owner, in words."),
            ("user", "Our secret list of {day}:\n{sales}\nWrite the report."),
        ],
        "report",
        sampling=SAMPLING,
    )
    return flow


DAYS = ("Monday", "Easter", "New Year's Day", "the first of May", "Sunday", "Carnival")


def test_a_program_is_its_tenants(engine: GrapeEngine, quiet: object) -> None:
    """The rival names the program and the task of every prompt that is being prepared."""
    flow = story()

    async def run(day: str) -> Any:
        usage, spied = {}, []
        async for event in flow.stream(engine, {"day": day}, tenant="bakery"):
            if isinstance(event, TaskStarted):
                fields = {"program": event.program, "task": "report"}
                spied.append((await asyncio.to_thread(ask, engine, "rival", **fields))[1].usage)
            if isinstance(event, TaskFinished):
                usage[event.task] = event.usage
        return usage["report"], spied

    for day in DAYS:  # how far the early work gets is up to the machine
        engine.reset_prefix_cache()
        report, spied = asyncio.run(run(day))
        assert spied
        for usage in spied[:1]:
            assert (usage.ahead_outcome, usage.found_by, usage.ahead_tokens) == ("none", "none", 0)
            assert usage.cached_tokens == 0
        assert {usage.ahead_outcome for usage in spied} == {"none"}
        if report.ahead_outcome == "adopted" and report.ahead_tokens > 0:
            return
    pytest.fail(f"no report was prepared in {len(DAYS)} runs: {engine.stats()}")
