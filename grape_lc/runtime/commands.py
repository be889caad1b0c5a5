"""What the table of open prompts asks of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grape_lc.scheduler.types import Hint


@dataclass(frozen=True)
class OpenPrompt:
    """Begin to prefill ``ids`` under a key that was never used before, for a call as hinted."""

    key: str
    ids: Sequence[int]
    hint: Hint


@dataclass(frozen=True)
class AppendPrompt:
    """Extend an open prompt.

    final: its text is complete. hops, source: as in Hint, as they are now.
    """

    key: str
    ids: Sequence[int]
    hops: int
    final: bool
    source: str | None


@dataclass(frozen=True)
class ReleasePrompt:
    """Give an open prompt's KV back."""

    key: str


Command = OpenPrompt | AppendPrompt | ReleasePrompt
