"""The engine that answers ChatGrape while a graph is traced: it records, and runs no model."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from grape_lc.adapters.callsite import numbered
from grape_lc.adapters.trace_answers import Answer
from grape_lc.adapters.trace_lanes import Lanes, Place
from grape_lc.engine.base import CallDelta, CallRequest, EngineClient, Usage
from grape_lc.flow.explanation import CHARACTERS_PER_TOKEN

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
    number: of its answer's marker in this run.
    """

    task: str
    visit: int
    request: CallRequest
    answer: Answer
    number: int


class _Raw(NamedTuple):
    """A call before it has its name: its place among those of the node, and what it was given."""

    node: str
    place: Place
    request: CallRequest
    answer: Answer
    number: int


class RecordingEngine:
    """Answers every call as it is told, and writes it down.

    answer: what a call is answered, given its request, its node and the number of its marker.
    number: the number of a marker, given the node and the call's place in it.
    lanes: the threads of the nodes.
    max_calls: the call after this many raises TooManyCallsError.
    """

    model_name = "recording"
    is_open = True

    def __init__(
        self,
        answer: Callable[[CallRequest, str, int], Answer],
        number: Callable[[str, Place], int],
        lanes: Lanes,
        max_calls: int,
    ) -> None:
        self._answer = answer
        self._number = number
        self._lanes = lanes
        self._max_calls = max_calls
        self._calls: list[_Raw] = []
        self._lock = threading.Lock()

    @property
    def calls(self) -> tuple[RecordedCall, ...]:
        """All calls in the order of arrival; those of a node are numbered by their places."""
        with self._lock:
            calls = tuple(self._calls)
        counts: Counter[str] = Counter()
        tasks: dict[int, tuple[str, int]] = {}
        for call in sorted(calls, key=lambda call: (call.node, call.place)):
            task = numbered(call.node, counts)
            tasks[call.number] = (task, counts[call.node])
        return tuple(RecordedCall(*tasks[c.number], c.request, c.answer, c.number) for c in calls)

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        """The answer, in one piece."""
        yield self._delta(request)

    async def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        """The answer, in one piece."""
        yield self._delta(request)

    def open_program(self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = "") -> str:
        """Nothing is prepared in a trace."""
        return "trace"

    def close_program(self, program_id: str) -> None:
        """Nothing was."""

    def count_tokens(self, text: str) -> int:
        """An estimate, rounded up."""
        return -(-len(text) // CHARACTERS_PER_TOKEN)

    def _delta(self, request: CallRequest) -> CallDelta:
        with self._lock:
            if len(self._calls) >= self._max_calls:
                raise TooManyCallsError(f"more than {self._max_calls} calls of the model")
            node = request.label or "model"
            place = self._lanes.of(node).next()
            number = self._number(node, place)
            answer = self._answer(request, node, number)
            self._calls.append(_Raw(node, place, request, answer, number))
        usage = Usage(0, 0)
        return CallDelta(answer.text, (), time.monotonic(), "stop", usage, calls=answer.calls)
