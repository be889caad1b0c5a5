"""vLLM's waiting queues for one step: the calls that a plan starts, in its order.

vLLM starts calls from the front of its queues until one cannot start. So for the length of one
``schedule()`` the queues hold what the plan named and, behind it, open prompts; everybody else
waits in the real queues, which are not touched. Afterwards what happened is carried over:

    named, started      leaves the real queue
    preempted           to the front of the real queue, as vLLM put it
    named, not started  keeps its place
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.v1.core.sched.request_queue import create_request_queue
from vllm.v1.request import RequestStatus


class Staging:
    """Swaps the queues of ``scheduler`` when made, and back in ``leave``.

    starts: requests that wait, in order. vLLM takes those that hold KV first, whatever the order.
    """

    def __init__(self, scheduler: Any, starts: Iterable[Any]) -> None:
        self._scheduler = scheduler
        self.waiting = scheduler.waiting
        self.holding = scheduler.kv_holding_waiting
        self._named = dict.fromkeys(starts)
        waiting = create_request_queue(scheduler.policy)
        holding = create_request_queue(scheduler.policy)
        for request in self._named:
            holds = scheduler._holds_kv_blocks(request)
            (holding if holds else waiting).add_request(request)
        scheduler.waiting, scheduler.kv_holding_waiting = waiting, holding

    def leave(self) -> None:
        """Put the real queues back; open prompts must be out of the staged ones."""
        scheduler = self._scheduler
        staged = list(scheduler.waiting)
        scheduler.waiting, scheduler.kv_holding_waiting = self.waiting, self.holding
        started = {r for r in self._named if r.status == RequestStatus.RUNNING}
        if started:
            self.waiting.remove_requests(started)
            self.holding.remove_requests(started)
        for request in reversed([r for r in staged if r not in self._named]):
            self.waiting.prepend_request(request)

    def held_out(self) -> list[Any]:
        """Calls that hold KV and do not start in this step."""
        return [request for request in self.holding if request not in self._named]

    def strip(self, request: Any) -> None:
        """A call that waits lost its KV: it goes to the front of the others, for the next step."""
        self._scheduler.kv_holding_waiting.remove_requests([request])
        self.holding.remove_requests([request])
        self.waiting.prepend_request(request)
