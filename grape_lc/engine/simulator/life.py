"""Requests of one engine as they come, are handed over, lose their KV, and end.

Every event changes queues, KV and statistics, and is told to the controller; the simulated
counterpart of ``vllm_life``.
"""

from __future__ import annotations

from grape_lc.engine.simulator.drafting import Drafting
from grape_lc.engine.simulator.kv import KV
from grape_lc.engine.simulator.messages import Append, Message, Open, Release, Submit
from grape_lc.engine.simulator.queues import Queues
from grape_lc.engine.simulator.requests import Request
from grape_lc.engine.simulator.room import Events
from grape_lc.engine.simulator.statistics import Statistics
from grape_lc.scheduler.controller import Controller
from grape_lc.scheduler.types import Stage


class Life:
    """Keeps queues, KV and controller true; ``now`` is set by the engine before anything else.

    drafting, seed: of the drafts of calls.
    """

    def __init__(
        self,
        queues: Queues,
        kv: KV,
        controller: Controller,
        statistics: Statistics,
        *,
        drafting: Drafting | None = None,
        seed: int = 0,
    ) -> None:
        self.queues = queues
        self.kv = kv
        self.controller = controller
        self.now = 0.0
        self._stats = statistics
        self._drafting = drafting
        self._seed = seed
        self._seq = 0
        self._stalled_at: int | None = None  # free blocks when an open prompt was refused last

    @property
    def events(self) -> Events:
        """What is to be told of requests that lose their KV."""
        return Events(self._preempted, self._dropped, self._stripped)

    # ------------------------------------------------------------------ messages

    def read(self, message: Message) -> None:
        """A message came in."""
        match message:
            case Open(request):
                self._seq += 1
                request.view.seq = self._seq
                self.queues.opens[request.view.id] = request
                self.controller.opened(request.view)
            case Append(request, pieces, hint, final):
                if request.view.id in self.queues.opens:
                    for source, tokens in pieces:
                        request.known.append(source, tokens)
                    view = request.view
                    view.tokens = request.prompt = request.known.length
                    view.hint, view.final, view.touched = hint, final, self.now
                    view.stalled = False
            case Submit(request, adopt):
                self._submit(request, adopt)
            case Release(request):
                if request.view.id in self.queues.opens:
                    self._close(request, None)

    def _submit(self, request: Request, adopt: Request | None) -> None:
        self._seq += 1
        view = request.view
        view.seq = self._seq
        if self._drafting is not None:
            dice = f"drafts {self._seed} {request.source}"
            request.matches = self._drafting.matches(request.answer, dice)
        if adopt is not None:
            outcome, tokens = "unknown", 0
            if adopt.view.id in self.queues.opens:
                outcome, tokens = self.kv.adopt(adopt, request)
                request.spent = self._close(adopt, tokens)
            view.adopted, view.computed, request.peak = tokens > 0, tokens, tokens
            self._stats.outcomes[outcome] = self._stats.outcomes.get(outcome, 0) + 1
            self._stats.adopted_tokens += tokens
        (self.queues.holding if view.adopted else self.queues.waiting).add(request)
        self.controller.call_arrived(view, self.now)

    def _close(self, request: Request, adopted: int | None) -> int:
        """An open prompt ends; ``adopted``: what its call took over.

        Returns how much of this had been computed for it; the rest came out of the cache.
        """
        del self.queues.opens[request.view.id]
        used = min(request.spent, max(0, (adopted or 0) - request.hit))
        self._stats.wasted_tokens += request.spent - used
        self.kv.release(request)
        self.controller.open_ended(request.view, adopted)
        return used

    def stall(self, requests: list[Request]) -> None:
        """Open prompts were refused though nothing else ran: not again until something changes."""
        for request in requests:
            request.view.stalled = True
            self._stalled_at = self.kv.free

    def notice(self, free: int) -> None:
        """So many blocks are free now."""
        if self._stalled_at not in (None, free):
            self._stalled_at = None
            for request in self.queues.opens.values():
                request.view.stalled = False

    # ------------------------------------------------------------------ calls

    def started(self, request: Request) -> None:
        """A call runs."""
        view = request.view
        self._stats.cached_tokens += request.hit if view.output == 0 else 0
        self._stats.waiting.add(self.now - view.arrived)
        rest = view.tokens - view.computed
        if request.begun is None:
            request.begun = view.computed
            if view.adopted:
                self._useful(view.computed - request.spent, view.computed)
        self.controller.call_started(view, Stage.PREFILL if rest > 1 else Stage.DECODE)

    def _preempted(self, request: Request) -> None:
        self._stats.preemptions += 1
        request.view.adopted = False
        request.view.step_tokens = 1  # its draft is lost
        self.controller.call_requeued(request.view)

    def _useful(self, begin: int, end: int) -> None:
        """The tokens of a text from place ``begin`` to ``end`` were computed to some use."""
        self._stats.useful_tokens += end - begin
        # The first token attends to itself, the next one to two, and so on.
        self._stats.useful_contexts += (end * (end + 1) - begin * (begin + 1)) // 2

    def _stripped(self, request: Request) -> None:
        self._stats.stripped += 1
        request.view.adopted = False
        self.controller.call_requeued(request.view)

    def _dropped(self, request: Request) -> None:
        self._stats.dropped += 1
        self.controller.dropped(request.view)

    def end(self, request: Request) -> None:
        """A call got its last token."""
        self.kv.release(request)
        self.queues.running.remove(request)
        view = request.view
        # Its last token is never read.
        self._useful(request.begun or 0, request.prompt + request.answer - 1)
        self.controller.call_ended(
            view, self.now, complete=True, limited=request.answer == view.max_output
        )
