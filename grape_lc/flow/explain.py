"""When each part of each prompt can be prefilled, before anything runs.

A prefill follows the prompt's order, so each part waits for all that stands in front of it:

    [known text] [{plan}] [known text] [{draft}] [known text]
     at start     streams   waits        streams,   waits
                  while     for 'plan'   but only   for both
                  'plan'                 once 'plan'
                  decodes                is complete
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import Literal_, Slot, StaticRun

CHARACTERS_PER_TOKEN = 4
"""What an estimate assumes when there is no tokenizer at hand."""

_EXCERPT = 40


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of prompt tokens, as far as it is known.

    tokens: of literal text and of inputs whose values were given.
    unsized: slots of inputs whose values were not given.
    """

    tokens: int
    unsized: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StreamsIn:
    """A slot that fills while its upstream task decodes.

    source: the upstream task. slot: as it stands in the prompt.
    tokens_at_most: the upstream's ``max_tokens``; None when it has none.
    after: tasks that must be complete first since their slots stand in front; this one may
        have come far by then, and only the rest streams.
    """

    source: str
    slot: str
    tokens_at_most: int | None
    after: tuple[str, ...]


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
    """

    text: str
    amount: Amount | None
    tokens_at_most: int | None
    until: tuple[str, ...]
    meanwhile: str | None
    why: str


@dataclass(frozen=True, slots=True)
class TaskExplanation:
    """One task's prompt; ``streams_in`` and ``waits`` each in prompt order."""

    task: str
    known_at_start: Amount
    streams_in: tuple[StreamsIn, ...]
    waits: tuple[Waits, ...]


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
            "tasks": [
                {
                    "task": row.task,
                    "known_at_start": row.known_at_start.tokens,
                    "unsized_at_start": list(row.known_at_start.unsized),
                    "streams_in": [
                        {
                            "from": part.source,
                            "slot": part.slot,
                            "tokens_at_most": part.tokens_at_most,
                            "after": list(part.after),
                        }
                        for part in row.streams_in
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
                        for part in row.waits
                    ],
                }
                for row in self.tasks
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        table = [("task", "known at start", "streams in", "must wait")]
        for row in self.tasks:
            table += zip_longest(
                [row.task],
                [self._amount(row.known_at_start)],
                [self._streams(part) for part in row.streams_in] or ["-"],
                [self._waits(part) for part in row.waits] or ["-"],
                fillvalue="",
            )
        widths = [max(len(line[column]) for line in table) for column in range(4)]
        table.insert(1, ("-" * widths[0], "-" * widths[1], "-" * widths[2], "-" * widths[3]))
        lines = [f"Flow {self.flow!r}: prompt tokens by the time at which they can be prefilled"]
        for line in table:
            cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
            lines.append("  ".join(cells).rstrip())
        return "\n".join([*lines, *self.notes])

    def _amount(self, amount: Amount) -> str:
        parts = list(amount.unsized)
        if amount.tokens or not parts:
            mark = "~" if self.estimated and amount.tokens else ""
            parts.insert(0, f"{mark}{amount.tokens}")
        return " + ".join(parts)

    def _streams(self, part: StreamsIn) -> str:
        text = f"{part.slot} from {part.source!r}, {_limit(part.tokens_at_most)}"
        if part.after:
            text += f", only once {_names(part.after)} complete"
        return text

    def _waits(self, part: Waits) -> str:
        if part.amount is None:
            return f"{part.text}, {_limit(part.tokens_at_most)}: {part.why}"
        return f"{self._amount(part.amount)}: {part.why}: {part.text!r}"


def explain(
    flow: TaskFlow,
    inputs: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Explanation:
    """Which tokens of each prompt are known at the start, stream in, or must wait.

    inputs: values of input variables, as many as are known; they only give sizes.
    count_tokens: tokens of a text, without special tokens, such as an engine's
        ``count_tokens``; without it the numbers are estimates.

    Parts are counted apart, so tokens that would span a border count on both sides.
    Raises FlowInputError (inputs) and what ``TaskFlow.validate_flow`` raises.
    """
    flow.validate_flow()
    inputs = {} if inputs is None else inputs
    flow.check_inputs(inputs, partial=True)
    count = _estimate if count_tokens is None else count_tokens
    rows = tuple(_explain_task(flow, task, inputs, count) for task in flow.order())
    notes = []
    if count_tokens is None:
        notes.append(
            f"~ estimated at {CHARACTERS_PER_TOKEN} characters a token; count_tokens gives counts"
        )
    unsized = dict.fromkeys(slot for row in rows for slot in _unsized(row))
    if unsized:
        notes.append(f"size not known, no value given: {', '.join(unsized)}")
    if any(task.prompt.messages is not None for task in flow.tasks):
        notes.append("chat prompts: the text of messages only; template markers are not counted")
    return Explanation(flow.name, count_tokens is None, rows, tuple(notes))


def _explain_task(
    flow: TaskFlow, task: Task, inputs: Mapping[str, str], count: Callable[[str], int]
) -> TaskExplanation:
    writers = {other.output: other for other in flow.tasks}
    front = _Front(flow, task)
    known = Amount(0, ())
    streams: list[StreamsIn] = []
    waits: list[Waits] = []
    for piece in task.prompt.cut_at(writers):
        if isinstance(piece, Slot):
            writer = writers[piece.variable]
            limit = writer.sampling.max_tokens
            if writer.name in front.complete:
                why = f"output of {writer.name!r}, {front.reason()}"
                waits.append(front.wait(str(piece), None, limit, why))
            else:
                after = front.last_before(writer.name)
                streams.append(StreamsIn(writer.name, str(piece), limit, after))
            front.add(piece, writer.name)
        elif front.slots:
            amount = _measure(piece, inputs, count)
            waits.append(front.wait(_excerpt(piece), amount, None, f"known text {front.reason()}"))
        else:
            known = _measure(piece, inputs, count)
    return TaskExplanation(task.name, known, tuple(streams), tuple(waits))


class _Front:
    """The upstream slots that stand in front of a place in a task's prompt.

    slots: source task of each slot, in prompt order.
    complete: tasks that are complete once all of these slots are.
    """

    def __init__(self, flow: TaskFlow, task: Task) -> None:
        self._flow = flow
        self._upstream = flow.upstream(task)
        self.slots: dict[Slot, str] = {}
        self.complete: set[str] = set()

    def add(self, slot: Slot, source: str) -> None:
        self.slots[slot] = source
        self.complete |= {source, *self._flow.ancestors(source)}

    def last(self, sources: Iterable[str]) -> tuple[str, ...]:
        """Those of the tasks that no other of them waits for to end: the rest ends before."""
        names = tuple(dict.fromkeys(sources))
        earlier = {name for other in names for name in self._flow.ancestors(other)}
        return tuple(name for name in names if name not in earlier)

    def last_before(self, source: str) -> tuple[str, ...]:
        """Tasks of slots in front that may still run while ``source`` does."""
        ended = self._flow.ancestors(source)
        return self.last(name for name in self.slots.values() if name not in ended)

    def meanwhile(self) -> str | None:
        """The first upstream, in prompt order, that starts only when all in front is complete."""
        needed = set(self.slots.values())
        return next((n for n in self._upstream if needed <= self._flow.ancestors(n)), None)

    def reason(self) -> str:
        """Why a part at this place waits."""
        until = self.last(self.slots.values())
        slots = " and ".join(str(slot) for slot, source in self.slots.items() if source in until)
        meanwhile = self.meanwhile()
        return f"behind {slots}" + (f" (while {meanwhile!r} decodes)" if meanwhile else "")

    def wait(self, text: str, amount: Amount | None, limit: int | None, why: str) -> Waits:
        until = self.last(self.slots.values())
        return Waits(text, amount, limit, until, self.meanwhile(), why)


def _measure(run: StaticRun, inputs: Mapping[str, str], count: Callable[[str], int]) -> Amount:
    tokens = 0
    unsized: dict[str, None] = {}
    for part in run.parts:
        text = ""
        for segment in part:
            if isinstance(segment, Literal_):
                text += segment.text
            elif segment.variable in inputs:
                text += segment.transducer.apply(inputs[segment.variable])
            else:
                unsized[str(segment)] = None
        tokens += count(text) if text else 0
    return Amount(tokens, tuple(unsized))


def _estimate(text: str) -> int:
    return -(-len(text) // CHARACTERS_PER_TOKEN)  # rounded up


def _excerpt(run: StaticRun) -> str:
    text = "".join(s.text if isinstance(s, Literal_) else str(s) for s in run.segments)
    folded = " ".join(text.split()) or "(white space)"
    return folded if len(folded) <= _EXCERPT else folded[: _EXCERPT - 3] + "..."


def _unsized(row: TaskExplanation) -> Iterable[str]:
    yield from row.known_at_start.unsized
    for part in row.waits:
        yield from part.amount.unsized if part.amount else ()


def _limit(tokens: int | None) -> str:
    return "no limit" if tokens is None else f"at most {tokens}"


def _names(tasks: Sequence[str]) -> str:
    verb = "is" if len(tasks) == 1 else "are"
    return f"{' and '.join(map(repr, tasks))} {verb}"
