"""A tool that takes its time and may fail, for the synthetic agent.

How long a call takes and whether it fails depends on the task, the stage and the attempt only:
whoever serves the model, the same program meets the same.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TypedDict

from langchain_core.tools import StructuredTool, ToolException

from .inputs.words import text_of

MOST_ATTEMPTS = 8
"""Calls for one result; a program whose last one fails goes on without the result."""

SPREAD = 0.5
"""Sigma of the log-normal latencies: one in twenty takes 2.3 times the median or more."""

NOTHING = "nothing was found"

_RESULT_TOKENS = 20


class ToolCall(TypedDict):
    """A call of a tool as it is kept in the state. query: its arguments, the attempt left out."""

    tool: str
    query: str
    failed: bool


class Lookup:
    """Calls the tool ``look_up`` until it succeeds, and keeps what was called.

    median_ms: latency of a call (ms). failure: how likely one fails.
    """

    def __init__(self, median_ms: float, failure: float) -> None:
        def look_up(query: str, attempt: int) -> str:
            """Look something up."""
            time.sleep(latency_s(median_ms, query, attempt))
            return _found(failure, query, attempt)

        async def alook_up(query: str, attempt: int) -> str:
            await asyncio.sleep(latency_s(median_ms, query, attempt))
            return _found(failure, query, attempt)

        self._tool = StructuredTool.from_function(look_up, alook_up)

    def find(self, query: str) -> tuple[str, list[ToolCall]]:
        """The result for a query, and the calls that it took."""
        calls: list[ToolCall] = []
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                found = str(self._tool.invoke({"query": query, "attempt": attempt}))
            except ToolException:
                calls.append(self._call(query, failed=True))
            else:
                return found, [*calls, self._call(query, failed=False)]
        return NOTHING, calls

    async def afind(self, query: str) -> tuple[str, list[ToolCall]]:
        """Like ``find``, for the running event loop."""
        calls: list[ToolCall] = []
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                found = str(await self._tool.ainvoke({"query": query, "attempt": attempt}))
            except ToolException:
                calls.append(self._call(query, failed=True))
            else:
                return found, [*calls, self._call(query, failed=False)]
        return NOTHING, calls

    def _call(self, query: str, *, failed: bool) -> ToolCall:
        return {"tool": self._tool.name, "query": query, "failed": failed}


def query_of(task: str, stage: int) -> str:
    """What is looked up for a stage of the program with this task."""
    return f"{task} (stage {stage})"


def latency_s(median_ms: float, query: str, attempt: int) -> float:
    """How long a call takes (seconds)."""
    return median_ms / 1e3 * _draw("latency", query, attempt).lognormvariate(0.0, SPREAD)


def fails(failure: float, query: str, attempt: int) -> bool:
    """Whether a call fails."""
    return _draw("failure", query, attempt).random() < failure


def _found(failure: float, query: str, attempt: int) -> str:
    if fails(failure, query, attempt):
        raise ToolException(f"attempt {attempt} to look up {query!r} failed")
    return text_of(_RESULT_TOKENS, f"result/{query}")


def _draw(what: str, query: str, attempt: int) -> random.Random:
    return random.Random(f"{what}/{query}/{attempt}")  # noqa: S311 - a workload, not a secret
