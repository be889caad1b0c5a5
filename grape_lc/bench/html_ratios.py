"""Ratios of a report: which are shown to be better or worse, and what each mechanism is worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from grape_lc.bench.html_cells import (
    OURS,
    Cell,
    figure_at,
    figure_title,
    is_ours,
    without_mechanism,
)
from grape_lc.bench.html_input import Pair
from grape_lc.bench.intervals import Ratio, paired_ratio
from grape_lc.bench.outcomes import BENCH_FIGURES

SIGNS = {"better": "▲", "worse": "▼", "same": "=", "unsure": "?"}
"""Verdicts, and the signs that stand for them where there is no colour."""

HEADLINES = (
    ("agentic_itl_ms", "mean"),
    ("agentic_itl_ms", "p95"),
    ("agentic_itl_ms", "p99"),
    ("switch_gap_ms", "mean"),
    ("switch_gap_ms", "max"),
    ("answer_s", "p95"),
    ("tokens_per_s",),
)
"""Paths of the figures that an overview shows."""

ABLATED = (
    ("agentic_itl_ms", "mean"),
    ("agentic_itl_ms", "p99"),
    ("switch_gap_ms", "mean"),
    ("answer_s", "p95"),
    ("tokens_per_s",),
)
"""Paths of the figures by which a mechanism is judged; all of them are above zero."""

_LOWER_IS_BETTER = {figure.path: figure.lower_is_better for figure in BENCH_FIGURES}


class RatioCell(NamedTuple):
    """A ratio in a table: its verdict, a sign for it, and the text."""

    verdict: str
    sign: str
    text: str


class RatioTable(NamedTuple):
    """Variants against one baseline. rows: title of the figure, and a cell for each variant.

    over: ``repeats`` or ``programs``. counts: pairs behind each variant's ratios, the most.
    """

    baseline: str
    over: str
    variants: tuple[str, ...]
    rows: tuple[tuple[str, tuple[RatioCell | None, ...]], ...]
    counts: tuple[int, ...]


class Loss(NamedTuple):
    """A ratio below 1 whose interval leaves out 1."""

    cell: Cell
    pair: Pair

    @property
    def title(self) -> str:
        """The figure that is worse."""
        return metric_title(self.pair.metric)


class Score(NamedTuple):
    """In how many figures a variant is better, worse, not shown to differ, or lacks an interval."""

    variant: str
    baseline: str
    better: int
    worse: int
    same: int
    unsure: int
    headlines: tuple[RatioCell | None, ...]


def verdict(ratio: float, ci95: tuple[float, float] | None) -> str:
    """``better`` or ``worse`` where the interval leaves out 1, else ``same``; ``unsure``: none."""
    if ci95 is None:
        return "unsure"
    low, high = ci95
    return "same" if low <= 1 <= high else "better" if ratio > 1 else "worse"


def interval_of(ratio: Ratio) -> tuple[float, float] | None:
    """The interval as a pair; None where there is none."""
    return None if ratio.low is None or ratio.high is None else (ratio.low, ratio.high)


def ratio_cell(ratio: float, ci95: tuple[float, float] | None, n: int | None = None) -> RatioCell:
    """A ratio as a table shows it. n: pairs, told where there is no interval."""
    kind = verdict(ratio, ci95)
    if ci95 is not None:
        return RatioCell(kind, SIGNS[kind], f"{ratio:.3f} [{ci95[0]:.3f}, {ci95[1]:.3f}]")
    return RatioCell(kind, SIGNS[kind], f"{ratio:.3f}" + ("" if n is None else f" (n = {n})"))


def metric_title(metric: str) -> str:
    """The title of a pair's figure."""
    return figure_title(metric.split("."))


def ratio_tables(cell: Cell) -> list[RatioTable]:
    """A table for each baseline and each kind of pairs, those over repeats first."""
    kinds = dict.fromkeys((pair.over, pair.baseline) for pair in cell.pairs)
    ordered = sorted(kinds, key=lambda kind: kind[0] != "repeats")
    return [_table(cell, over, baseline) for over, baseline in ordered]


def _table(cell: Cell, over: str, baseline: str) -> RatioTable:
    pairs = [pair for pair in cell.pairs if (pair.over, pair.baseline) == (over, baseline)]
    variants = tuple(dict.fromkeys(pair.variant for pair in pairs))
    found = {(pair.metric, pair.variant): pair for pair in pairs}
    rows = []
    for metric in dict.fromkeys(pair.metric for pair in pairs):
        cells = [_cell_of(found.get((metric, variant))) for variant in variants]
        rows.append((metric_title(metric), tuple(cells)))
    counts = tuple(max(pair.n for pair in pairs if pair.variant == name) for name in variants)
    return RatioTable(baseline, over, variants, tuple(rows), counts)


def _cell_of(pair: Pair | None) -> RatioCell | None:
    return None if pair is None else ratio_cell(pair.ratio, pair.ci95, pair.n)


def losses(cells: Sequence[Cell]) -> tuple[list[Loss], list[Loss]]:
    """Every ratio below 1 whose interval leaves out 1: those of grape as a whole, and others."""
    found = [
        Loss(cell, pair)
        for cell in cells
        for pair in cell.pairs
        if verdict(pair.ratio, pair.ci95) == "worse"
    ]
    ours = [loss for loss in found if is_ours(loss.pair.variant)]
    return ours, [loss for loss in found if loss not in ours]


def without_interval(cells: Sequence[Cell]) -> int:
    """How many ratios below 1 have no interval, so that nobody can say whether they are losses."""
    return sum(p.ratio < 1 and p.ci95 is None for cell in cells for p in cell.pairs)


def scores(cell: Cell) -> list[Score]:
    """Each variant against each of its baselines, over repeats."""
    pairs = [pair for pair in cell.pairs if pair.over == "repeats"]
    found = []
    for variant, baseline in dict.fromkeys((pair.variant, pair.baseline) for pair in pairs):
        own = {p.metric: p for p in pairs if (p.variant, p.baseline) == (variant, baseline)}
        kinds = [verdict(pair.ratio, pair.ci95) for pair in own.values()]
        better, worse, same, unsure = map(kinds.count, SIGNS)
        heads = tuple(_cell_of(own.get(".".join(path))) for path in HEADLINES)
        found.append(Score(variant, baseline, better, worse, same, unsure, heads))
    return found


def ablations(cell: Cell) -> dict[tuple[str, ...], dict[str, Ratio]]:
    """By figure, each grape without a mechanism against grape, paired by repeat.

    Below 1: worse without it, so that the mechanism is worth something. Figures and variants
    without a pair are left out.
    """
    found: dict[tuple[str, ...], dict[str, Ratio]] = {}
    whole = _by_repeat(cell, OURS)
    for path in ABLATED:
        column = {}
        for variant in filter(without_mechanism, cell.variants):
            part = _by_repeat(cell, variant)
            pairs = [
                (figure_at(whole[n], path), figure_at(part[n], path))
                for n in sorted(whole.keys() & part.keys())
            ]
            if not _LOWER_IS_BETTER[path]:
                pairs = [(b, a) for a, b in pairs]
            if (ratio := paired_ratio(pairs)) is not None:
                column[variant] = ratio
        if column:
            found[path] = column
    return found


def _by_repeat(cell: Cell, variant: str) -> dict[int, dict[str, object]]:
    runs = [run for run in cell.runs if run.variant == variant]
    return {run.repeat: run.metrics for run in runs if run.metrics is not None}


def fewest_pairs(cells: Iterable[Cell]) -> int | None:
    """The fewest pairs over repeats that any ratio rests on; None without ratios."""
    counts = [p.n for cell in cells for p in cell.pairs if p.over == "repeats"]
    return min(counts, default=None)
