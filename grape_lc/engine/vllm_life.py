"""Requests and open prompts as they come, are handed over, and end."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from vllm.sampling_params import SamplingType
from vllm.v1.request import RequestStatus

from grape_lc.engine import vllm_messages as messages
from grape_lc.engine.vllm_adoption import fit, why_not_adopt, why_not_open
from grape_lc.engine.vllm_open_prompts import OpenPrompt
from grape_lc.engine.vllm_room import RoomMixin
from grape_lc.limits import ENGINE_PROMPTS
from grape_lc.scheduler.types import NO_HINT, Hint

logger = logging.getLogger(__name__)

_MOST_WAITED_S = 60.0
"""A call that seems to have been on its way for longer comes from another clock."""

_EXPIRY_CHECKS = 10
"""Open prompts are looked through this often in their time to live."""


class LifeMixin(RoomMixin):
    """Carries out control messages; keeps the tables true when requests begin and end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._next_expiry = 0.0

    # ------------------------------------------------------------------ messages

    def add_request(self, request: Any) -> None:
        """Take a real request, or carry out a control message."""
        sampling = request.sampling_params
        extra = sampling.extra_args if sampling is not None else None
        given = extra.get("grape") if extra else None
        if given is None:
            self._arrive(request, NO_HINT)
            return
        message = messages.parse(given)
        if self._off is not None:
            if isinstance(message, messages.Open | messages.Append):
                self._swallow(request, "refused")
            else:
                super().add_request(request)
            return
        if isinstance(message, messages.Open | messages.Call) and message.bad:
            self.grape_counters["malformed"] += 1
            logger.warning("request %s: left out of its hint: %s", request.request_id, message.bad)
        if isinstance(message, messages.Open):
            self._open(request, message)
        elif isinstance(message, messages.Append):
            self._append(request, message)
        elif isinstance(message, messages.Call):
            self._arrive(request, message.hint, message.adopt)
        else:
            logger.warning("request %s: malformed message: %s", request.request_id, message.why)
            if message.control:
                self._swallow(request, "malformed")
            else:
                self.grape_counters["malformed"] += 1
                self._arrive(request, NO_HINT)

    def _swallow(self, request: Any, counter: str) -> None:
        """End a control message that has no further life here."""
        self.grape_counters[counter] += 1
        self._forget(request)

    def _forget(self, request: Any) -> None:
        # With several engines the client keeps a routing entry for each id until told it ended.
        if self.finished_req_ids_dict is not None:
            self.finished_req_ids_dict[request.client_index].add(request.request_id)

    def _open(self, request: Any, message: messages.Open) -> None:
        key = request.request_id
        if key in self.requests:
            # Not swallowed: the id lives on, so the client's routing entry must too.
            logger.warning("open prompt %s: the id is in use", key)
            self.grape_counters["refused"] += 1
            return
        refusal = self._unmovable or why_not_open(request)
        if refusal is None and self._opens.was_used(key):
            refusal = "the id was used before"
        if refusal is None and len(self._opens) >= ENGINE_PROMPTS.value:
            refusal = "too many prompts are open"
        if refusal is not None:
            self._opens.remember(key, f"refused:{refusal}", request.cache_salt)
            self._swallow(request, "refused")
            return
        self.requests[key] = request
        prompt = self._opens.open(request, message.hint, self._next_seq(), self.grape_clock())
        self._controller.opened(prompt.view)
        self.grape_counters["opened"] += 1

    def _append(self, request: Any, message: messages.Append) -> None:
        prompt = self._opens.shown(message.key, request.cache_salt)
        if prompt is None:
            how = self._opens.how_ended(message.key, request.cache_salt) or ""
            self._swallow(request, "refused" if how.startswith("refused") else "unknown")
            return
        self._opens.append(
            prompt,
            list(request.prompt_token_ids or ()),
            self.grape_clock(),
            final=message.final,
            hops=message.hops,
            source=message.source,
        )
        self.grape_counters["appended"] += 1
        self._forget(request)

    def _arrive(self, request: Any, hint: Hint, adopt: str | None = None) -> None:
        """A real request came in."""
        request_id = request.request_id
        if self._off is not None or request_id in self.requests:
            # What is known already gets more input.
            super().add_request(request)
            return
        tokens = 0
        if adopt is not None:
            outcome, tokens = self._adopt(request, adopt)
            self.grape_counters[outcome.partition(":")[0]] += 1
            self._outcomes[request_id] = {"outcome": outcome, "tokens": tokens}
        super().add_request(request)
        now = self.grape_clock()
        # It may have waited for the end of a step to be read.
        waited = min(max(self.grape_wall_clock() - request.arrival_time, 0.0), _MOST_WAITED_S)
        view = self._views.add(request, self._next_seq(), now - waited, hint)
        view.adopted = tokens > 0
        sampling = request.sampling_params
        kind = sampling.sampling_type if sampling is not None else None
        if self._on_cpu and kind == SamplingType.RANDOM_SEED:
            self._seeded.add(request_id)
        self._size_up(request, view)
        if request.resumable:
            self._sessions.add(request_id)
        else:
            self._controller.call_arrived(view, now)

    # ------------------------------------------------------------------ adoption

    def _adopt(self, request: Any, key: str) -> tuple[str, int]:
        """Hand an open prompt's KV to a real request that is in no queue yet.

        Returns the outcome and the tokens handed over; the open prompt has ended after this.
        """
        # Who has another salt is told what is told of a key that never was.
        prompt = self._opens.shown(key, request.cache_salt)
        if prompt is None:
            how = self._opens.how_ended(key, request.cache_salt)
            return (how if how and how.startswith("refused") else "unknown"), 0
        opened = prompt.request
        self._kv_counts.handed_over(
            key, request.request_id, opened.prompt_token_ids, request.prompt_token_ids
        )
        refusal = why_not_adopt(request, opened) if self._unpaused else "the engine is paused"
        if refusal is not None:
            self._end([prompt], "refused:taken by another call")
            return f"refused:{refusal}", 0
        outcome, tokens = fit(
            request.prompt_token_ids,
            opened.prompt_token_ids,
            opened.num_computed_tokens,
            self._ledger.hashed_tokens(key),
            self._ledger.block_size,
        )
        if tokens > 0:
            request.num_computed_tokens = tokens
            if request.prefill_stats is not None:
                request.prefill_stats.set(request.num_prompt_tokens, tokens, 0)
            self._ledger.move(key, request.request_id, tokens)
            self.grape_counters["adopted_tokens"] += tokens
        self._end([prompt], "refused:taken by another call", adopted=tokens)
        return outcome, tokens

    # ------------------------------------------------------------------ end of requests

    def finish_requests(
        self, request_ids: str | Iterable[str] | None, *args: Any, **kwargs: Any
    ) -> list[Any]:
        """End requests from outside; an abort of an open key is its release."""
        if self._off is None:
            if request_ids is None:
                request_ids = list(self.requests)
            elif not isinstance(request_ids, str):
                request_ids = list(request_ids)
            for request_id in [request_ids] if isinstance(request_ids, str) else request_ids:
                prompt = self._opens.end(request_id, "released")
                if prompt is not None:
                    self.grape_counters["released"] += 1
                    self._controller.open_ended(prompt.view, None)
                self._outcomes.pop(request_id, None)
        ended: list[Any] = super().finish_requests(request_ids, *args, **kwargs)
        return ended

    def _end(self, prompts: list[OpenPrompt], how: str, adopted: int | None = None) -> None:
        """End open prompts for a reason of our own; ``adopted``: tokens that a call took over."""
        for prompt in prompts:
            self._opens.end(prompt.view.id, how)
            self._controller.open_ended(prompt.view, adopted)
        super().finish_requests(
            [prompt.view.id for prompt in prompts], RequestStatus.FINISHED_ABORTED
        )

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """A request ended, by itself or not; open prompts have left the table before."""
        if self._off is None:
            view = self._views.pop(request.request_id)
            self._blocked.discard(request.request_id)
            self._sessions.discard(request.request_id)
            self._seeded.discard(request.request_id)
            if view is not None and not request.resumable:
                view.output = request.num_output_tokens
                limited = request.status == RequestStatus.FINISHED_LENGTH_CAPPED
                self._controller.call_ended(
                    view,
                    self.grape_clock(),
                    complete=limited or _has_stopped(request),
                    limited=limited,
                )
        return super()._free_request(request, *args, **kwargs)

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, Any]:
        """Process a step's output; outputs of adopting calls also say what was adopted."""
        outputs: dict[int, Any] = super().update_from_output(*args, **kwargs)
        if self._off is not None or not self._outcomes:
            return outputs
        for engine_outputs in outputs.values():
            for output in engine_outputs.outputs:
                outcome = self._outcomes.get(output.request_id)
                if outcome is not None:
                    # On every output: a slow reader sees several merged into the last one.
                    params = output.kv_transfer_params or {}
                    output.kv_transfer_params = {**params, "grape": dict(outcome)}
                    if output.finish_reason is not None:
                        del self._outcomes[output.request_id]
        return outputs

    def grape_release_all(self) -> int:
        """Release every open prompt; returns how many there were."""
        if self._off is not None:
            return 0
        keys = self._opens.keys()
        self.finish_requests(keys, RequestStatus.FINISHED_ABORTED)
        return len(keys)

    def shutdown(self) -> None:
        """End; open prompts do not hold it up."""
        self.grape_release_all()
        if self._off is None and self._trace is not None:
            self._trace.close()
        super().shutdown()

    def _expire(self, now: float) -> None:
        if now < self._next_expiry or not self._opens:
            return
        ttl_s = self._config.ttl_s
        self._next_expiry = now + ttl_s / _EXPIRY_CHECKS
        expired = self._opens.expired(now, ttl_s)
        if expired:
            self._end([self._opens[key] for key in expired], "refused:expired")
            self.grape_counters["expired"] += len(expired)


def _has_stopped(request: Any) -> bool:
    """Whether a request ended by itself before its limit.

    At a stop string the front end ends it, which looks like an abort from here. Nearly all
    aborts of requests that have stop strings are that.
    """
    if request.status == RequestStatus.FINISHED_ABORTED:
        sampling = request.sampling_params
        return bool(sampling is not None and sampling.stop and request.num_output_tokens)
    return bool(request.status == RequestStatus.FINISHED_STOPPED)
