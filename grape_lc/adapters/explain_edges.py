"""What each answer that another call reads is expected to save, and what it saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from grape_lc.adapters.explain_shares import Rows, Shares, known_of, newest_as, shares_of
from grape_lc.adapters.explained import Basis, EdgeReport, LastCalls
from grape_lc.adapters.savings import RESUMED, RunSavings
from grape_lc.flow.explanation import TaskExplanation
from grape_lc.flow.taskflow import TaskFlow

# What an outcome of a take-over means to the author of a graph. Of those that begin with
# ``refused`` the engine says why.
_OUTCOMES: Mapping[str, str] = {
    "truncated": "the prompt that was sent differs from the template under way",
    "mismatch": "the prompt that was sent differs from the template near its beginning",
    "cold": "nothing was computed yet when the call came: its upstream was short, or the engine "
    "had no room beside other work",
    "unknown": "what was prepared had been released or had expired",
    "none": "no prompt was open for the call",
    RESUMED: "the run was resumed, and LangGraph does not say with what it began",
    "no flow": "there was no template yet when the run began",
    "no program": "the run began before the engine or the template was known",
}

GOOD = "adopted"


def why_of(outcome: str) -> str | None:
    """Why a call did not find its prompt prepared, in words; None: it did."""
    if outcome == GOOD:
        return None
    if outcome.startswith("refused:"):
        return f"the engine refused it: {outcome.removeprefix('refused:')}"
    return _OUTCOMES.get(outcome, outcome)


def edges_into(
    flow: TaskFlow,
    task: str,
    last: Mapping[str, LastCalls],
    runs: Sequence[RunSavings],
    rows: Rows,
) -> Iterator[EdgeReport]:
    """The edges into one call, in the order in which its prompt reads them."""
    limits = {task.name: task.sampling.max_tokens for task in flow.tasks}
    seen = last.get(task)
    shares = shares_of(flow, task, runs, rows)
    for upstream in flow.upstream(task):
        row = rows(task, newest_as(flow, task, upstream))
        ahead = any(part.source == upstream for part in row.streams_in) or any(
            part.source == upstream and part.meanwhile is not None for part in row.waits
        )
        tokens, basis = _size(upstream, row, last, limits) if ahead else (None, "unknown")
        yield EdgeReport(
            upstream=upstream,
            downstream=task,
            known=known_of(row, upstream),
            answer_ahead=ahead,
            answer_tokens=tokens,
            basis=basis,
            saved=None if seen is None else shares.tokens[upstream] / seen.calls,
            prompt_tokens=None if seen is None else seen.prompt_tokens,
            why=tuple(_why(upstream, row, seen, shares)),
        )


def _size(
    upstream: str,
    row: TaskExplanation,
    last: Mapping[str, LastCalls],
    limits: Mapping[str, int | None],
) -> tuple[float | None, Basis]:
    parts = [part.whole for part in row.streams_in if part.source == upstream]
    if parts and not any(parts):
        return None, "part"
    if (seen := last.get(upstream)) is not None:
        return seen.completion_tokens, "measured"
    limit = limits[upstream]
    return (None, "unknown") if limit is None else (float(limit), "limit")


def _why(
    upstream: str, row: TaskExplanation, seen: LastCalls | None, shares: Shares
) -> Iterator[str]:
    for part in row.streams_in:
        if part.source == upstream and part.after:
            after = " and ".join(map(repr, part.after))
            yield f"it stands behind the answer of {after}: when that ends, the rest of it streams"
    for wait in row.waits:
        if wait.source == upstream:
            until = " and ".join(map(repr, wait.until))
            yield f"{wait.text} stands behind the answer of {until}, which is complete later"
    if row.never is not None and upstream in row.never.sources:
        why = row.never.why or "no run gives it"
        yield f"it stands behind {row.never.slot}, which is not prepared: {why}"
    if seen is None:
        return
    if unread := shares.unread[upstream]:
        yield (
            f"{of_calls(unread, seen.calls)}: it had not answered before in that run, or another "
            "answer was newer"
        )
    counts = shares.outcomes[upstream]
    for outcome, times in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if (fault := why_of(outcome)) is not None:
            yield f"{of_calls(times, seen.calls)}: {fault}"


def of_calls(times: int, calls: int) -> str:
    """``1 call``, ``1 of 3 calls``, ``all 3 calls``."""
    if calls == 1:
        return "1 call"
    return f"all {calls} calls" if times == calls else f"{times} of {calls} calls"
