"""Gathers records of calls from an engine while programs run on it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from grape_lc.bench.metrics import CallRecord
from grape_lc.engine.base import CallDelta, CallObserver, CallRequest, Usage

_RECENT_GAPS = 256


class Observable(Protocol):
    """What a collector needs of an engine."""

    def observe(self, observer: CallObserver) -> Callable[[], None]:
        """Call ``observer`` with every delta from now on; the result ends that."""
        ...


class Live(NamedTuple):
    """The state of a collection, for a progress display.

    tokens: output tokens so far.
    itl_ms: mean agentic ITL over the most recent gaps; None before the first one.
    """

    tokens: int
    itl_ms: float | None


class _Call:
    """A call while its deltas come in."""

    def __init__(self, task: str | None) -> None:
        self.task = task
        self.tokens: list[tuple[float, int]] = []
        self.text: list[str] = []
        self.usage = Usage(0, 0)

    def record(self, call_id: int) -> CallRecord:
        return CallRecord(
            call_id=call_id,
            task=self.task,
            tokens=tuple(self.tokens),
            text="".join(self.text),
            prompt_tokens=self.usage.prompt_tokens,
            cached_tokens=self.usage.cached_tokens,
            ahead_tokens=self.usage.ahead_tokens,
            ahead_outcome=self.usage.ahead_outcome,
        )


class Collector:
    """Observes an engine; records the calls that carry a label, by label.

    Use as a context manager around the runs. The label of a call says which program made it
    (``grape_lc.runtime.client.call_label``); calls without one are not recorded. Thread-safe.
    """

    def __init__(self, engine: Observable) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._programs: dict[str, dict[int, _Call]] = {}
        self._latest: dict[str, float] = {}
        self._recent: deque[float] = deque(maxlen=_RECENT_GAPS)
        self._tokens = 0
        self._stop: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        self._stop = self._engine.observe(self._on_delta)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._stop is not None:
            self._stop()
            self._stop = None

    def _on_delta(self, call_id: int, request: CallRequest, delta: CallDelta) -> None:
        label = request.label
        if label is None:
            return
        with self._lock:
            calls = self._programs.setdefault(label, {})
            call = calls.get(call_id)
            if call is None:
                call = calls[call_id] = _Call(request.task)
            call.text.append(delta.text)
            if delta.usage is not None:
                call.usage = delta.usage
            count = len(delta.token_ids)
            if count:
                call.tokens.append((delta.at, count))
                self._count(label, delta.at, count)

    def _count(self, label: str, at: float, count: int) -> None:
        self._tokens += count
        latest = self._latest.get(label)
        if latest is not None:
            self._recent.append(max(at - latest, 0.0))
        self._recent.extend([0.0] * (count - 1))
        self._latest[label] = at

    def calls(self, label: str) -> tuple[CallRecord, ...]:
        """Records of one program's calls so far, in the order in which they were made."""
        with self._lock:
            calls = self._programs.get(label, {})
            return tuple(call.record(call_id) for call_id, call in sorted(calls.items()))

    def live(self) -> Live:
        """Tokens so far, and the agentic ITL over the last few hundred gaps."""
        with self._lock:
            mean = 1000 * sum(self._recent) / len(self._recent) if self._recent else None
            return Live(self._tokens, mean)
