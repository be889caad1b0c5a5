"""Who gives way when a request finds no KV: early work, then calls that wait, then running ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from grape_lc.engine.simulator.kv import KV
from grape_lc.engine.simulator.queues import Queues, late
from grape_lc.engine.simulator.requests import Request
from grape_lc.scheduler.types import Plan, RequestView

Row = tuple[Request, int]
"""A request in a step, and its tokens."""


class Events(NamedTuple):
    """Who hears of requests that lose their KV.

    preempted: a running call, to wait again. dropped: an open prompt. stripped: a waiting call
    that had taken over an open prompt.
    """

    preempted: Callable[[Request], None]
    dropped: Callable[[Request], None]
    stripped: Callable[[Request], None]


class Room:
    """Takes KV back, for one step after the other.

    choose: names who gives way next, of those that it is given. picks: running calls are preempted
    by that rule too, not from the tail as in vLLM.
    """

    def __init__(
        self,
        queues: Queues,
        kv: KV,
        events: Events,
        choose: Callable[[Iterable[RequestView]], RequestView | None],
        *,
        picks: bool,
    ) -> None:
        self._queues = queues
        self._kv = kv
        self._events = events
        self._choose = choose
        self._picks = picks
        self.preempted = False
        """Whether a running call was preempted in this step."""
        self.gone: set[str] = set()
        """Open prompts that gave up their KV in this step."""
        # Of the plan: who gives it up first, and the place of each call that starts.
        self._victims: list[str] = []
        self._named: dict[str, int] = {}

    def arrange(self, plan: Plan) -> None:
        """Make ready to take KV in the planned order: of running calls the first victim last."""
        self.preempted = False
        self.gone.clear()
        self._named = {item.id: place for place, item in enumerate(plan.starts or ())}
        self._victims = [victim.id for victim in plan.preempt]
        if self._picks and plan.preempt:
            late_ids = {victim: -place for place, victim in enumerate(self._victims)}
            first = -len(self._victims)
            self._queues.running.sort(key=lambda r: late_ids.get(r.view.id, first))

    def preempt(self, index: int, rows: list[Row]) -> tuple[Request, int, int]:
        """Preempt a call so that the one at ``index`` finds blocks.

        rows: what the step holds already; the call is taken out of it. Returns the call, where
        the scan goes on, and the tokens given back.
        """
        queues = self._queues
        if self._picks:
            self._pick(index)
        freed = 0
        if queues.by_priority:
            victim = max(queues.running, key=late)
            place = queues.running.index(victim)
            del queues.running[place]
            if place < index:
                index -= 1
            for number, (request, tokens) in enumerate(rows):
                if request is victim:
                    del rows[number]
                    freed = tokens
                    break
        else:
            victim = queues.running.pop()
        self._kv.release(victim)
        victim.view.computed = 0
        queues.waiting.add(victim, front=True)
        self.preempted = True
        self._events.preempted(victim)
        return victim, index, freed

    def _pick(self, index: int) -> None:
        """Put to the tail whom the rule preempts, of the calls that are not in this step yet."""
        running = self._queues.running
        rest = running[index:]
        chosen = self._choose(request.view for request in rest)
        if chosen is not None and chosen is not running[-1].view:
            place = next(n for n, request in enumerate(rest) if request.view is chosen)
            running.append(running.pop(index + place))

    def make(self, request: Request, tokens: int, cached: list[int]) -> bool:
        """Take early work's KV for a call that waits, if that lets it start."""
        kv, queues = self._kv, self._queues
        if queues.running:
            gain = kv.freed_by(queues.opens.values(), cached)
            if kv.free + gain < kv.cost(request, tokens, cached):
                return False
        return self._drop_next() or (not queues.running and self._strip(request))

    def give_way(self, request: Request) -> bool:
        """Take early work's KV for a running call, bit by bit."""
        return self._drop_next() or self._strip(request)

    def _drop_next(self) -> bool:
        """The next open prompt gives up its KV; False if none holds any."""
        opens = self._queues.opens
        while self._victims:
            request = opens.get(self._victims.pop(0))
            if request is not None and request.blocks:
                self._drop(request)
                return True
        chosen = self._choose(request.view for request in opens.values() if request.blocks)
        if chosen is None:
            return False
        self._drop(opens[chosen.id])
        return True

    def _drop(self, request: Request) -> None:
        self._kv.release(request)
        self.gone.add(request.view.id)
        self._events.dropped(request)
        request.view.computed = 0

    def _strip(self, spared: Request) -> bool:
        """The last waiting call that took over KV gives it up again; False if none holds any.

        Two such calls could otherwise hold each other's blocks for ever.
        """
        queues, named = self._queues, self._named
        holding = [request for request in queues.holding if request is not spared]
        if not holding:
            return False
        if queues.by_priority:
            holding.sort(key=late)
        elif named:
            # Those that do not start in this step count as behind those that do.
            holding.sort(key=lambda request: named.get(request.view.id, len(named)))
        request = holding[-1]
        self._kv.release(request)
        request.view.computed = 0
        queues.holding.remove(request)
        queues.waiting.add(request, front=True)
        self._events.stripped(request)
        return True
