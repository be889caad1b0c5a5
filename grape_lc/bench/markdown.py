"""Figures and ratios of a comparison as Markdown tables, for a page of documentation.

The same files give the same text. Titles carry the units.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from grape_lc.bench.html_cells import Cell, cells_of, figure_rows
from grape_lc.bench.html_facts import facts_of
from grape_lc.bench.html_input import Document
from grape_lc.bench.html_ratios import (
    Loss,
    RatioCell,
    RatioTable,
    losses,
    ratio_cell,
    ratio_tables,
    without_interval,
)
from grape_lc.bench.plots import printable

_MARKS = re.compile(r"[\\`*|]")

KEY_PATHS = (
    ("agentic_itl_ms", "mean"),
    ("agentic_itl_ms", "p95"),
    ("agentic_itl_ms", "p99"),
    ("agentic_itl_ms", "max"),
    ("switch_gap_ms", "mean"),
    ("switch_gap_ms", "max"),
    ("ttft_ms", "mean"),
    ("answer_s", "p50"),
    ("answer_s", "p95"),
    ("tokens_per_s",),
    ("goodput", "strict_share"),
    ("goodput", "strict_per_s"),
    ("mfu",),
    ("accelerator_s_per_success",),
    ("task_success",),
)
"""Paths of the figures in a table of figures; all others are in the JSON file and on the page."""


def to_markdown(documents: Sequence[Document]) -> str:
    """Tables of all cells, each below a heading, and what got worse; ends in a line end."""
    cells = cells_of(documents)
    parts = [
        _run(documents),
        *(part for cell in cells for part in _cell(cell)),
        *([_losses(cells)] if cells else []),
    ]
    return "\n\n".join(parts) + "\n"


def _run(documents: Sequence[Document]) -> str:
    lines = []
    for number, document in enumerate(documents, 1):
        title = "### Run" if len(documents) == 1 else f"### Run {number}"
        facts = [(name, value) for name, value in facts_of(document).main]
        lines.append("\n\n".join([title, _table(("", ""), facts)]) if facts else title)
    return "\n\n".join(lines)


def _cell(cell: Cell) -> Iterator[str]:
    yield f"### {_text(cell.title)}"
    rows = {row.path: row for row in figure_rows(cell)}
    shown = [(rows[path].title, *rows[path].cells) for path in KEY_PATHS if path in rows]
    if shown:
        yield _table(("figure", *cell.variants), shown)
    for run in cell.failures:
        yield f"{_text(run.variant)} failed in repeat {run.repeat}: {_text(run.error or '')}"
    for table in ratio_tables(cell):
        yield _ratios(table)


def _ratios(table: RatioTable) -> str:
    rows = [(title, *map(_ratio, cells)) for title, cells in table.rows]
    counts = ("pairs (n)", *map(str, table.counts))
    above = (
        f"Ratios against {_text(table.baseline)} over {_text(table.over)} [95%]; above 1 is better:"
    )
    return f"{above}\n\n{_table(('figure', *table.variants), [*rows, counts])}"


def _ratio(cell: RatioCell | None) -> str:
    if cell is None:
        return "-"
    if cell.verdict in {"better", "worse"}:
        return f"{cell.sign} {cell.text}"
    return cell.text


def _losses(cells: Sequence[Cell]) -> str:
    ours, others = losses(cells)
    parts = ["### Where it does not help"]
    if ours:
        parts.append(_loss_table(ours))
    elif any(cell.pairs for cell in cells):
        parts.append("No ratio of grape below 1 has an interval that leaves out 1.")
    else:
        parts.append("Nothing can be said: there is no ratio.")
    if others:
        parts += ["Other variants:", _loss_table(others)]
    if unsure := without_interval(cells):
        parts.append(f"Ratios below 1 that have no interval: {unsure}.")
    return "\n\n".join(parts)


def _loss_table(found: Iterable[Loss]) -> str:
    rows = [
        (
            loss.pair.variant,
            loss.pair.baseline,
            loss.title,
            loss.cell.title,
            ratio_cell(loss.pair.ratio, loss.pair.ci95).text,
            f"{loss.pair.n} {loss.pair.over}",
        )
        for loss in found
    ]
    return _table(("variant", "against", "figure", "where", "ratio [95%]", "pairs"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column stands left, all others right."""
    rule = ("---", *("---:" for _ in head[1:]))
    lines = [map(_text, head), rule, *(map(_text, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(text: str) -> str:
    """A text on one line, of which nothing is taken for a mark of Markdown or for HTML."""
    plain = " ".join(printable(text.replace("\n", " ")).split())
    return _MARKS.sub(r"\\\g<0>", plain).replace("&", "&amp;").replace("<", "&lt;")
