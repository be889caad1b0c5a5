"""One self-contained page of a comparison: tables, plots, and where it does not help.

The page holds no script and refers to nothing outside of itself. What comes from the files is
escaped by the template; plots hold text only where XML has escaped it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.bench.html_cells import Cell, FigureRow, cells_of, figure_rows
from grape_lc.bench.html_facts import facts_of
from grape_lc.bench.html_input import Document, Regime, parse_document
from grape_lc.bench.html_ratios import (
    HEADLINES,
    RatioTable,
    Score,
    fewest_pairs,
    losses,
    metric_title,
    ratio_cell,
    ratio_tables,
    scores,
    verdict,
    without_interval,
)
from grape_lc.bench.intervals import FEW_PAIRS
from grape_lc.bench.plots import Plot, missing, printable
from grape_lc.bench.plots_ablation import ablation_plot
from grape_lc.bench.plots_gaps import KINDS, gap_plot
from grape_lc.bench.plots_rates import rate_plot
from grape_lc.bench.plots_regimes import regime_plot
from grape_lc.bench.plots_timeline import timeline_plot
from grape_lc.bench.report import write_text


class Section(NamedTuple):
    """What the page shows of a cell. anchor: its id on the page."""

    anchor: str
    cell: Cell
    figures: tuple[FigureRow, ...]
    ratios: tuple[RatioTable, ...]
    scores: tuple[Score, ...]
    plots: tuple[Plot, ...]


class PaperTable(NamedTuple):
    """A table of which nothing is known but its columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def write_html(document: dict[str, Any], path: Path) -> None:
    """Write the report of one document of ``grape bench`` (or regimes, or paper).

    Raises ConfigError for a document of another form, a file that cannot be written, and without
    the extra ``report``.
    """
    write_text(path, render([parse_document(document, "the document")]))


def render(documents: Sequence[Document]) -> str:
    """The page of several documents. Raises ConfigError as ``write_html`` does."""
    try:
        from jinja2 import DictLoader, Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise missing(error) from error

    folder = resources.files("grape_lc.bench")
    texts = {
        name: folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("html_report.jinja", "html_report.css")
    }
    environment = Environment(
        loader=DictLoader(texts),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_final,
    )
    return environment.get_template("html_report.jinja").render(_content(documents))


def _content(documents: Sequence[Document]) -> dict[str, Any]:
    cells = cells_of(documents)
    ours, others = losses(cells)
    regimes = [point for document in documents for point in document.regimes]
    return {
        "facts": [facts_of(document) for document in documents],
        "sections": [_section(n, cell) for n, cell in enumerate(cells, 1)],
        "headlines": [metric_title(".".join(path)) for path in HEADLINES],
        "losses": ours,
        "other_losses": others,
        "no_interval": without_interval(cells),
        "ratios": sum(len(cell.pairs) for cell in cells),
        "fewest": fewest_pairs(cells),
        "few": FEW_PAIRS,
        "rates": list(_rate_plots(cells)),
        "failures": [(cell, run) for cell in cells for run in cell.failures],
        "regimes": regimes,
        "regime_plots": _regime_plots(regimes),
        "regime_losses": [p for p in regimes if verdict(p.ratio, p.ci95) == "worse"],
        "paper": _paper_table([row for document in documents for row in document.paper]),
        "ratio_cell": ratio_cell,
        "metric_title": metric_title,
    }


def _section(number: int, cell: Cell) -> Section:
    name = f"cell-{number}"
    plots = [
        *(gap_plot(cell, kind, f"{name}-{kind}") for kind in KINDS),
        timeline_plot(cell, f"{name}-timeline"),
        ablation_plot(cell, f"{name}-ablation"),
    ]
    return Section(
        name,
        cell,
        tuple(figure_rows(cell)),
        tuple(ratio_tables(cell)),
        tuple(scores(cell)),
        tuple(plot for plot in plots if plot is not None),
    )


def _rate_plots(cells: Sequence[Cell]) -> Iterator[Plot]:
    for number, workload in enumerate(dict.fromkeys(cell.workload for cell in cells), 1):
        own = [cell for cell in cells if cell.workload == workload]
        if (plot := rate_plot(workload, own, f"rates-{number}")) is not None:
            yield plot


def _regime_plots(regimes: Sequence[Regime]) -> list[Plot]:
    metrics = dict.fromkeys(point.metric for point in regimes)
    found = [regime_plot(regimes, m, f"regime-{n}") for n, m in enumerate(metrics, 1)]
    return [plot for plot in found if plot is not None]


def _paper_table(rows: Sequence[Mapping[str, Any]]) -> PaperTable | None:
    if not rows:
        return None
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    return PaperTable(columns, tuple(tuple(_value(row.get(c)) for c in columns) for row in rows))


def _value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return str(value)


def _final(value: Any) -> Any:
    """What is put into the page; of texts from outside, without what a page must not hold.

    Exactly ``str``: its subclass ``Markup`` is ours, made by macros and plots.
    """
    if type(value) is str:
        return "\n".join(map(printable, value.split("\n")))
    return value
