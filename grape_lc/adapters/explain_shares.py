"""Whose the tokens are that a call found prefilled ahead, run by run.

What is prefilled is the beginning of a prompt, so it is dealt out in the prompt's order: to an
answer that is read what belongs to it, and never more. Only an answer that was given earlier in
the same run can have saved anything; of a NewestVar that is the one that was given last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from grape_lc.adapters.savings import PROGRAM, RESUMED, CallSaving, RunSavings
from grape_lc.flow.explanation import NOTHING, Amount, TaskExplanation, Waits
from grape_lc.flow.taskflow import TaskFlow

Newest = Mapping[str, str | None]
"""The task that a NewestVar stands for; None: an input, since no task of it has answered."""

Rows = Callable[[str, Newest], TaskExplanation]
"""When parts of a task's prompt can be prefilled, for one choice of each NewestVar."""


class Part(NamedTuple):
    """A part of a prompt.

    owner: the upstream that it counts for; None: no edge's. known: its size, if it is known text;
    None: the answer of ``source``. whole: that is a whole answer, not a field of one.
    """

    owner: str | None
    known: Amount | None = None
    source: str | None = None
    whole: bool = True


@dataclass(slots=True)
class Shares:
    """What the calls of one task found prefilled ahead, by upstream.

    tokens: sums over the calls. outcomes: of those calls that could read the upstream's answer.
    unread: how many could not: it had not been given in their run, or another one was newer.
    """

    tokens: dict[str, float]
    outcomes: dict[str, Counter[str]]
    unread: Counter[str]


def parts_of(row: TaskExplanation) -> list[Part]:
    """The parts of a prompt in its order.

    Text at the head is prefilled while the first answer is written that the prompt waits for;
    text in between while the next one is; text behind the last one belongs to no edge, since its
    call comes at once. Nor does what is not prepared at all.
    """
    first = row.streams_in[0].source if row.streams_in else None
    placed = [(-1, Part(first, row.known_at_start))]
    placed += [(p.place, Part(p.source, None, p.source, p.whole)) for p in row.streams_in]
    placed += [(p.place, Part(_owner(p), p.amount, p.source)) for p in row.waits]
    return [part for _, part in sorted(placed, key=lambda item: item[0])]


def shares_of(flow: TaskFlow, task: str, runs: Iterable[RunSavings], rows: Rows) -> Shares:
    """The tokens that the calls of ``task`` in these runs found prefilled ahead, by upstream."""
    upstreams = flow.upstream(task)
    found = Shares(
        dict.fromkeys(upstreams, 0.0), {name: Counter() for name in upstreams}, Counter()
    )
    for call, before in _calls_of(task, runs):
        newest = newest_in(flow, task, before)
        row = rows(task, newest)
        passed = _passed_over(flow, task, newest)
        for upstream in upstreams:
            # What had been answered before a run was resumed is not known here.
            if (upstream in before and upstream not in passed) or call.program == RESUMED:
                found.outcomes[upstream][outcome_of(call)] += 1
            else:
                found.unread[upstream] += 1
        for upstream, tokens in _dealt(row, call, before).items():
            found.tokens[upstream] += tokens
    return found


def newest_in(flow: TaskFlow, task: str, before: Iterable[str]) -> dict[str, str | None]:
    """What each NewestVar of a prompt stood for, given the calls that had ended, in order."""
    writers = {other.output: other.name for other in flow.tasks}
    ended = tuple(before)
    newest: dict[str, str | None] = {}
    for name, of in _choices(flow, task).items():
        tasks = {writers[variable] for variable in of if variable in writers}
        newest[name] = next((other for other in reversed(ended) if other in tasks), None)
    return newest


def newest_as(flow: TaskFlow, task: str, upstream: str) -> dict[str, str | None]:
    """Each NewestVar of a prompt that may stand for ``upstream`` taken for that."""
    output = flow.task(upstream).output
    return {name: upstream for name, of in _choices(flow, task).items() if output in of}


def _choices(flow: TaskFlow, task: str) -> dict[str, tuple[str, ...]]:
    read = flow.task(task).prompt.variables
    return {name: of for name, of in flow.choices.items() if name in read}


def _passed_over(flow: TaskFlow, task: str, newest: Newest) -> set[str]:
    """Upstreams that are read as one of several only, and another one was the newest."""
    writers = {other.output: other.name for other in flow.tasks}
    read = {writers.get(name) for name in flow.task(task).prompt.variables}
    several = {writers.get(n) for of in _choices(flow, task).values() for n in of}
    return {name for name in several - read - set(newest.values()) if name is not None}


def _calls_of(
    task: str, runs: Iterable[RunSavings]
) -> Iterator[tuple[CallSaving, dict[str, CallSaving]]]:
    """Each call of the task, with the calls that had ended before it, by name in that order."""
    for run in runs:
        before: dict[str, CallSaving] = {}
        for call in tuple(run.calls):  # a run of this process may still be going on
            if call.task == task:
                yield call, dict(before)
            before.pop(call.task, None)
            before[call.task] = call


def _dealt(
    row: TaskExplanation, call: CallSaving, before: Mapping[str, CallSaving]
) -> dict[str, float]:
    """One call's tokens by upstream, in the prompt's order.

    Sizes that are not known get an equal part of what the others leave of the prompt, or where its
    end is not prepared, of what was prefilled. What is left over in the end, such as the marks of
    a chat template, goes to the last answer that got any.
    """
    parts = list(_owned_by(parts_of(row), before))
    sizes = [_size(part, before) for part in parts]
    whole = call.prompt_tokens if row.never is None else call.ahead_tokens
    rest = max(0.0, whole - sum(tokens for tokens, _ in sizes))
    unsized = sum(not known for _, known in sizes)
    dealt: dict[str, float] = {}
    left, latest = float(call.ahead_tokens), None
    for part, (tokens, known) in zip(parts, sizes, strict=True):
        take = min(left, tokens if known else tokens + rest / unsized)
        left -= take
        if part.owner is not None and take > 0:
            latest = part.owner
            dealt[latest] = dealt.get(latest, 0.0) + take
    if latest is not None:
        dealt[latest] += left
    return dealt


def _owned_by(parts: Iterable[Part], before: Mapping[str, CallSaving]) -> Iterator[Part]:
    """The parts with those of an upstream that has not answered in the run given to the next one
    that has: it was not waited for.
    """
    waiting = list(parts)
    for index, part in enumerate(waiting):
        owner = part.owner
        if owner is not None and owner not in before:
            behind = (p.source for p in waiting[index:] if p.source is not None)
            owner = next((name for name in behind if name in before), None)
        yield part._replace(owner=owner)


def _size(part: Part, before: Mapping[str, CallSaving]) -> tuple[float, bool]:
    """Tokens of a part as far as they are known, and whether that is all of it."""
    if part.known is not None:
        return float(part.known.tokens), not part.known.unsized
    answer = None if part.source is None else before.get(part.source)
    return (float(answer.completion_tokens), True) if answer and part.whole else (0.0, False)


def _owner(part: Waits) -> str | None:
    # With nothing to wait for meanwhile, the call itself brings an older answer.
    return part.source if part.source is not None and part.meanwhile else part.meanwhile


def outcome_of(call: CallSaving) -> str:
    """What came of what was prepared for a call, or why it was in no program."""
    return call.outcome if call.program == PROGRAM else call.program


def known_of(row: TaskExplanation, upstream: str) -> Amount:
    """Known text that counts for an upstream."""
    owned = (p.known for p in parts_of(row) if p.owner == upstream and p.known is not None)
    return sum(owned, NOTHING)
