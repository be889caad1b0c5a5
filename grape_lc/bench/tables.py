"""The tables of a comparison: every figure of every arm, and ratios with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.table import Table

from grape_lc.bench.compare import Comparison
from grape_lc.bench.intervals import (
    FEW_PAIRS,
    UNSTEADY,
    Ratio,
    paired_ratio,
    pooled_ratio,
    variation,
)
from grape_lc.bench.metrics import Metrics
from grape_lc.bench.outcomes import BENCH_FIGURES, COUNTS, shown
from grape_lc.bench.program_gains import program_gains
from grape_lc.bench.quality import QUALITY
from grape_lc.bench.report import Figure, number, value_of

COUNTERS: Mapping[str, str] = {
    "preemptions": "preemptions",
    "dropped_tokens": "early tokens dropped, to recompute",
    "open_tokens": "early tokens prefilled",
}
"""Counters that an engine may tell, and their titles."""

_NAMED = 4  # figures of an arm that are named because they vary


class Gain(NamedTuple):
    """How much better an arm is than the base in one figure; below 1 it is worse.

    ratio: over repeats; None where nothing could be compared. programs: over programs; None also
        for figures that a single program does not have.
    """

    figure: Figure
    ratio: Ratio | None
    programs: Ratio | None = None

    @property
    def key(self) -> str:
        """The figure's path, as one word."""
        return ".".join(self.figure.path)


Gains = Mapping[str, Sequence[Gain]]
"""The gains of each arm but the base, figure by figure."""


def gains_against(comparison: Comparison, base: str) -> dict[str, list[Gain]]:
    """Every figure of every other arm against ``base``, paired by repeat, and by program."""
    measured = {arm: comparison.metrics_by_repeat(arm) for arm in comparison.arms}
    figures = figures_of([found for column in measured.values() for found in column.values()])
    theirs, gains = comparison.records(base), {}
    for arm in comparison.arms:
        if arm == base:
            continue
        programs = program_gains(comparison.records(arm), theirs)
        gains[arm] = [
            Gain(figure, _ratio(figure, measured[arm], measured[base]), programs.get(figure))
            for figure in figures
            if figure.lower_is_better is not None
        ]
    return gains


def figures_of(metrics: Iterable[Metrics]) -> list[Figure]:
    """The figures that at least one of ``metrics`` has: others were not asked for."""
    all_of = list(metrics)
    return [f for f in BENCH_FIGURES if any(value_of(m, f.path) is not None for m in all_of)]


def _ratio(
    figure: Figure, ours: Mapping[int, Metrics], theirs: Mapping[int, Metrics]
) -> Ratio | None:
    pairs = [
        (value_of(theirs[repeat], figure.path), value_of(ours[repeat], figure.path))
        for repeat in sorted(ours.keys() & theirs.keys())
    ]
    if not figure.lower_is_better:
        pairs = [(our, their) for their, our in pairs]
    return pooled_ratio(pairs) if figure in COUNTS else paired_ratio(pairs)


def figures_table(comparison: Comparison, title: str) -> Table:
    """All figures of all arms, over all their runs, and how many answers are the first arm's."""
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    metrics = [comparison.metrics(arm) for arm in comparison.arms]
    for arm in comparison.arms:
        table.add_column(arm, justify="right", overflow="fold")
    for figure in figures_of(metrics):
        cells = [shown(figure, value_of(m, figure.path)) for m in metrics]
        table.add_row(figure.title, *cells)
    for name, label in COUNTERS.items():
        cells = [number(comparison.counter(arm, name), 0) for arm in comparison.arms]
        table.add_row(label, *cells)
    for name, (total, label) in QUALITY.items():
        cells = [_share(comparison, arm, name, total) for arm in comparison.arms]
        if set(cells) != {"-"}:
            table.add_row(label, *cells)
    equal = [comparison.equal(arm) for arm in comparison.arms]
    table.add_row(
        f"answers equal to {comparison.arms[0]}",
        *(f"{e.identical} of {e.compared}" if e.compared else "-" for e in equal),
    )
    counts = [len(comparison.records(arm)) for arm in comparison.arms]
    table.add_row("runs", *map(str, counts))
    return table


def _share(comparison: Comparison, arm: str, name: str, total: str) -> str:
    good, out_of = comparison.counter(arm, name), comparison.counter(arm, total)
    return f"{good:.0f} of {out_of:.0f}" if good is not None and out_of else "-"


def gains_table(gains: Gains, base: str) -> Table:
    """Each arm against ``base``: ratio, interval, and number of pairs."""
    title = f"against {base}: above 1 is better, below 1 is worse"
    return _ratio_table(title, "figure", gains, lambda gain: gain.ratio, empty_rows=True)


def programs_table(gains: Gains, base: str) -> Table:
    """The same over programs: of all figures that a single program has."""
    title = f"against {base}, program by program: above 1 is better, below 1 is worse"
    return _ratio_table(
        title, "figure of a program", gains, lambda gain: gain.programs, empty_rows=False
    )


def _ratio_table(
    title: str,
    head: str,
    gains: Gains,
    ratio_of: Callable[[Gain], Ratio | None],
    *,
    empty_rows: bool,
) -> Table:
    """A column for each arm. empty_rows: also figures in which no arm has a ratio."""
    table = Table(title=title, title_justify="left")
    table.add_column(head)
    for arm in gains:
        table.add_column(f"{arm}\nratio [95%]", justify="right", overflow="fold")
    for row in zip(*gains.values(), strict=True):
        ratios = [ratio_of(gain) for gain in row]
        if empty_rows or any(ratio is not None for ratio in ratios):
            table.add_row(row[0].figure.title, *map(_cell, ratios))
    counts = [_pairs(map(ratio_of, column)) for column in gains.values()]
    table.add_row("pairs (n)", *map(str, counts))
    return table


def unsteady(comparison: Comparison) -> list[str]:
    """For each arm that has some, a line on the figures that vary most between its repeats."""
    lines = []
    for arm in comparison.arms:
        metrics = list(comparison.metrics_by_repeat(arm).values())
        found = []
        for figure in figures_of(metrics):
            values = [value_of(m, figure.path) for m in metrics]
            spread = variation([value for value in values if value is not None])
            if spread is not None and spread > UNSTEADY:
                found.append((spread, figure.title))
        if found:
            worst = sorted(found, key=lambda each: -each[0])[:_NAMED]
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            lines.append(
                f"{arm} varies between repeats by more than {UNSTEADY:.0%} (CV): "
                f"{', '.join(f'{title} {spread:.0%}' for spread, title in worst)}{more}"
            )
    return lines


def verdicts(gains: Gains, base: str) -> list[str]:
    """For each arm one line: in how many figures it is better, worse, or not shown to differ."""
    lines = []
    for arm, column in gains.items():
        ratios = [gain.ratio for gain in column if gain.ratio is not None]
        better = sum(ratio.shown and ratio.ratio > 1 for ratio in ratios)
        worse = sum(ratio.shown and ratio.ratio < 1 for ratio in ratios)
        lines.append(
            f"{arm} against {base}: better in {better} figures, worse in {worse}, no difference "
            f"shown in {len(ratios) - better - worse}"
        )
    counts = [_pairs(gain.ratio for gain in column) for column in gains.values()]
    fewest = min(counts, default=FEW_PAIRS)
    if fewest < FEW_PAIRS:
        lines.append(
            f"n = {fewest}: with fewer than {FEW_PAIRS} repeats the intervals are too narrow to "
            "lean on"
        )
    return lines


def _pairs(ratios: Iterable[Ratio | None]) -> int:
    """The most pairs that any of them is of."""
    return max((ratio.pairs for ratio in ratios if ratio is not None), default=0)


def _cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.3f} (n = {ratio.pairs})"
    style = ("green" if ratio.ratio > 1 else "red") if ratio.shown else "default"
    text = f"{ratio.ratio:.3f} \\[{ratio.low:.3f}, {ratio.high:.3f}]"
    return f"[{style}]{text}[/{style}]"
