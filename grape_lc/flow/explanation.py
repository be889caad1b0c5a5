"""What ``explain`` finds out about a flow: results, their table and their plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

CHARACTERS_PER_TOKEN = 4
"""What an estimate assumes when there is no tokenizer at hand."""

_SHOWN = 3  # answers of which the newest is read


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of prompt tokens, as far as it is known.

    tokens: of literal text and of inputs whose values were given.
    unsized: slots of inputs whose values were not given.
    """

    tokens: int
    unsized: tuple[str, ...]

    def text(self, *, estimated: bool) -> str:
        """In words, such as ``~120 + {topic}``."""
        parts = list(self.unsized)
        if self.tokens or not parts:
            mark = "~" if estimated and self.tokens else ""
            parts.insert(0, f"{mark}{self.tokens:,}")
        return " + ".join(parts)

    def __add__(self, other: Amount) -> Amount:
        unsized = tuple(dict.fromkeys((*self.unsized, *other.unsized)))
        return Amount(self.tokens + other.tokens, unsized)


NOTHING = Amount(0, ())


@dataclass(frozen=True, slots=True)
class StreamsIn:
    """A slot that fills while its upstream task decodes.

    source: the upstream task. slot: as it stands in the prompt.
    tokens_at_most: the upstream's ``max_tokens``; None when it has none.
    after: tasks that must be complete first since their slots stand in front; this one may
        have come far by then, and only the rest streams.
    whole: it is the whole answer; else a field of it, which may be full before the answer ends.
    place: its number among the prompt's parts.
    one_of: tasks of which the newest answer is read; ``source`` is the last of them, and the limit
        is the highest.
    """

    source: str
    slot: str
    tokens_at_most: int | None
    after: tuple[str, ...]
    whole: bool = True
    place: int = field(default=0, compare=False)
    one_of: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Waits:
    """A part that goes in as a whole, once the tasks are complete whose slots stand in front.

    text: an excerpt of the template, white space folded.
    amount: its size; None when it is the output of a task.
    tokens_at_most: the ``max_tokens`` of that task; None when it has none, or for known text.
    until: the tasks that must be complete.
    meanwhile: an upstream task that starts only after those, so that this part is prefilled
        while it decodes; None when the call may have nothing else to wait for.
    why: the same in words, for readers who see the prompt.
    source: the task whose output it is; None for known text.
    place: its number among the prompt's parts.
    """

    text: str
    amount: Amount | None
    tokens_at_most: int | None
    until: tuple[str, ...]
    meanwhile: str | None
    why: str
    source: str | None = field(default=None, compare=False)
    place: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Never:
    """The end of a prompt that is not prepared: an opaque variable and all that follows it.

    slot: of the variable. why: the variable's description.
    amount: known text behind it. sources: tasks whose outputs stand behind it.
    place: its number among the prompt's parts.
    """

    slot: str
    why: str
    amount: Amount
    sources: tuple[str, ...]
    place: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """One task's prompt; ``streams_in`` and ``waits`` each in prompt order.

    never: what is not prepared, from an opaque variable on; None: all is.
    """

    task: str
    known_at_start: Amount
    streams_in: tuple[StreamsIn, ...]
    waits: tuple[Waits, ...]
    never: Never | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "task": self.task,
            "known_at_start": self.known_at_start.tokens,
            "unsized_at_start": list(self.known_at_start.unsized),
            "streams_in": [
                {
                    "from": part.source,
                    "slot": part.slot,
                    "tokens_at_most": part.tokens_at_most,
                    "after": list(part.after),
                    "whole": part.whole,
                }
                for part in self.streams_in
            ],
            "waits": [
                {
                    "text": part.text,
                    "tokens": part.amount.tokens if part.amount else None,
                    "unsized": list(part.amount.unsized) if part.amount else [],
                    "tokens_at_most": part.tokens_at_most,
                    "until": list(part.until),
                    "meanwhile": part.meanwhile,
                    "why": part.why,
                }
                for part in self.waits
            ],
            "never": None
            if self.never is None
            else {
                "slot": self.never.slot,
                "why": self.never.why,
                "tokens": self.never.amount.tokens,
                "unsized": list(self.never.amount.unsized),
                "outputs": list(self.never.sources),
            },
        }


@dataclass(frozen=True, slots=True)
class Explanation:
    """All tasks in the flow's order. ``str()`` gives a table, ``to_dict()`` plain data.

    estimated: token numbers are characters / CHARACTERS_PER_TOKEN, marked ``~`` in the table.
    notes: what the numbers leave out.
    """

    flow: str
    estimated: bool
    tasks: tuple[TaskExplanation, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "flow": self.flow,
            "estimated": self.estimated,
            "tasks": [row.to_dict() for row in self.tasks],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        table = [("task", "known at start", "streams in", "must wait")]
        for row in self.tasks:
            table += zip_longest(
                [row.task],
                [row.known_at_start.text(estimated=self.estimated)],
                [streams_text(part) for part in row.streams_in] or ["-"],
                self._waiting(row) or ["-"],
                fillvalue="",
            )
        widths = [max(len(line[column]) for line in table) for column in range(4)]
        table.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2], "-" * widths[3]))
        lines = [f"Flow {self.flow!r}: prompt tokens by the time at which they can be prefilled"]
        for line in table:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self.notes])

    def _waiting(self, row: TaskExplanation) -> list[str]:
        lines = [waits_text(part, estimated=self.estimated) for part in row.waits]
        if row.never is not None:
            lines.append(f"not prepared: {never_text(row.never, estimated=self.estimated)}")
        return lines


def streams_text(part: StreamsIn) -> str:
    """A slot that streams in, in words."""
    names = part.one_of or (part.source,)
    if len(names) > _SHOWN:
        sources = f"{names[0]!r} ... or {names[-1]!r}"  # rounds of a loop may be many
    else:
        sources = " or ".join(map(repr, names))
    text = f"{part.slot} from {sources}, {_limit(part.tokens_at_most)}"
    if part.after:
        text += f", only once {_names(part.after)} complete"
    return text


def waits_text(part: Waits, *, estimated: bool) -> str:
    """A part that waits, in words."""
    if part.amount is None:
        return f"{part.text}, {_limit(part.tokens_at_most)}: {part.why}"
    return f"{part.amount.text(estimated=estimated)}: {part.why}: {part.text!r}"


def never_text(part: Never, *, estimated: bool) -> str:
    """What is not prepared, in words."""
    behind = [f"the output of {source!r}" for source in part.sources]
    if part.amount != NOTHING:
        behind.insert(0, f"{part.amount.text(estimated=estimated)} of known text")
    more = f" and behind it {', '.join(behind)}" if behind else ""
    return f"{part.slot}{more}: {part.why or 'no run gives it'}"


def _limit(tokens: int | None) -> str:
    return "no limit" if tokens is None else f"at most {tokens}"


def _names(tasks: Sequence[str]) -> str:
    verb = "is" if len(tasks) == 1 else "are"
    return f"{' and '.join(map(repr, tasks))} {verb}"
