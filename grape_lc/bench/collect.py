"""An engine that writes down what goes through it, for measuring."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextvars import ContextVar
from typing import NamedTuple

from grape_lc.bench.metrics import CallRecord
from grape_lc.engine.base import CallDelta, CallRequest, EngineClient, Usage
from grape_lc.flow.taskflow import TaskFlow

_RECENT_GAPS = 256

current_program: ContextVar[str | None] = ContextVar("grape_bench_program", default=None)
"""The program that calls made in this context belong to; without one they are not recorded."""

current_tenant: ContextVar[str] = ContextVar("grape_bench_tenant", default="")
"""The tenant of calls made in this context that name none themselves."""


class Live(NamedTuple):
    """The state of a collection, for a progress display.

    tokens: output tokens so far.
    itl_ms: mean agentic ITL over the most recent gaps; None before the first one.
    """

    tokens: int
    itl_ms: float | None


class _Call:
    """A call while its deltas come in."""

    def __init__(self, call_id: int, task: str | None, submitted: float) -> None:
        self.call_id = call_id
        self.task = task
        self.submitted = submitted
        self.tokens: list[tuple[float, int]] = []
        self.text: list[str] = []
        self.usage = Usage(0, 0)

    def record(self) -> CallRecord:
        return CallRecord(
            call_id=self.call_id,
            task=self.task,
            submitted=self.submitted,
            tokens=tuple(self.tokens),
            text="".join(self.text),
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            ahead_tokens=self.usage.ahead_tokens,
            ahead_outcome=self.usage.ahead_outcome,
        )


class MeasuredEngine:
    """Serves through another engine and records each call that belongs to a program.

    The times of tokens are those of the engine's deltas; the time of submission is read here,
    from ``clock``, which must be the engine's. Thread-safe.
    """

    def __init__(
        self, engine: EngineClient, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        self._programs: dict[str, list[_Call]] = {}
        self._latest: dict[str, float] = {}
        self._recent: deque[float] = deque(maxlen=_RECENT_GAPS)
        self._tokens = 0
        self._next_id = 0

    # -- the engine protocol ----------------------------------------------------------------

    @property
    def model_name(self) -> str:
        """The inner engine's."""
        return self._engine.model_name

    def stream(self, request: CallRequest) -> Generator[CallDelta, None, None]:
        """Run a call on the inner engine, recorded."""
        program, call = self._begin(request)
        deltas = self._engine.stream(_with_tenant(request))
        try:
            for delta in deltas:
                self._note(program, call, delta)
                yield delta
        finally:
            if isinstance(deltas, Generator):
                deltas.close()

    async def astream(self, request: CallRequest) -> AsyncGenerator[CallDelta, None]:
        """Like ``stream``, for the running event loop."""
        program, call = self._begin(request)
        deltas = self._engine.astream(_with_tenant(request))
        try:
            async for delta in deltas:
                self._note(program, call, delta)
                yield delta
        finally:
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()

    def open_program(self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = "") -> str:
        """The inner engine's, for the tenant of calls that are made here."""
        return self._engine.open_program(flow, inputs, tenant or current_tenant.get())

    def close_program(self, program_id: str) -> None:
        """The inner engine's."""
        self._engine.close_program(program_id)

    def count_tokens(self, text: str) -> int:
        """The inner engine's."""
        return self._engine.count_tokens(text)

    # -- what was recorded ------------------------------------------------------------------

    def calls(self, program: str) -> tuple[CallRecord, ...]:
        """Records of a program's calls so far, in the order in which they were made."""
        with self._lock:
            return tuple(call.record() for call in self._programs.get(program, ()))

    def live(self) -> Live:
        """Tokens since the last ``forget``, and the agentic ITL over the last few hundred gaps."""
        with self._lock:
            mean = 1000 * sum(self._recent) / len(self._recent) if self._recent else None
            return Live(self._tokens, mean)

    def forget(self) -> None:
        """Drop all records; for use between runs."""
        with self._lock:
            self._programs.clear()
            self._latest.clear()
            self._recent.clear()
            self._tokens = 0

    # -- inside -----------------------------------------------------------------------------

    def _begin(self, request: CallRequest) -> tuple[str | None, _Call]:
        program = current_program.get()
        with self._lock:
            self._next_id += 1
            # ChatGrape puts the node's name in the label; the task is set on attached graphs.
            call = _Call(self._next_id, request.task or request.label, self._clock())
            if program is not None:
                self._programs.setdefault(program, []).append(call)
        return program, call

    def _note(self, program: str | None, call: _Call, delta: CallDelta) -> None:
        if program is None:
            return
        with self._lock:
            call.text.append(delta.text)
            if delta.usage is not None:
                call.usage = delta.usage
            if count := len(delta.token_ids):
                call.tokens.append((delta.at, count))
                self._count(program, delta.at, count)

    def _count(self, program: str, at: float, count: int) -> None:
        self._tokens += count
        latest = self._latest.get(program)
        if latest is not None:
            self._recent.append(max(at - latest, 0.0))
        self._recent.extend([0.0] * (count - 1))
        self._latest[program] = at


def _with_tenant(request: CallRequest) -> CallRequest:
    tenant = current_tenant.get()
    if not tenant or request.tenant:
        return request
    return request.model_copy(update={"tenant": tenant})
