"""What is expected of requests: how long calls decode, and the KV that this takes."""

from __future__ import annotations

from collections.abc import Iterable

from grape_lc.scheduler.lengths import Lengths
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import NO_SLACK_S, Decodes, Hint, RequestView, Stage

_FRESH = 16  # tokens after which what a call is expected to decode is looked up again


class Outlook:
    """Expectations of one engine's requests, learned from the calls that ended.

    block_size: tokens of a KV block; groups: KV groups. How long a tenant's calls decode says
    nothing of another's.
    """

    def __init__(self, config: PolicyConfig, block_size: int, groups: int) -> None:
        self.lengths = Lengths()
        self._config = config
        self._block_size = block_size
        self._groups = groups
        self._sources: dict[tuple[str | None, str | None], RequestView] = {}

    def call_arrived(self, view: RequestView, step_s: float) -> None:
        """Look up what a call is expected to decode, and its program after it.

        step_s: seconds of a step, in which a token takes one.
        """
        hint, lengths = view.hint, self.lengths
        if hint.program is not None and hint.task is not None:
            self._sources[hint.program, hint.task] = view
        self.foresee(view)
        view.tbt_s = hint.tbt_s if hint.tbt_s is not None else self._config.tbt_s
        own = view.max_output - view.output if view.remaining is None else view.remaining
        tokens = min(float(own), view.max_output - view.output)
        for task in hint.after:
            tokens += lengths.expected(_flow(hint), task) or 0.0
        view.path_s = tokens * step_s if hint.task is not None else 0.0

    def call_ended(self, view: RequestView, *, complete: bool, limited: bool) -> None:
        """A call is gone; learn from it if it is ``complete``."""
        hint = view.hint
        if complete:
            self.lengths.observe(_flow(hint), hint.task, view.output, limited)
        if self._sources.get((hint.program, hint.task)) is view:
            del self._sources[hint.program, hint.task]

    @property
    def sizes(self) -> dict[str, int]:
        """Entries of what is kept: calls that others wait for, tasks, lookups."""
        lengths = self.lengths
        return {"sources": len(self._sources), "lengths": len(lengths), "memos": lengths.memos}

    def foresee(self, view: RequestView) -> None:
        """Look up what a call is expected to decode, and the KV that this takes."""
        hint = view.hint
        limit = view.max_output - view.output
        view.remaining, view.sure = self.lengths.remaining(
            _flow(hint), hint.task, view.output, view.max_output
        )
        if view.remaining is None:
            ahead = min(limit, self._config.horizon)
        else:
            ahead = min(limit, int(view.remaining) + 1)
        view.end_blocks = -(-(view.tokens + max(0, ahead)) // self._block_size)

    def expect_source(self, view: RequestView) -> None:
        """Look up how soon the call ends that an open prompt waits for."""
        hint = view.hint
        source = self._sources.get((hint.program, hint.source))
        if source is None:
            view.remaining = view.sure = None
            return
        view.remaining, view.sure = self.lengths.remaining(
            _flow(source.hint), source.hint.task, source.output, source.max_output
        )

    def tally(
        self, now: float, running: Iterable[RequestView], least_s: float = 0.0
    ) -> tuple[Decodes, tuple[RequestView, ...], int]:
        """Sum up the decodes, find the prefills, and add up the blocks all are expected to need.

        least_s: what a step takes without any prefill. A target between tokens that is no longer
        cannot be kept, and sets no limit: prefill would starve for nothing.
        """
        # For each request in each step: no call, no object, nothing that is not needed.
        rows = tokens = kv_tokens = blocks = growth = 0
        slack_s: float | None = None
        prefills: list[RequestView] = []
        size, prefill = self._block_size, Stage.PREFILL
        for view in running:
            computed = view.computed
            held = -(-computed // size)
            output = view.output
            # A prefill was looked up when it started.
            if not output % _FRESH and (output or not view.end_blocks):
                self.foresee(view)
            growing = view.end_blocks - held
            if growing > 0:
                growth += growing
            if view.stage is prefill:
                prefills.append(view)
                continue
            step_tokens = view.step_tokens
            rows += 1
            tokens += step_tokens
            kv_tokens += computed
            blocks += -(-(computed + step_tokens) // size) - held
            if view.tbt_s is not None:
                slack = view.tbt_s
                if slack <= least_s:
                    slack = NO_SLACK_S
                elif view.last_token is not None:
                    slack -= now - view.last_token
                if slack_s is None or slack < slack_s:
                    slack_s = slack
        groups = self._groups
        decodes = Decodes(rows, tokens, kv_tokens, blocks * groups, slack_s)
        return decodes, tuple(prefills), growth * groups


def _flow(hint: Hint) -> str | None:
    """Under which lengths of the hint's task are kept."""
    return f"{hint.tenant}\n{hint.flow or ''}" if hint.tenant else hint.flow
