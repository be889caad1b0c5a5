"""The engine that answers ChatGrape while a graph is traced: it records, and runs no model."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grape_lc.adapters.markers import marker
from grape_lc.engine.base import CallDelta, CallRequest, EngineClient, Usage

if TYPE_CHECKING:
    from grape_lc.flow.taskflow import TaskFlow

recording_engine: ContextVar[EngineClient | None] = ContextVar(
    "grape_lc_recording_engine", default=None
)
"""Set while a graph is traced; takes the place of every ChatGrape's engine in that context."""


class TooManyCallsError(BaseException):
    """A traced graph called the model without end.

    Not an Exception: a node that retries on errors must not catch it.
    """


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call in a trace.

    task: name of the node; ``node#2`` for its second call.
    visit: which call of the node it is, from 1.
    value: number of the marker that was the answer.
    """

    task: str
    visit: int
    request: CallRequest
    value: int


class RecordingEngine:
    """Answers every call with a marker of its own.

    first_value: number of the first answer's marker; lower numbers stand for inputs.
    max_calls: the call after this many raises TooManyCallsError.
    """

    model_name = "recording"
    is_open = True

    def __init__(self, first_value: int, max_calls: int) -> None:
        self._first_value = first_value
        self._max_calls = max_calls
        self._counts: Counter[str] = Counter()
        self._calls: list[RecordedCall] = []
        self._lock = threading.Lock()

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """All calls in the order of arrival."""
        with self._lock:
            return tuple(self._calls)

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        """The marker, in one piece."""
        yield self._answer(request)

    async def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        """The marker, in one piece."""
        yield self._answer(request)

    def open_program(self, flow: TaskFlow, inputs: Mapping[str, str]) -> str:
        """Nothing is prepared in a trace."""
        return "trace"

    def close_program(self, program_id: str) -> None:
        """Nothing was."""

    def count_tokens(self, text: str) -> int:
        """An estimate: four characters a token."""
        return -(-len(text) // 4)

    def _answer(self, request: CallRequest) -> CallDelta:
        with self._lock:
            if len(self._calls) >= self._max_calls:
                raise TooManyCallsError(f"more than {self._max_calls} calls of the model")
            node = request.label or "model"
            self._counts[node] += 1
            visit = self._counts[node]
            task = node if visit == 1 else f"{node}#{visit}"
            value = self._first_value + len(self._calls)
            self._calls.append(RecordedCall(task, visit, request, value))
        return CallDelta(marker(value), (), time.monotonic(), "stop", Usage(0, 0))
