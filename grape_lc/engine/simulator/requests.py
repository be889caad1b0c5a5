"""A request as the simulated engine keeps it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from grape_lc.engine.simulator.tokens import Text
from grape_lc.scheduler.types import RequestView


@dataclass(slots=True, eq=False)
class Request:
    """A call or an open prompt.

    view: what the policy sees. prompt: tokens of a call's prompt. answer: tokens that a call will
    answer; 0 for an open prompt. source: of these tokens. priority: vLLM's, smaller goes first.
    blocks, published: KV blocks in order, and how many of them are in the prefix cache.
    hit: tokens that it found in the prefix cache when it last began. peak: most tokens it ever
    had computed. spent: tokens that were computed for an open prompt; of a call, of those that it
    took over. begun: tokens that a call had without computing them itself. owner: for whoever made
    it.
    matches: of a call in an engine that drafts, as ``Drafting.matches`` gives them.
    """

    view: RequestView
    known: Text
    prompt: int
    answer: int = 0
    source: int = 0
    priority: int = 0
    blocks: list[int] = field(default_factory=list)
    published: int = 0
    hit: int = 0
    peak: int = 0
    spent: int = 0
    begun: int | None = None
    owner: Any = None
    matches: bytes | None = None

    def text(self) -> Text:
        """All its tokens; those that it sampled are added when they are asked for."""
        missing = self.view.tokens - self.known.length
        if missing > 0:
            self.known.append(self.source, missing)
        return self.known
