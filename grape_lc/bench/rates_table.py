"""The table of highest rates: how many programs a second each variant carries within the SLO."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Set
from typing import Any

from rich.table import Table

from grape_lc.bench.attainment import THRESHOLD, max_rates
from grape_lc.bench.matrix import BenchResult


def rates_table(result: BenchResult) -> Table | None:
    """A row for each variant of a workload with several rates; None without any, or an SLO."""
    rates: dict[str, set[float | None]] = defaultdict(set)
    for each in result.cells:
        rates[each.cell.workload].add(each.rate)
    several = {workload for workload, of in rates.items() if len(of) > 1}
    found = max_rates({"runs": _runs(result, several)})
    if not found:
        return None
    title = f"highest rate at which {THRESHOLD:g} of the programs meet the SLO (programs/s)"
    table = Table(title=title, title_justify="left")
    table.add_column("workload")
    table.add_column("variant", overflow="fold")
    table.add_column("highest rate \\[95%]", justify="right")
    for entry in found:
        table.add_row(entry["workload"], entry["variant"], _cell(entry))
    return table


def _runs(result: BenchResult, workloads: Set[str]) -> list[dict[str, Any]]:
    """What ``max_rates`` reads of each run of these workloads, as the JSON file has it."""
    return [
        {
            "workload": each.cell.workload,
            "variant": run.arm,
            "rate": each.rate,
            "repeat": run.repeat,
            "metrics": None if run.record is None else each.comparison.metrics_of(run),
        }
        for each in result.cells
        if each.cell.workload in workloads
        for run in each.comparison.runs
    ]


def _cell(found: Mapping[str, Any]) -> str:
    if found["max_rate"] is None:
        return "below the lowest measured"
    text = f"{'>= ' if found['censored'] else ''}{found['max_rate']:.4f}"
    if found["ci95"] is None:
        return text
    low, high = found["ci95"]
    return f"{text} \\[{low:.4f}, {high:.4f}]"
