"""Two arms side by side: which answers are equal, the table, and the JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table

from grape_lc.bench.metrics import Metrics, ProgramRecord, RunRecord
from grape_lc.errors import ConfigError

BASE = "vllm"
OURS = "grape"
ARMS = (BASE, OURS)

# Below this the two arms count as the same: a quarter of a percent is never a finding here.
_SAME = 0.0025


class Equal(NamedTuple):
    """How many answers were compared, and how many of them were identical texts."""

    compared: int
    identical: int


class Figure(NamedTuple):
    """One line of a table: a figure of ``Metrics`` by its path of names.

    lower_is_better: None where neither is better.
    """

    title: str
    path: tuple[str, ...]
    digits: int
    lower_is_better: bool | None


FIGURES = (
    Figure("agentic ITL, mean (ms)", ("agentic_itl_ms", "mean"), 1, True),
    Figure("agentic ITL, p50 (ms)", ("agentic_itl_ms", "p50"), 1, True),
    Figure("agentic ITL, p95 (ms)", ("agentic_itl_ms", "p95"), 1, True),
    Figure("agentic ITL, p99 (ms)", ("agentic_itl_ms", "p99"), 1, True),
    Figure("agentic ITL, max (ms)", ("agentic_itl_ms", "max"), 1, True),
    Figure("switch gap, mean (ms)", ("switch_gap_ms", "mean"), 1, True),
    Figure("switch gap, p95 (ms)", ("switch_gap_ms", "p95"), 1, True),
    Figure("switch gap, max (ms)", ("switch_gap_ms", "max"), 1, True),
    Figure("TTFT, mean (ms)", ("ttft_ms", "mean"), 1, True),
    Figure("TTFT, p95 (ms)", ("ttft_ms", "p95"), 1, True),
    Figure("program, mean (s)", ("program_s", "mean"), 2, True),
    Figure("program, p95 (s)", ("program_s", "p95"), 2, True),
    Figure("makespan (s)", ("makespan_s",), 2, True),
    Figure("output tokens per second", ("tokens_per_s",), 1, False),
    Figure("prompt tokens adopted", ("ahead_share",), 3, None),
)


def compare_runs(first: RunRecord, second: RunRecord) -> Equal:
    """Compare the answers of all calls of two runs of one workload, one by one.

    Programs are matched by name and calls by their order; a call without a counterpart counts
    as compared and not identical.
    """
    ours = {program.program: program for program in second.programs}
    none = ProgramRecord("", 0.0, 0.0, ())
    compared = identical = 0
    for program in first.programs:
        other = ours.pop(program.program, none)
        for left, right in zip_longest(program.calls, other.calls):
            compared += 1
            identical += left is not None and right is not None and left.text == right.text
    compared += sum(len(program.calls) for program in ours.values())
    return Equal(compared, identical)


def compare_arms(runs: Sequence[RunRecord]) -> Equal:
    """Compare each grape run with the vllm run of the same number, or the last one there is."""
    base = [run for run in runs if run.arm == BASE]
    ours = [run for run in runs if run.arm == OURS]
    if not base:
        return Equal(0, 0)
    pairs = [compare_runs(base[min(i, len(base) - 1)], run) for i, run in enumerate(ours)]
    return Equal(sum(p.compared for p in pairs), sum(p.identical for p in pairs))


def compare_base(runs: Sequence[RunRecord]) -> Equal:
    """Compare the first vllm run with the others: how far vLLM agrees with itself here."""
    base = [run for run in runs if run.arm == BASE]
    pairs = [compare_runs(base[0], run) for run in base[1:]]
    return Equal(sum(p.compared for p in pairs), sum(p.identical for p in pairs))


def value_of(metrics: Metrics, path: Sequence[str]) -> float | None:
    """One figure by its path of names, such as ``("ttft_ms", "mean")``."""
    value: Any = metrics
    for name in path:
        value = value[name]
    return None if value is None else float(value)


def verdict(base: float | None, ours: float | None, *, lower_is_better: bool) -> str:
    """``1.50x better``, ``1.10x worse``, ``same``, or ``-`` where no ratio exists."""
    if base is None or ours is None or base <= 0 or ours <= 0:
        return "-"
    gain = base / ours if lower_is_better else ours / base
    if abs(gain - 1) <= _SAME:
        return "same"
    return f"{gain:.2f}x better" if gain > 1 else f"{1 / gain:.2f}x worse"


def comparison_table(metrics: Mapping[str, Metrics]) -> Table:
    """All figures of both arms, and by which factor grape is better or worse."""
    table = Table(title="plain vLLM and grape, same programs, same arrivals", title_justify="left")
    table.add_column("figure")
    table.add_column("vLLM", justify="right")
    table.add_column("grape", justify="right")
    table.add_column("grape is", justify="right")
    for row in FIGURES:
        base, ours = (value_of(metrics[arm], row.path) for arm in ARMS)
        outcome = "-"
        if row.lower_is_better is not None:
            outcome = verdict(base, ours, lower_is_better=row.lower_is_better)
        style = "green" if "better" in outcome else "red" if "worse" in outcome else None
        cells = [number(base, row.digits), number(ours, row.digits), outcome]
        table.add_row(row.title, *cells, style=style)
    return table


def number(value: float | None, digits: int) -> str:
    """A cell of a table."""
    return "-" if value is None else f"{value:.{digits}f}"


def raw_run(run: RunRecord) -> dict[str, Any]:
    """A run as plain data; times in seconds since its first arrival."""
    zero = min((program.arrived for program in run.programs), default=0.0)
    return {
        "arm": run.arm,
        "programs": [
            {
                "program": program.program,
                "arrived": round(program.arrived - zero, 6),
                "finished": round(program.finished - zero, 6),
                "scheduled": None
                if program.scheduled is None
                else round(program.scheduled - zero, 6),
                "tenant": program.tenant,
                "calls": [
                    {
                        **call._asdict(),
                        "submitted": round(call.submitted - zero, 6),
                        "tokens": [[round(at - zero, 6), count] for at, count in call.tokens],
                    }
                    for call in program.calls
                ],
            }
            for program in run.programs
        ],
    }


def write_text(path: Path, text: str) -> None:
    """Write a file of results. Raises ConfigError if it cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}") from error
