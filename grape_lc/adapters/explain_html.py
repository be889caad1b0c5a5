"""A GraphExplanation as HTML: without scripts, and with nothing loaded from anywhere.

All text of the graph is escaped: names of nodes and excerpts of prompts may hold anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

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
from grape_lc.adapters.explained import CallReport, EdgeReport, GraphExplanation

# Colours come from the page around, so that a notebook's dark theme stays readable.
_STYLE = """
.grape-explain { font: 14px/1.4 system-ui, sans-serif; max-width: 70rem; }
.grape-explain table { border-collapse: collapse; margin: .5rem 0 1rem; }
.grape-explain th, .grape-explain td {
  border-bottom: 1px solid rgba(128, 128, 128, .4); padding: .25rem .75rem .25rem 0;
  text-align: left; vertical-align: top;
}
.grape-explain td.number, .grape-explain th.number { text-align: right; }
.grape-explain .bar {
  display: block; height: .35rem; min-width: 6rem; background: rgba(128, 128, 128, .25);
}
.grape-explain .bar > span { display: block; height: 100%; background: #6a3fb5; }
.grape-explain dl { margin: 0; }
.grape-explain dt { font-size: .85em; opacity: .7; }
.grape-explain dd { margin: 0 0 .25rem; }
.grape-explain li, .grape-explain dd { overflow-wrap: anywhere; }
"""

_NUMBERS = frozenset({"prompt", "cached", "ahead"})


def page_of(found: GraphExplanation) -> str:
    """A whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title(found))}</title>\n</head>\n<body>\n{part_of(found)}</body>\n</html>\n"
    )


def part_of(found: GraphExplanation) -> str:
    """What a page, or a cell of a notebook, shows."""
    return "".join(_parts(found))


def _parts(found: GraphExplanation) -> Iterator[str]:
    yield f'<div class="grape-explain">\n<style>{_STYLE}</style>\n'
    yield f"<h3>{escape(title(found))}</h3>\n"
    if runs := runs_text(found):
        yield f"<p>{escape(runs)}</p>\n"
    if found.calls:
        rows = [(*map(escape, call_cells(found, c)), _details(found, c)) for c in found.calls]
        yield _table((*CALL_HEADS, "parts of the prompt"), rows)
    if found.edges:
        rows = [(*map(escape, edge_cells(found, e)), _bar(e), _list(e.why)) for e in found.edges]
        yield _table((*EDGE_HEADS, "", "why not more"), rows)
    if found.advice:
        yield f"<p><b>Advice</b> ({escape(ADVICE_NOTE)})</p>\n"
        yield _list(f"{advice.task}: {advice.text}" for advice in found.advice)
    yield _list(found.notes)
    yield "</div>\n"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    kinds = [' class="number"' if head in _NUMBERS else "" for head in heads]
    top = "".join(f"<th{kind}>{escape(head)}</th>" for kind, head in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True))
        + "</tr>\n"
        for row in rows
    )
    return f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _details(found: GraphExplanation, call: CallReport) -> str:
    lines = "".join(
        f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>"
        for label, text in call_lines(found, call)
    )
    return f"<dl>{lines}</dl>" if lines else ""


def _bar(edge: EdgeReport) -> str:
    """How much of the downstream prompt the edge saved."""
    if not edge.saved or not edge.prompt_tokens:
        return ""
    part = min(1.0, edge.saved / edge.prompt_tokens)
    return f'<span class="bar"><span style="width: {part:.0%}"></span></span>'


def _list(items: Iterable[str]) -> str:
    entries = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{entries}</ul>\n" if entries else ""
