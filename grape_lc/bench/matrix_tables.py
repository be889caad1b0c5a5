"""One table over all cells: the few figures that tell at a glance how an arm does."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from grape_lc.bench.intervals import Ratio
from grape_lc.bench.matrix import BenchResult

SUMMARY: Mapping[str, str] = {
    "switch_gap_ms.mean": "switch gap\nmean",
    "switch_gap_ms.max": "switch gap\nmax",
    "agentic_itl_ms.mean": "agentic ITL\nmean",
    "agentic_itl_ms.p95": "agentic ITL\nP95",
    "agentic_itl_ms.p99": "agentic ITL\nP99",
    "answer_s.p95": "final answer\nP95",
    "tokens_per_s": "tokens/s\n",
}
"""Figures by the name of their gain, and how they are headed."""


def summary_table(result: BenchResult, base: str) -> Table:
    """A row for each cell and each arm but the base: ratios with their intervals."""
    title = f"against {base}, over repeats: above 1 is better, below 1 is worse"
    table = Table(title=title, title_justify="left")
    table.add_column("workload and rate")
    table.add_column("variant", overflow="fold")
    for head in SUMMARY.values():
        table.add_column(head, justify="right")
    for each in result.cells:
        for arm, gains in each.gains.items():
            ratios = {gain.key: gain.ratio for gain in gains}
            table.add_row(str(each.cell), arm, *(_cell(ratios.get(key)) for key in SUMMARY))
        table.add_section()
    return table


def _cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.2f}"
    style = ("green" if ratio.ratio > 1 else "red") if ratio.shown else "default"
    return f"[{style}]{ratio.ratio:.2f}\n\\[{ratio.low:.2f}, {ratio.high:.2f}][/{style}]"
