"""Texts in prompts that are other ones in the next run, in a second, or tomorrow.

They break caches: what stands behind one is prefilled anew in each run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from grape_lc.adapters.flow_builder import Messages
from grape_lc.adapters.markers import Damaged
from grape_lc.adapters.trace_merge import DIFFERS, Seen, merged

_DATES = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y",
    "%B %d, %Y", "%d %B %Y", "%b %d, %Y", "%d %b %Y", "%A, %B %d", "%a %b %d", "%B %d %Y",
)  # fmt: skip
_TIME = re.compile(r"(?<!\d)\d{1,2}:\d{2}(?!\d)")
_SHOWN = 40  # characters in front of such a text, to find it by


def dates_in(text: str, now: datetime) -> list[str]:
    """The forms of the day of ``now`` that stand in ``text``, by the usual ways of writing it."""
    forms = {now.strftime(form) for form in _DATES}
    # Days below 10 are also written without a 0, which strftime does not do everywhere.
    forms |= {re.sub(r"\b0(\d)", r"\1", form) for form in forms}
    found = [form for form in forms if form in text]
    return sorted(f for f in found if not any(f != other and f in other for other in found))


def shows_time(text: str) -> bool:
    """Whether something in ``text`` looks like a time of day."""
    return _TIME.search(text) is not None


def changes(prompts: Sequence[Seen]) -> str | None:
    """Where a prompt changes from run to run although the same choices were made, in words."""
    usual = [seen for seen in prompts if not seen.short]
    if not usual or len(usual) == len(prompts):
        return None
    before, after = merged(usual), merged(prompts)
    return None if _ends_early(before) or not _ends_early(after) else place_of(after)


def place_of(messages: Messages) -> str:
    """The end of the prompt, in words."""
    _, parts = messages[-1]
    text = next((part for part in reversed(parts) if isinstance(part, str)), "")
    shown = f"behind {text[-_SHOWN:]!r}" if text else "at its beginning"
    return f"message {len(messages)}, {shown}"


def _ends_early(messages: Messages) -> bool:
    return any(part == Damaged(DIFFERS) for part in messages[-1][1]) if messages else False
