"""The order of calls in a node that works in several threads, whichever thread is the faster.

Calls and new threads of a node are counted where they are made; what a thread does is counted
inside of its own number. Sorted, these places are the order in which one thread would have done
all of it:

    call           (0,)
    submit         (1,)     call in that thread   (1, 0)
    submit         (2,)     call in that thread   (2, 0)
    call           (3,)
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field

Place = tuple[int, ...]


@dataclass(slots=True)
class Lane:
    """A thread of a node: its place, and how much was counted in it."""

    place: Place = ()
    _count: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> Place:
        """The place of what comes next in this lane."""
        with self._lock:
            self._count += 1
            return (*self.place, self._count - 1)


lane: ContextVar[Lane | None] = ContextVar("grape_lc_trace_lane", default=None)
"""Set in threads that a node has started."""


class Lanes:
    """The lanes of all nodes of a run, by the names of the nodes."""

    def __init__(self) -> None:
        self._first: dict[str, Lane] = {}
        self._lock = threading.Lock()

    def of(self, node: str) -> Lane:
        """The lane of the thread that runs now, in this node."""
        if (current := lane.get()) is not None:
            return current
        with self._lock:
            return self._first.setdefault(node, Lane())
