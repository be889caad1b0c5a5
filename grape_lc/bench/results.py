"""What ``grape bench`` prints."""

from __future__ import annotations

from rich.console import Console

from grape_lc.bench.command import BenchResult
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.tables import (
    figures_table,
    gains_table,
    programs_table,
    unsteady,
    verdicts,
)


def show(settings: BenchSettings, result: BenchResult, console: Console) -> None:
    """Print the tables, the verdicts, and what failed."""
    comparison, base = result.comparison, settings.base_arm()
    pattern = settings.pattern
    load = f"{pattern}" if result.rate is None else f"{pattern} at {result.rate:.4g}/s"
    judged = f"; SLO {settings.targets()}" if settings.targets() else ""
    title = f"{settings.programs} programs, {load}, {settings.repeats} repeats{judged}"
    console.print(figures_table(comparison, title))
    if len(comparison.arms) > 1:
        console.print(gains_table(result.gains, base))
        console.print(programs_table(result.gains, base))
        for line in verdicts(result.gains, base):
            console.print(line, highlight=False, markup=False)
    for line in unsteady(comparison):
        console.print(line, highlight=False, markup=False)
    for run in comparison.failures:
        text = f"repeat {run.repeat} {run.arm} failed and is in no figure: {run.error}"
        console.print(text, highlight=False, markup=False)


def describe(settings: BenchSettings, device: str) -> str:
    """One line on what is about to be run."""
    dtype = settings.engine_args(device, None, 1)["dtype"]
    first, last = settings.seeds(settings.repeats)[0], settings.seeds(settings.repeats)[-1]
    return (
        f"{settings.workflow}: {settings.repeats} repeats of {settings.programs} programs, answers "
        f"of at most {settings.max_tokens} tokens, temperature 0; {dtype} on {device}; seeds "
        f"{first} to {last}; arms {settings.arms}"
    )
