"""What ``grape bench`` prints."""

from __future__ import annotations

from rich.console import Console

from grape_lc.bench.matrix import BenchResult, CellResult
from grape_lc.bench.matrix_tables import summary_table
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.rates_table import rates_table
from grape_lc.bench.tables import (
    figures_table,
    gains_table,
    programs_table,
    unsteady,
    verdicts,
)


def show(settings: BenchSettings, result: BenchResult, console: Console) -> None:
    """Print the tables and verdicts of each cell, what all cells came to, and what failed."""
    for each in result.cells:
        _show_cell(settings, each, console)
    if len(result.cells) > 1 and any(each.gains for each in result.cells):
        console.print(summary_table(result, settings.base_arm()))
    rates = rates_table(result)
    if rates is not None:
        console.print(rates)
    for cell, failures in result.failures.items():
        for run in failures:
            text = f"{cell}, repeat {run.repeat}, {run.arm} failed and is in no figure: {run.error}"
            console.print(text, highlight=False, markup=False)


def _show_cell(settings: BenchSettings, result: CellResult, console: Console) -> None:
    comparison, base, lines = result.comparison, settings.base_arm(), []
    console.print(figures_table(comparison, _title(settings, result)))
    if len(comparison.arms) > 1:
        console.print(gains_table(result.gains, base))
        console.print(programs_table(result.gains, base))
        lines = verdicts(result.gains, base)
    for line in [*lines, *unsteady(comparison)]:
        console.print(line, highlight=False, markup=False)


def _title(settings: BenchSettings, result: CellResult) -> str:
    pace = f"{settings.pattern}"
    if result.rate is not None:
        pace += f" at {result.rate:.4g}/s"
    if result.load is not None:
        pace += f", {result.load:g} of what vllm-opt carries"
    judged = f"; SLO {settings.targets()}" if settings.targets() else ""
    return (
        f"{result.cell.workload}: {settings.programs} programs, {pace}, {settings.repeats} "
        f"repeats{judged}"
    )


def describe(settings: BenchSettings, device: str) -> str:
    """One line on what is about to be run."""
    dtype = settings.engine_args(device, None, 1)["dtype"]
    seeds = settings.seeds(settings.repeats)
    asked = [str(rate) for rate in settings.parsed_rates() if rate is not None]
    rates = f"rates {', '.join(asked)}" if asked else f"{settings.pattern}"
    length = "at most" if settings.lengths == "eos" else "exactly"
    return (
        f"{', '.join(settings.parsed_workloads())}; {rates}: {settings.repeats} repeats of "
        f"{settings.programs} programs, answers of {length} {settings.max_tokens} tokens, "
        f"temperature 0; {dtype} on {device}; seeds {seeds[0]} to {seeds[-1]}; variants "
        f"{settings.arms}"
    )
