"""Running many programs at once and keeping their tokens."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from grape_lc import GrapeEngine, TaskFlow
from grape_lc.flow.events import TaskFinished, TokenEvent, TokenUsage

Tokens = dict[str, tuple[int, ...]]


def taken_over(report: Mapping[str, Any]) -> bool:
    """Whether a call found any of its prompt done. report: the call's own."""
    return bool(report["ahead_outcome"] == "adopted" and report["ahead_tokens"] > 0)


def prefilled(report: Mapping[str, Any]) -> bool:
    """Whether a call took over its prompt with a good part of it done. report: the call's own."""
    return bool(report["ahead_outcome"] == "adopted" and report["ahead_tokens"] >= 24)


async def run_program(
    engine: GrapeEngine, flow: TaskFlow, topic: str
) -> tuple[Tokens, dict[str, TokenUsage]]:
    """Token ids and usage of every task of one run."""
    tokens: dict[str, list[int]] = defaultdict(list)
    usage: dict[str, TokenUsage] = {}
    async for event in flow.stream(engine, {"topic": topic}):
        if isinstance(event, TokenEvent):
            tokens[event.task] += event.token_ids
        elif isinstance(event, TaskFinished):
            usage[event.task] = event.usage
    return {task: tuple(ids) for task, ids in tokens.items()}, usage


def run_programs(
    engine: GrapeEngine, jobs: list[tuple[TaskFlow, str]], *, at_once: int = 6
) -> list[tuple[Tokens, dict[str, TokenUsage]]]:
    """Results in the order of ``jobs``, at most ``at_once`` of them running."""

    async def all_of_them() -> list[tuple[Tokens, dict[str, TokenUsage]]]:
        gate = asyncio.Semaphore(at_once)

        async def one(flow: TaskFlow, topic: str) -> tuple[Tokens, dict[str, TokenUsage]]:
            async with gate:
                return await run_program(engine, flow, topic)

        return await asyncio.gather(*(one(flow, topic) for flow, topic in jobs))

    return asyncio.run(all_of_them())
