"""vLLM's requests as the policy sees them, kept from step to step.

A view is made when its request comes in. Between two steps only running requests change, so only
their views are brought up to date, in one loop: it runs in every step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from grape_lc.engine.vllm_kv import KVLedger
from grape_lc.scheduler.types import Hint, RequestView, Stage


class CallViews:
    """The views of all real requests."""

    def __init__(self, ledger: KVLedger) -> None:
        self._ledger = ledger
        self._views: dict[str, RequestView] = {}
        # Those that ran in the step before, and their views.
        self._seen: list[Any] = []
        self._found: list[RequestView] = []
        self.updated = 0.0
        """When the last tokens came in."""

    def __getitem__(self, request_id: str) -> RequestView:
        return self._views[request_id]

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._views

    def __iter__(self) -> Iterator[RequestView]:
        return iter(self._views.values())

    def __len__(self) -> int:
        return len(self._views)

    @property
    def by_id(self) -> Mapping[str, RequestView]:
        """All views by request id."""
        return self._views

    def add(self, request: Any, seq: int, arrived: float, hint: Hint) -> RequestView:
        """A real request came in, with whatever it adopted."""
        view = RequestView(
            request.request_id,
            seq,
            arrived,
            Stage.WAITING,
            request.num_tokens,
            hint,
            max_output=request.max_tokens,
            touched=arrived,
        )
        self._views[view.id] = view
        self.look(request, view)
        return view

    def pop(self, request_id: str) -> RequestView | None:
        """A request is gone; None if it had no view."""
        return self._views.pop(request_id, None)

    def look(self, request: Any, view: RequestView) -> None:
        """Bring the view of a request up to date that does not run."""
        view.tokens = request.num_tokens
        view.computed = request.num_computed_tokens
        view.in_flight = 0
        view.output = request.num_output_tokens
        view.held_blocks = self._ledger.held(view.id)

    def running(self, requests: list[Any], *, plain: bool) -> list[RequestView]:
        """The views of running requests, up to date but for ``held_blocks``.

        plain: steps do not overlap and nothing drafts, so a decode takes one token.
        """
        # For each request in each step: no call, and nothing that is not needed.
        found = self._found
        if requests != self._seen:
            views = self._views
            found = self._found = [views[request.request_id] for request in requests]
            self._seen = requests.copy()
        if not plain:
            self._overlapping(requests, found)
            return found
        decode, updated = Stage.DECODE, self.updated
        for request, view in zip(requests, found, strict=True):
            view.computed = request.num_computed_tokens
            tokens = len(request._all_token_ids)
            if tokens != view.tokens:
                view.output += tokens - view.tokens
                view.tokens = tokens
                view.last_token = updated
            # A running call that decodes goes on decoding.
            if view.stage is not decode:
                view.stage = Stage.PREFILL if request.is_prefill_chunk else decode
        return found

    def _overlapping(self, requests: list[Any], found: list[RequestView]) -> None:
        for request, view in zip(requests, found, strict=True):
            tokens = request.num_tokens
            view.computed = computed = request.num_computed_tokens
            view.in_flight = request.num_in_flight_tokens
            if tokens != view.tokens:
                view.tokens = tokens
                view.output = tokens - request.num_prompt_tokens
                view.last_token = self.updated
            if request.is_prefill_chunk:
                view.stage = Stage.PREFILL
            else:
                view.stage = Stage.DECODE
                drafts = len(request.spec_token_ids)
                step = tokens + drafts + request.num_output_placeholders - computed
                view.step_tokens = max(0, step)

    def hold(self, views: list[RequestView], ran: Collection[str], now: float) -> None:
        """Count the blocks of running requests, and note which ran in the step before."""
        self._ledger.hold(views)
        for view in views:
            if view.id in ran:
                view.touched = now
