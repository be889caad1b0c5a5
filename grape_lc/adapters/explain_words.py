"""The words in which a GraphExplanation is told, whatever the page."""

from __future__ import annotations

from collections.abc import Iterator

from grape_lc.adapters.explain_edges import GOOD, of_calls, why_of
from grape_lc.adapters.explained import CallReport, EdgeReport, GraphExplanation
from grape_lc.flow.explanation import never_text, streams_text, waits_text

CALL_HEADS = ("call", "template", "known at start", "prompt", "cached", "ahead")
EDGE_HEADS = ("edge", "expected ahead", "saved")

ADVICE_NOTE = "a prompt in another order is another prompt, and may be answered otherwise"
"""Stands beside all advice."""


def call_cells(found: GraphExplanation, call: CallReport) -> tuple[str, ...]:
    """A row under CALL_HEADS; tokens of runs are means for one call."""
    known = "-"
    if call.prompt is not None:
        known = call.prompt.known_at_start.text(estimated=found.estimated)
    if call.last is None:
        return (call.task, call.source, known, "-", "-", "-")
    last = call.last
    return (
        call.task,
        call.source,
        known,
        f"{last.prompt_tokens:,.0f}",
        f"{last.cached_tokens:,.0f}",
        share(last.ahead_tokens, last.prompt_tokens),
    )


def call_lines(found: GraphExplanation, call: CallReport) -> Iterator[tuple[str, str]]:
    """Label and text of what there is to say of a call beyond its row."""
    if (prompt := call.prompt) is not None:
        for part in prompt.streams_in:
            yield "streams in", streams_text(part)
        for wait in prompt.waits:
            yield "must wait", waits_text(wait, estimated=found.estimated)
        if prompt.never is not None:
            yield "not prepared", never_text(prompt.never, estimated=found.estimated)
    if call.why is not None:
        yield "no template", call.why
    if call.last is not None:
        yield "last runs", outcomes_text(found, call)


def edge_cells(found: GraphExplanation, edge: EdgeReport) -> tuple[str, ...]:
    """A row under EDGE_HEADS."""
    return (f"{edge.upstream} -> {edge.downstream}", expected(found, edge), saved(edge))


def expected(found: GraphExplanation, edge: EdgeReport) -> str:
    """What an edge is expected to save, in tokens."""
    parts = []
    if edge.known.tokens or edge.known.unsized:
        parts.append(f"{edge.known.text(estimated=found.estimated)} known")
    if edge.answer_ahead:
        match edge.basis:
            case "measured":
                parts.append(f"the answer, {edge.answer_tokens:,.0f} on average")
            case "limit":
                parts.append(f"the answer, at most {edge.answer_tokens:,.0f}")
            case "part":
                parts.append("a part of the answer")
            case "unknown":
                parts.append("the answer")
    return ", ".join(parts) or "nothing"


def saved(edge: EdgeReport) -> str:
    """What it saved in the last runs."""
    if edge.saved is None or edge.prompt_tokens is None:
        return "no call seen"
    return f"{share(edge.saved, edge.prompt_tokens)} of {edge.prompt_tokens:,.0f}"


def share(tokens: float, of: float) -> str:
    """Tokens, and what part of others they are."""
    return f"{tokens:,.0f}" + (f" ({tokens / of:.0%})" if of else "")


def outcomes_text(found: GraphExplanation, call: CallReport) -> str:
    """How often a call was made, and what came of what was prepared for it.

    Why it was not taken over is told of the edges into the call, where there are any.
    """
    last = call.last
    assert last is not None
    made = f"{plural(last.calls, 'call')} in {plural(last.runs, 'run')}"
    told = f"{made}, {last.outcomes.get(GOOD, 0)} found it prepared"
    if call.prompt is None or any(edge.downstream == call.task for edge in found.edges):
        return told
    if last.first == last.calls and GOOD not in last.outcomes:
        return f"{made}; it reads no answer, so it is sent before anything could be prepared"
    faults = [
        f"{of_calls(times, last.calls)}: {fault}"
        for outcome, times in last.outcomes.items()
        if (fault := why_of(outcome)) is not None
    ]
    return "; ".join([told, *faults])


def runs_text(found: GraphExplanation) -> str:
    """The totals of the last runs in one line; empty when there is none."""
    if not found.runs:
        return ""
    prompt = sum(run.prompt_tokens for run in found.runs)
    ahead = sum(run.ahead_tokens for run in found.runs)
    cached = sum(run.cached_tokens for run in found.runs)
    latest = found.runs[-1]
    return (
        f"last {plural(len(found.runs), 'run')}: {prompt:,} prompt tokens, {cached:,} there when "
        f"the call came, {share(ahead, prompt)} of them prefilled ahead; in the latest run "
        f"{share(latest.ahead_tokens, latest.prompt_tokens)} of {latest.prompt_tokens:,}"
    )


def plural(number: int, what: str) -> str:
    """``1 run``, ``2 runs``."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def title(found: GraphExplanation) -> str:
    """The first line."""
    return (
        f"Graph {found.graph!r}: {plural(len(found.calls), 'call')}, "
        f"{plural(len(found.edges), 'edge')}"
    )
