"""What ``grape simulate`` and ``grape replay`` print and write."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from grape_lc.bench.arms import TUNED
from grape_lc.bench.intervals import FEW_PAIRS, Ratio, paired_ratio
from grape_lc.bench.recorded import recorded_metrics
from grape_lc.bench.report import Figure, number, write_text
from grape_lc.bench.simulate import Figures, Result
from grape_lc.bench.simulation_options import SimulationSettings
from grape_lc.bench.sweep import RULE
from grape_lc.errors import ConfigError
from grape_lc.scheduler.record import differences, read

FIGURES = (
    Figure("agentic ITL, mean (ms)", ("agentic_itl_ms", "mean"), 2, True),
    Figure("agentic ITL, p50 (ms)", ("agentic_itl_ms", "p50"), 2, True),
    Figure("agentic ITL, p95 (ms)", ("agentic_itl_ms", "p95"), 1, True),
    Figure("agentic ITL, p99 (ms)", ("agentic_itl_ms", "p99"), 1, True),
    Figure("agentic ITL, max (ms)", ("agentic_itl_ms", "max"), 0, True),
    Figure("switch gap, mean (ms)", ("switch_gap_ms", "mean"), 1, True),
    Figure("switch gap, p95 (ms)", ("switch_gap_ms", "p95"), 1, True),
    Figure("TTFT of programs, mean (ms)", ("ttft_ms", "mean"), 1, True),
    Figure("TTFT of programs, p95 (ms)", ("ttft_ms", "p95"), 1, True),
    Figure("program, p50 (s)", ("program_s", "p50"), 2, True),
    Figure("program, p95 (s)", ("program_s", "p95"), 2, True),
    Figure("program, p99 (s)", ("program_s", "p99"), 2, True),
    Figure("output tokens per second", ("tokens_per_s",), 1, False),
    Figure("calls within their targets", ("calls_met",), 4, False),
    Figure("programs within their targets", ("programs_met",), 4, False),
    Figure("goodput (programs/s)", ("goodput_per_s",), 4, False),
    Figure("accelerator s per program within its targets", ("accelerator_s_per_success",), 3, True),
    Figure("model FLOPs utilisation", ("mfu",), 4, None),
    Figure("evictions", ("evictions",), 0, None),
    Figure("preemptions", ("preemptions",), 0, None),
    Figure("open prompts dropped", ("dropped",), 0, None),
    Figure("tokens recomputed", ("recomputed_tokens",), 0, None),
    Figure("tokens computed early", ("early_tokens",), 0, None),
    Figure("early tokens wasted", ("wasted_tokens",), 0, None),
    Figure("drafted tokens that were right", ("accepted_share",), 3, None),
    Figure("prompt tokens adopted", ("ahead_share",), 3, None),
    Figure("prompt tokens cached", ("cached_share",), 3, None),
    Figure("time a step runs", ("busy",), 3, None),
)


def figure(figures: Figures, path: Sequence[str]) -> float | None:
    """One figure by its path of names; None where it was not measured."""
    value: Any = figures
    for name in path:
        value = None if value is None else value.get(name)
    return None if value is None else float(value)


def _mean(figures: Sequence[Figures], path: Sequence[str]) -> float | None:
    values = [value for entry in figures if (value := figure(entry, path)) is not None]
    return fmean(values) if values else None


def gains(result: Result, base: str) -> dict[str, dict[str, Ratio | None]]:
    """How much better each other arm is than ``base``, by figure, paired by seed."""
    found: dict[str, dict[str, Ratio | None]] = {}
    for arm, ours in result.figures.items():
        if arm == base:
            continue
        found[arm] = {}
        for row in FIGURES:
            if row.lower_is_better is None:
                continue
            pairs = [
                (figure(theirs, row.path), figure(our, row.path))
                for theirs, our in zip(result.figures[base], ours, strict=True)
            ]
            if not row.lower_is_better:
                pairs = [(our, their) for their, our in pairs]
            found[arm][".".join(row.path)] = paired_ratio(pairs)
    return found


def show(settings: SimulationSettings, result: Result, console: Console) -> None:
    """Print the sweep, the figures, and the ratios with what got worse."""
    if result.trials and result.trials[0].figures is not None:
        console.print(_sweep_table(result))
        console.print(f"taken: {RULE}", highlight=False)
    seeds = settings.seeds
    load = "" if result.rate is None else f", {result.rate:.4g} programs/s"
    table = Table(title=f"means over {seeds} seeds{load}", title_justify="left")
    table.add_column("figure")
    columns: dict[str, Sequence[Figures]] = dict(result.figures)
    if settings.record is not None:
        arm, metrics = recorded_metrics(settings.record, settings.record_run)
        columns = {f"{arm}\nas recorded": [dict(metrics)], **columns}
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    for row in FIGURES:
        cells = [number(_mean(entry, row.path), row.digits) for entry in columns.values()]
        table.add_row(row.title, *cells)
    console.print(table)
    base = settings.base_arm()
    compared = gains(result, base)
    if compared:
        console.print(_gains_table(compared, base))
        if seeds < FEW_PAIRS:
            console.print(
                f"n = {seeds}: with fewer than {FEW_PAIRS} seeds the intervals are too narrow to "
                "lean on",
                highlight=False,
            )


def _sweep_table(result: Result) -> Table:
    table = Table(
        title=f"{TUNED} at several token budgets, on a seed of its own", title_justify="left"
    )
    for title in ("budget", "saturated (programs/s)", "ITL mean", "p95", "p99 (ms)", "tokens/s"):
        table.add_column(title, justify="right")
    for trial in result.trials:
        figures = trial.figures or {}
        itl = figures.get("agentic_itl_ms", {})
        table.add_row(
            str(trial.budget),
            number(trial.saturated_rate or None, 3),
            *(number(itl.get(name), 1) for name in ("mean", "p95", "p99")),
            number(figures.get("tokens_per_s"), 1),
        )
    return table


def _gains_table(compared: Mapping[str, Mapping[str, Ratio | None]], base: str) -> Table:
    title = f"against {base}: above 1 is better, below 1 is worse"
    table = Table(title=title, title_justify="left")
    table.add_column("figure")
    for arm in compared:
        table.add_column(f"{arm}\nratio [95%]", justify="right", overflow="fold")
    for row in FIGURES:
        if row.lower_is_better is not None:
            key = ".".join(row.path)
            table.add_row(row.title, *(_cell(column[key]) for column in compared.values()))
    return table


def _cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    if ratio.low is None or ratio.high is None:
        return f"{ratio.ratio:.3f} (n = 1)"
    style = ("green" if ratio.ratio > 1 else "red") if ratio.shown else "default"
    return f"[{style}]{ratio.ratio:.3f} \\[{ratio.low:.3f}, {ratio.high:.3f}][/{style}]"


def write(settings: SimulationSettings, result: Result, path: Path) -> None:
    """Write settings, figures of every seed, means and ratios. Raises ConfigError."""
    base = settings.base_arm()
    document = {
        "settings": settings.model_dump(mode="json"),
        "rate": result.rate,
        "sweep": [trial._asdict() for trial in result.trials],
        "arms": {
            arm.name: {"kind": arm.kind, "engine": dict(arm.engine), "grape": dict(arm.grape)}
            for arm in result.arms
        },
        "base": base,
        "means": {
            arm: {".".join(row.path): _mean(entry, row.path) for row in FIGURES}
            for arm, entry in result.figures.items()
        },
        "gains": {
            arm: {key: None if ratio is None else ratio._asdict() for key, ratio in column.items()}
            for arm, column in gains(result, base).items()
        },
        "figures": result.figures,
    }
    write_text(path, json.dumps(document, indent=1) + "\n")


def replay(path: Path, say: Callable[[str], None]) -> int:
    """Plan every recorded step anew and tell the differences; how many steps differ.

    Raises ConfigError for a file that holds no records.
    """
    steps = different = 0
    try:
        lines = path.open(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    with lines:
        try:
            config, records = read(lines)
            for record in records:
                steps += 1
                found = differences(record, config)
                different += bool(found)
                for part in found:
                    say(f"step {part.step} {part.part}: {part.recorded!r} -> {part.planned!r}")
        except (
            TypeError,
            ValueError,
            AttributeError,
            LookupError,
            ArithmeticError,
            RecursionError,
        ) as error:
            # A line may be of the right form and yet no step that any engine made.
            raise ConfigError(f"{path}: after {steps} steps: {error!r}") from error
    say(f"{steps} steps planned anew, {different} differ")
    return different
