"""When each part of each prompt can be prefilled, before anything runs.

A prefill follows the prompt's order, so each part waits for all that stands in front of it:

    [known text] [{plan}] [known text] [{draft}] [known text]
     at start     streams   waits        streams,   waits
                  while     for 'plan'   but only   for both
                  'plan'                 once 'plan'
                  decodes                is complete
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from grape_lc.flow.explanation import (
    CHARACTERS_PER_TOKEN,
    NOTHING,
    Amount,
    Explanation,
    Never,
    StreamsIn,
    TaskExplanation,
    Waits,
)
from grape_lc.flow.json_paths import PREFIX
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import Literal_, Slot, StaticRun

__all__ = ["Explanation", "estimate", "explain", "explain_task"]

_EXCERPT = 40


def explain(
    flow: TaskFlow,
    inputs: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> Explanation:
    """Which tokens of each prompt are known at the start, stream in, must wait, or never come.

    inputs: values of input variables, as many as are known; they only give sizes. An opaque
        one that is given is taken for one that runs give.
    count_tokens: tokens of a text, without special tokens, such as an engine's
        ``count_tokens``; without it the numbers are estimates.

    Parts are counted apart, so tokens that would span a border count on both sides.
    Raises FlowInputError (inputs) and what ``TaskFlow.validate_flow`` raises.
    """
    flow.validate_flow()
    inputs = {} if inputs is None else inputs
    flow.check_inputs(inputs, partial=True)
    count = estimate if count_tokens is None else count_tokens
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


def explain_task(
    flow: TaskFlow,
    task: str,
    newest: Mapping[str, str | None],
    inputs: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
) -> TaskExplanation:
    """The same of one task, for a way that a run takes.

    newest: the task that each NewestVar stands for; None: for an input.
    """
    count = estimate if count_tokens is None else count_tokens
    return _explain_task(flow, flow.task(task), inputs or {}, count, newest)


def _explain_task(
    flow: TaskFlow,
    task: Task,
    inputs: Mapping[str, str],
    count: Callable[[str], int],
    newest: Mapping[str, str | None] | None = None,
) -> TaskExplanation:
    writers = {other.output: other for other in flow.tasks}
    choices: dict[str, list[Task]] = {}
    for name, of in flow.choices.items():
        if newest is not None and name in newest:
            if (chosen := newest[name]) is not None:
                writers[name] = flow.task(chosen)
        # Of several the last one stands for all: which it will be is not known.
        elif several := [writers[n] for n in of if n in writers]:
            writers[name] = several[-1]
            choices[name] = several
    opaque = {
        var.name: var.description
        for var in flow.variables
        if var.kind == "input" and var.opaque and var.name not in inputs
    }
    front = _Front(flow, task)
    known = NOTHING
    streams: list[StreamsIn] = []
    waits: list[Waits] = []
    pieces = task.prompt.cut_at({*writers, *opaque})
    for place, piece in enumerate(pieces):
        if isinstance(piece, StaticRun):
            amount = _measure(piece, inputs, count)
            if front.slots or front.early:
                why = f"known text {front.reason()}"
                waits.append(front.wait(_excerpt(piece), amount, None, why, place))
            else:
                known = amount
        elif piece.variable in opaque:
            rest = [_measure(p, inputs, count) for p in pieces[place:] if isinstance(p, StaticRun)]
            behind = (p.variable for p in pieces[place:] if isinstance(p, Slot))
            sources = tuple(dict.fromkeys(writers[v].name for v in behind if v in writers))
            why = opaque[piece.variable]
            never = Never(str(piece), why, sum(rest, NOTHING), sources, place)
            return TaskExplanation(task.name, known, tuple(streams), tuple(waits), never)
        else:
            writer = writers[piece.variable]
            limit = writer.sampling.max_tokens
            if writer.name in front.complete:
                why = f"output of {writer.name!r}, {front.reason()}"
                waits.append(front.wait(str(piece), None, limit, why, place, writer.name))
            else:
                after = front.last_before(writer.name)
                whole = not _fills_early(piece)
                several = choices.get(piece.variable, [writer])
                one_of = tuple(other.name for other in several)
                streams.append(
                    StreamsIn(writer.name, str(piece), _most(several), after, whole, place, one_of)
                )
            front.add(piece, writer.name)
    return TaskExplanation(task.name, known, tuple(streams), tuple(waits))


def _most(writers: Iterable[Task]) -> int | None:
    """The most tokens that one of several answers may have; None: there is no limit."""
    limits = [task.sampling.max_tokens for task in writers]
    known = [limit for limit in limits if limit is not None]
    return max(known) if len(known) == len(limits) else None


class _Front:
    """The upstream slots that stand in front of a place in a task's prompt.

    slots: source task of each slot, in prompt order, but for those that are
    early: slots that are full before their source has ended.
    complete: tasks that are complete once all of these slots are.
    """

    def __init__(self, flow: TaskFlow, task: Task) -> None:
        self._flow = flow
        self._upstream = flow.upstream(task)
        self.slots: dict[Slot, str] = {}
        self.early: dict[Slot, str] = {}
        self.complete: set[str] = set()

    def add(self, slot: Slot, source: str) -> None:
        self.complete |= self._flow.ancestors(source)
        if _fills_early(slot) and source not in self.complete:
            self.early[slot] = source
        else:
            self.slots[slot] = source
            self.complete.add(source)

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
        """The first upstream, in prompt order, that still decodes when all in front is full."""
        needed, early = set(self.slots.values()), set(self.early.values())
        for name in self._upstream:
            ended = self._flow.ancestors(name)
            if needed <= ended and early <= ended | {name}:
                return name
        return None

    def reason(self) -> str:
        """Why a part at this place waits."""
        until = self.last(self.slots.values())
        slots = " and ".join(
            [
                *(str(slot) for slot, source in self.early.items() if source not in self.complete),
                *(str(slot) for slot, source in self.slots.items() if source in until),
            ]
        )
        meanwhile = self.meanwhile()
        return f"behind {slots}" + (f" (while {meanwhile!r} decodes)" if meanwhile else "")

    def wait(
        self,
        text: str,
        amount: Amount | None,
        limit: int | None,
        why: str,
        place: int,
        source: str | None = None,
    ) -> Waits:
        until = self.last(self.slots.values())
        return Waits(text, amount, limit, until, self.meanwhile(), why, source, place)


def _fills_early(slot: Slot) -> bool:
    """Whether a slot may be full before its source has ended: a field of a JSON document."""
    return any(stage.startswith(PREFIX) for stage in slot.transducer.name.split("|"))


def _measure(run: StaticRun, inputs: Mapping[str, str], count: Callable[[str], int]) -> Amount:
    tokens = 0
    unsized: dict[str, None] = {}
    for part in run.parts:
        text = ""
        for segment in part:
            if isinstance(segment, Literal_):
                text += segment.text
            elif segment.variable in inputs:
                text += segment.text(inputs[segment.variable])
            else:
                unsized[str(segment)] = None
        tokens += count(text) if text else 0
    return Amount(tokens, tuple(unsized))


def estimate(text: str) -> int:
    """Tokens of a text where there is no tokenizer."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)  # rounded up


def _excerpt(run: StaticRun) -> str:
    text = "".join(s.text if isinstance(s, Literal_) else str(s) for s in run.segments)
    folded = " ".join(text.split()) or "(white space)"
    return folded if len(folded) <= _EXCERPT else folded[: _EXCERPT - 3] + "..."


def _unsized(row: TaskExplanation) -> Iterable[str]:
    yield from row.known_at_start.unsized
    for part in row.waits:
        yield from part.amount.unsized if part.amount else ()
    yield from row.never.amount.unsized if row.never else ()
