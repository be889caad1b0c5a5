"""What ``grape paper`` prints and writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from grape_lc import __version__
from grape_lc.bench.arms import OURS, TUNED
from grape_lc.bench.batch import code_digest
from grape_lc.bench.intervals import FEW_PAIRS, Ratio
from grape_lc.bench.paper import Table
from grape_lc.bench.paper_error import Errors
from grape_lc.bench.paper_marks import Mark, marks, overall
from grape_lc.bench.paper_options import (
    DEFAULT,
    LAYOUT,
    PIPED,
    RELEASED,
    SETTINGS,
    WITHOUT,
    PaperSettings,
)
from grape_lc.bench.paper_rows import (
    BY_NAME,
    METRICS,
    PAPER,
    PAPER_ATTAINMENT,
    PAPER_PARROT,
    Metric,
    Row,
)
from grape_lc.bench.report import number, write_text

_SHOWN = (
    "agentic_itl_ms.mean",
    "agentic_itl_ms.p95",
    "agentic_itl_ms.p99",
    "switch_gap_ms.mean",
    "program_s.p50",
    "program_s.p95",
    "tokens_per_s",
    "goodput_per_s",
    "calls_met",
)
_SHORT = {
    "agentic_itl_ms.mean": "ITL mean",
    "agentic_itl_ms.p95": "ITL P95",
    "agentic_itl_ms.p99": "ITL P99",
    "switch_gap_ms.mean": "switch",
    "program_s.p50": "final P50",
    "program_s.p95": "final P95",
    "tokens_per_s": "tokens/s",
    "goodput_per_s": "goodput",
    "calls_met": "SLO calls",
}
_BASELINES = ("vllm", DEFAULT, TUNED)
_BELOW_SATURATION = 0.85


def show(settings: PaperSettings, table: Table, errors: Errors | None, console: Console) -> None:
    """Print the tables: beside the paper, every cell, mechanisms, drafting, marks, errors."""
    console.print(_beside(settings, table))
    console.print(
        f"Parrot is not simulated; the paper reports {_list(PAPER_PARROT.values())} against it "
        f"(mean, P95, throughput). Its SLO attainment: {PAPER_ATTAINMENT[0]:.2%} against "
        f"{PAPER_ATTAINMENT[1]:.2%}.",
        highlight=False,
    )
    for arm, baseline in (
        (OURS, DEFAULT),
        (OURS, TUNED),
        (LAYOUT, TUNED),
        (PIPED, TUNED),
        (RELEASED, TUNED),
        (OURS, LAYOUT),
    ):
        found = _of(table.rows, arm, baseline)
        if found:
            console.print(_cells(f"{arm} against {baseline}", found))
    ablation = [row for arm in WITHOUT for row in _of(table.rows, OURS, arm)]
    if ablation:
        title = f"what a mechanism adds: {OURS} against {OURS} without it"
        console.print(_cells(title, ablation, baseline=True))
    drafted = [
        row
        for baseline in (TUNED, OURS, f"{TUNED}+draft")
        for row in _of(table.rows, f"{OURS}+draft", baseline)
    ] + _of(table.rows, f"{TUNED}+draft", TUNED)
    if drafted:
        console.print(_cells("drafting from text in the prompt", drafted, baseline=True))
    console.print(marks_table(marks(table.rows)))
    if errors is not None:
        console.print(_errors(errors))
        for arm, why in errors.left_out.items():
            console.print(f"{arm} was not simulated: {why}", highlight=False, markup=False)
    if settings.seeds < FEW_PAIRS:
        console.print(
            f"n = {settings.seeds}: with fewer than {FEW_PAIRS} seeds intervals are too narrow to "
            "lean on",
            highlight=False,
        )


def to_document(settings: PaperSettings, table: Table, errors: Errors | None) -> dict[str, Any]:
    """The JSON file."""
    return {
        "meta": {
            "version": __version__,
            "code": code_digest(),
            "settings": settings.model_dump(mode="json"),
            "machines": [SETTINGS[place]._asdict() for place in settings.settings],
            "saturated": [
                {"setting": setting, "workload": workload, "rate": rate}
                for (setting, workload), rate in table.saturated.items()
            ],
            "sweeps": [
                {
                    "setting": setting,
                    "workload": workload,
                    "rho": rho,
                    "trials": [trial._asdict() for trial in trials],
                }
                for (setting, workload, rho), trials in table.trials.items()
            ],
            "paper": {"parrot": dict(PAPER_PARROT), "attainment": list(PAPER_ATTAINMENT)},
        },
        "paper": [row.to_record() for row in table.rows],
        "marks": [mark.to_record() for mark in marks(table.rows)],
        "errors": None
        if errors is None
        else {
            "rows": [error.to_record() for error in errors.found],
            "left_out": dict(errors.left_out),
        },
    }


def write(settings: PaperSettings, table: Table, errors: Errors | None, path: Path) -> None:
    """Write the JSON file. Raises ConfigError if it cannot be written."""
    write_text(path, json.dumps(to_document(settings, table, errors), indent=1) + "\n")


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}x" for value in values)


def _of(rows: Sequence[Row], arm: str, baseline: str) -> list[Row]:
    return [row for row in rows if (row.arm, row.baseline) == (arm, baseline)]


def _beside(settings: PaperSettings, table: Table) -> Grid:
    """The paper's figures and ours: over all loads but overload, which throughput is taken at."""
    grid = Grid(
        title=f"the paper's figures and ours (simulated; loads up to {_BELOW_SATURATION:g}, "
        "throughput and utilisation at the highest load; all workloads)",
        title_justify="left",
    )
    grid.add_column("figure")
    grid.add_column("against")
    grid.add_column("paper", justify="right")
    for place in settings.settings:
        grid.add_column(SETTINGS[place].name, justify="right")
    highest = max(settings.loads)
    for metric in METRICS:
        for baseline in _BASELINES:
            at_top = metric.name in ("tokens_per_s", "mfu")
            cells = []
            for place in settings.settings:
                chosen = [
                    row
                    for row in _of(table.rows, OURS, baseline)
                    if row.metric == metric.name
                    and row.cell.setting == SETTINGS[place].name
                    and row.cell.copy_rate is None
                    and (row.cell.rho == highest if at_top else row.cell.rho <= _BELOW_SATURATION)
                ]
                cells.append(_cell(overall(metric, chosen)))
            paper = PAPER.get((baseline, metric.name))
            grid.add_row(metric.title, baseline, "-" if paper is None else f"{paper:.2f}", *cells)
    return grid


def _cells(title: str, rows: Sequence[Row], *, baseline: bool = False) -> Grid:
    """One line a cell, one column a figure."""
    grid = Grid(title=f"{title} (above 1 is better)", title_justify="left")
    for name in ("machine", "workload", "rho", "budget", *(("against",) if baseline else ())):
        grid.add_column(name)
    for name in _SHOWN:
        grid.add_column(_SHORT[name], justify="right")
    lines: dict[tuple[Any, ...], dict[str, Ratio | None]] = {}
    for row in rows:
        lines.setdefault((row.cell, row.arm, row.baseline), {})[row.metric] = row.ratio()
    for (cell, arm, against), found in lines.items():
        copied = "" if cell.copy_rate is None else f", copies {cell.copy_rate:g}"
        head = [cell.setting, cell.workload, f"{cell.rho:g}{copied}", str(cell.budget)]
        if baseline:
            head.append(f"{arm} / {against}" if cell.copy_rate is not None else against)
        grid.add_row(*head, *(_plain(found.get(name)) for name in _SHOWN))
    return grid


def marks_table(found: Sequence[Mark]) -> Grid:
    """Every mark, met or missed."""
    grid = Grid(title="marks", title_justify="left")
    for name in ("mark", "target", "found [95%]", "met", "cells that reach it", "lowest"):
        grid.add_column(name, justify="left" if name in ("mark", "lowest") else "right")
    for mark in found:
        digits = 3 if mark.aim.kind == "level" else 2
        lowest = "-"
        if mark.lowest is not None:
            row, value = mark.lowest
            where = f"{row.cell.workload}, rho {row.cell.rho:g}, {row.cell.setting}"
            lowest = f"{number(value, digits)} ({where})"
        grid.add_row(
            mark.aim.mark,
            f"{mark.aim.target:g}",
            "not measured" if mark.value is None else _cell(mark.value, digits),
            "[green]met[/green]" if mark.met else "[red]missed[/red]",
            f"{mark.reached}/{mark.cells}",
            lowest,
        )
    return grid


def _errors(errors: Errors) -> Grid:
    grid = Grid(
        title="the simulator's error against a real engine (simulated / recorded - 1)",
        title_justify="left",
    )
    for name in ("workload", "rate", "arm", "figure"):
        grid.add_column(name)
    for name in ("recorded", "simulated", "error", "runs"):
        grid.add_column(name, justify="right")
    for error in errors.found:
        metric: Metric = BY_NAME[error.metric]
        ratio = error.baseline is not None
        digits = 3 if ratio else metric.digits
        grid.add_row(
            error.workload,
            number(error.rate, 3),
            error.arm,
            f"{metric.title}, gain over {error.baseline}" if ratio else metric.title,
            number(error.recorded, digits),
            number(error.simulated, digits),
            f"{error.error:+.1%}",
            str(error.runs),
        )
    return grid


def _plain(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.ratio:.2f}"


def _cell(ratio: Ratio | None, digits: int = 2) -> str:
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.{digits}f}"
    low, high = (number(value, digits) for value in (ratio.low, ratio.high))
    return f"{ratio.ratio:.{digits}f} \\[{low}, {high}]"
