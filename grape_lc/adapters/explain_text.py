"""A GraphExplanation as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from grape_lc.adapters.explain_words import (
    ADVICE_NOTE,
    CALL_HEADS,
    EDGE_HEADS,
    call_cells,
    call_lines,
    edge_cells,
    runs_text,
    title,
)
from grape_lc.adapters.explained import GraphExplanation

WIDTH = 100
"""Columns; a longer line is wrapped, names excepted."""

_LABEL = 14


def text_of(found: GraphExplanation) -> str:
    """All there is to say, in lines of at most WIDTH columns."""
    return "\n".join(_lines(found))


def _lines(found: GraphExplanation) -> Iterator[str]:
    yield title(found)
    if runs := runs_text(found):
        yield from _wrapped(runs)
    if found.calls:
        yield ""
        yield from _table(CALL_HEADS, [call_cells(found, call) for call in found.calls])
        for call in found.calls:
            if lines := list(call_lines(found, call)):
                yield ""
                yield call.task
                for label, text in lines:
                    yield from _labelled(label, text)
    if found.edges:
        yield ""
        yield from _table(EDGE_HEADS, [edge_cells(found, edge) for edge in found.edges])
        for edge in found.edges:
            for why in edge.why:
                yield from _labelled("why not more", f"{edge.upstream} -> {edge.downstream}: {why}")
    if found.advice:
        yield ""
        yield f"advice ({ADVICE_NOTE})"
        for advice in found.advice:
            yield from _labelled(f"- {advice.task}", advice.text)
    if found.notes:
        yield ""
        for note in found.notes:
            yield from _wrapped(note)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as they need; the widest is wrapped where a line would be too long."""
    lines = [heads, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(heads))]
    gaps = 2 * (len(heads) - 1)
    widest = max(range(len(heads)), key=lambda i: widths[i])
    over = sum(widths) + gaps - WIDTH
    if over > 0:
        widths[widest] = max(widths[widest] - over, 12)
    rule = ["-" * width for width in widths]
    for line in (heads, rule, *rows):
        cells = [textwrap.wrap(cell, widths[i]) or [""] for i, cell in enumerate(line)]
        for n in range(max(map(len, cells))):
            parts = (c[n] if n < len(c) else "" for c in cells)
            yield "  ".join(p.ljust(w) for p, w in zip(parts, widths, strict=True)).rstrip()


def _labelled(label: str, text: str) -> Iterator[str]:
    first = f"  {label}".ljust(_LABEL + 2) + "  "
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=" " * (_LABEL + 4)
    )


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")
