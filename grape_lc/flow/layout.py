"""Advice on the layout of prompts: what breaks the prefix cache, and what stands in the way.

An engine keeps the KV of prompts that begin alike, so text that is the same in every run is
prefilled once if, and only if, nothing that changes stands in front of it:

    "Today is 2026-11-30. "  [1,800 static tokens]      one run shares nothing with the next
    [1,800 static tokens]  "Today is 2026-11-30."       all runs share 1,800 tokens

The same order decides what is prepared ahead: see ``explain``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from grape_lc.flow.explain import estimate, explain
from grape_lc.flow.explanation import TaskExplanation
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import Literal_, Slot
from grape_lc.flow.variables import InputVar

LEAST_TOKENS = 32
"""Static tokens behind a break that are worth a word: two blocks of the prefix cache."""

_MONTH = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    "|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)

# What looks as if it were another text in the next run. The first that fits names it, so the
# longer forms stand first.
_VOLATILE: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "a date and time",
        re.compile(
            r"\b\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[T ]\d{2}:\d{2}"
            r"(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?"
        ),
    ),
    (
        "a date",
        re.compile(
            r"\b\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\b"
            r"|\b(?:0?[1-9]|[12]\d|3[01])([./])(?:0?[1-9]|[12]\d|3[01])\1(?:\d{4}|\d{2})\b"
            rf"|\b\d{{1,2}}\.? {_MONTH},? \d{{4}}\b"
            rf"|\b{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b"
        ),
    ),
    (
        "a UUID",
        re.compile(r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"),
    ),
    ("an id", re.compile(r"(?i)\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{16,}\b")),
    # Seconds or milliseconds since 1970, from 2001 on: ten or thirteen digits.
    ("a time stamp", re.compile(r"\b1\d{9}(?:\d{3})?(?:\.\d+)?\b")),
    ("a long number", re.compile(r"\b\d{10,}\b")),
    (
        "a weekday",
        re.compile(r"\b(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day\b"),
    ),
    ("a time of day", re.compile(r"\b(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?(?: ?[AaPp][Mm])?\b")),
)


@dataclass(frozen=True, slots=True)
class Advice:
    """One thing about a prompt that costs.

    kind: ``volatile``: literal text that looks as if it changed between runs; ``opaque``: a
        value that no run gives; ``static``: a value in front of static text; ``order``: a part
        that could be prefilled earlier if it stood before an answer.
    what: the text or slot. tokens: how many prompt tokens it is about.
    text: the whole sentence.
    """

    task: str
    kind: str
    what: str
    tokens: int
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "task": self.task,
            "kind": self.kind,
            "what": self.what,
            "tokens": self.tokens,
            "text": self.text,
        }


def advise(
    flow: TaskFlow,
    inputs: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> tuple[Advice, ...]:
    """What could be better in the prompts of a flow, in its order and that of the prompts.

    Arguments and errors are those of ``explain``. Nothing is said of less than LEAST_TOKENS static
    ones, nor of an answer that has less. An input behind an answer is told of in any case: its
    size is not known. A prompt in another order is another prompt, and may be answered otherwise:
    the choice is the author's.
    """
    rows = {row.task: row for row in explain(flow, inputs, count_tokens).tasks}
    count = estimate if count_tokens is None else count_tokens
    mark = "~" if count_tokens is None else ""
    return tuple(
        advice
        for task in flow.order()
        for advice in (
            *_breaks(flow, task, count, mark),
            *_orders(task, rows[task.name], mark),
        )
    )


def _breaks(flow: TaskFlow, task: Task, count: Callable[[str], int], mark: str) -> Iterator[Advice]:
    """The first volatile text, and the first value, with enough static text behind them."""
    segments = [segment for _, segments in task.prompt.sections for segment in segments]
    sizes = [count(s.text) if isinstance(s, Literal_) else 0 for s in segments]
    behind = [sum(sizes[i + 1 :]) for i in range(len(segments))]
    slot = next((i for i, s in enumerate(segments) if isinstance(s, Slot)), len(segments))
    for index, segment in enumerate(segments):
        if isinstance(segment, Slot):
            if behind[index] >= LEAST_TOKENS:
                yield _value(flow, task.name, segment, behind[index], mark)
            # Behind a value nothing is shared in any case.
            return
        if (found := volatile(segment.text)) is not None:
            what, match = found
            # Text in front of the first value is all that runs could share.
            lost = count(segment.text[match.end() :]) if segment.text[match.end() :] else 0
            lost += sum(sizes[index + 1 : slot])
            if lost >= LEAST_TOKENS:
                yield Advice(
                    task.name,
                    "volatile",
                    match.group(),
                    lost,
                    f"{match.group()!r} looks like {what}, in front of {mark}{lost:,} static "
                    "tokens: if it changes from run to run, nothing behind it is shared between "
                    "runs or prepared rightly; put it at the end",
                )
                return


def _value(flow: TaskFlow, task: str, slot: Slot, tokens: int, mark: str) -> Advice:
    variable = flow.variable(slot.variable)
    if isinstance(variable, InputVar) and variable.opaque:
        why = variable.description or "no run gives it"
        return Advice(
            task,
            "opaque",
            str(slot),
            tokens,
            f"{slot} ({why}) stands before {mark}{tokens:,} static tokens, which are never "
            "prepared: put it behind them",
        )
    return Advice(
        task,
        "static",
        str(slot),
        tokens,
        f"{slot} stands before {mark}{tokens:,} static tokens: put it behind them and every run "
        "shares them",
    )


def _orders(task: Task, row: TaskExplanation, mark: str) -> Iterator[Advice]:
    """Inputs and older answers that stand behind an answer which is not complete."""
    for part in row.waits:
        if part.source is not None:
            if part.source in part.until:
                continue  # it is read twice, and once it has to come first
            limit = part.tokens_at_most
            if limit is None or limit >= LEAST_TOKENS:
                yield Advice(
                    task.name,
                    "order",
                    part.text,
                    limit or 0,
                    f"{part.text} is complete before {_slots(row, part.until)}, and stands behind: "
                    "in front it would be prefilled meanwhile",
                )
        elif part.meanwhile is None and part.amount is not None and part.amount.unsized:
            given = ", ".join(part.amount.unsized)
            yield Advice(
                task.name,
                "order",
                given,
                part.amount.tokens,
                f"{given} {'is' if len(part.amount.unsized) == 1 else 'are'} known at the start, "
                f"and must wait behind {_slots(row, part.until)}: in front of it, it would be "
                "prefilled at once",
            )


def _slots(row: TaskExplanation, tasks: tuple[str, ...]) -> str:
    slots = [part.slot for part in row.streams_in if part.source in tasks]
    return " and ".join(slots) or " and ".join(map(repr, tasks))


def volatile(text: str) -> tuple[str, re.Match[str]] | None:
    """The first thing in a text that looks as if it changed, with its kind; None: nothing."""
    found = [(m.start(), i, m) for i, (_, p) in enumerate(_VOLATILE) if (m := p.search(text))]
    if not found:
        return None
    _, index, match = min(found, key=lambda item: item[:2])
    return _VOLATILE[index][0], match
