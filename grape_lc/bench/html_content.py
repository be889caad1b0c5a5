"""What the page of a report shows, in its order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from grape_lc.bench.attainment import THRESHOLD, max_rates
from grape_lc.bench.html_cells import Cell, FigureRow, cells_of, figure_at, figure_rows
from grape_lc.bench.html_facts import facts_of
from grape_lc.bench.html_input import Document, Regime
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
from grape_lc.bench.html_rows import beside_paper, row_table
from grape_lc.bench.intervals import FEW_PAIRS
from grape_lc.bench.plots import Plot
from grape_lc.bench.plots_ablation import ablation_plot
from grape_lc.bench.plots_gaps import KINDS, gap_plot
from grape_lc.bench.plots_rates import rate_plot
from grape_lc.bench.plots_regimes import regime_plot
from grape_lc.bench.plots_timeline import timeline_plot


class Section(NamedTuple):
    """What the page shows of a cell. anchor: its id on the page."""

    anchor: str
    cell: Cell
    figures: tuple[FigureRow, ...]
    ratios: tuple[RatioTable, ...]
    scores: tuple[Score, ...]
    plots: tuple[Plot, ...]


class RegimeMap(NamedTuple):
    """Points of a map, and how it is headed. losses: those that are shown to be worse."""

    title: str
    points: list[Regime]
    losses: list[Regime]
    plots: list[Plot]


def content_of(documents: Sequence[Document]) -> dict[str, Any]:
    """Everything that the template names. Raises ConfigError as the plots do."""
    cells = cells_of(documents)
    ours, others = losses(cells)
    paper = [row for document in documents for row in document.paper]
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
        "highest_rates": row_table(highest_rates(cells)),
        "threshold": f"{THRESHOLD:.0%}",
        "failures": [(cell, run) for cell in cells for run in cell.failures],
        "maps": list(_maps(documents)),
        "paper": row_table(beside_paper(paper)),
        "paper_all": row_table(paper),
        "marks": row_table([row for document in documents for row in document.marks]),
        "errors": row_table([row for d in documents for row in (d.errors or {}).get("rows", [])]),
        "ratio_cell": ratio_cell,
        "metric_title": metric_title,
    }


def highest_rates(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """As ``max_rates`` gives them, of the workloads that were measured at several rates."""
    rates = {
        cell.workload: {c.rate for c in cells if c.workload == cell.workload} for cell in cells
    }
    runs = [
        {
            "workload": run.workload,
            "variant": run.variant,
            "rate": run.rate,
            "repeat": run.repeat,
            "metrics": None
            if run.metrics is None
            else {"goodput": {"strict_share": figure_at(run.metrics, ("goodput", "strict_share"))}},
        }
        for cell in cells
        for run in cell.runs
        if len(rates[cell.workload] - {None}) > 1
    ]
    return max_rates({"runs": runs}) if runs else []


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


def _maps(documents: Sequence[Document]) -> Iterator[RegimeMap]:
    for name, title, points in (
        (
            "end",
            "The answer before stands at the end of a prompt",
            [point for document in documents for point in document.regimes],
        ),
        (
            "head",
            "The answer before stands at the head of a prompt",
            [point for document in documents for point in document.head],
        ),
    ):
        if points:
            metrics = dict.fromkeys(point.metric for point in points)
            plots = [regime_plot(points, m, f"map-{name}-{n}") for n, m in enumerate(metrics, 1)]
            worse = [p for p in points if verdict(p.ratio, p.ci95) == "worse"]
            yield RegimeMap(title, points, worse, [p for p in plots if p is not None])
