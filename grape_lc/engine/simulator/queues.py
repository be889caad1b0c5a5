"""Requests in their queues, as vLLM's scheduler keeps them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from heapq import heappop, heappush

from grape_lc.engine.simulator.requests import Request


class Waiting:
    """Calls that wait: in the order of arrival, or by vLLM's priority (smaller first).

    A call that is put in front goes before all others, unless priorities say otherwise.
    """

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self._requests: OrderedDict[str, Request] = OrderedDict()
        self._heap: list[tuple[int, float, int, Request]] = []

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def __contains__(self, request: Request) -> bool:
        return request.view.id in self._requests

    def add(self, request: Request, *, front: bool = False) -> None:
        """Put a request in its place."""
        view = request.view
        self._requests[view.id] = request
        if self._by_priority:
            heappush(self._heap, (request.priority, view.arrived, view.seq, request))
        elif front:
            self._requests.move_to_end(view.id, last=False)

    def head(self) -> Request | None:
        """The request whose turn it is; None if none waits."""
        if not self._by_priority:
            return next(iter(self._requests.values()), None)
        while self._heap and self._heap[0][-1].view.id not in self._requests:
            heappop(self._heap)
        return self._heap[0][-1] if self._heap else None

    def last(self) -> Request | None:
        """The request whose turn comes last; None if none waits."""
        if not self._by_priority:
            return next(reversed(self._requests.values()), None)
        return max(self._requests.values(), key=late, default=None)

    def remove(self, request: Request) -> None:
        """Take a request out."""
        del self._requests[request.view.id]


def late(request: Request) -> tuple[int, float, int]:
    """Sort key of vLLM's priority policy; the largest is preempted first."""
    return (request.priority, request.view.arrived, request.view.seq)


class Queues:
    """All requests of an engine.

    running: in the order in which a step scans them. holding: calls that wait and hold KV which
    they took over; they start before ``waiting``. opens: open prompts by id, in no queue.
    """

    def __init__(self, *, by_priority: bool) -> None:
        self.by_priority = by_priority
        self.running: list[Request] = []
        self.holding = Waiting(by_priority=by_priority)
        self.waiting = Waiting(by_priority=by_priority)
        self.opens: dict[str, Request] = {}

    def all(self) -> Iterator[Request]:
        """Every request there is."""
        yield from self.running
        yield from self.holding
        yield from self.waiting
        yield from self.opens.values()

    @property
    def idle(self) -> bool:
        """Whether no real request is there."""
        return not (self.running or self.holding or self.waiting)
