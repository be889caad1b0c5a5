"""The marks of the paper's setting: what was aimed at, what came out, met or missed.

Every mark is computed from rows. One that names an average takes the geometric mean over its cells
(for goodput, which may be zero, the ratio of sums); one that says "never" takes its worst cell. A
mark without rows was not measured, and so is not met.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean, geometric_mean
from typing import Any, Literal, NamedTuple

from grape_lc.bench.arms import OURS, TUNED
from grape_lc.bench.intervals import Ratio, paired_ratio, pooled_ratio
from grape_lc.bench.paper_options import DEFAULT
from grape_lc.bench.paper_rows import BY_NAME, Metric, Row, ratio_record

_SCOPE = ("code", "summary")


class Aim(NamedTuple):
    """What is aimed at.

    kind: ``mean`` over the cells, ``never`` below the target in any of them, or ``level``: the
        arm's own value, not a ratio.
    loads: least and most load of its cells. workloads: theirs; empty: all.
    drafting: of the arms that draft, at any copy rate; otherwise those that do not.
    """

    mark: str
    metric: str
    baseline: str
    target: float
    kind: Literal["mean", "never", "level"] = "mean"
    loads: tuple[float, float] = (0.5, 0.85)
    workloads: tuple[str, ...] = _SCOPE
    arm: str = OURS
    drafting: bool = False

    def holds_for(self, row: Row) -> bool:
        """Whether a row belongs to this mark."""
        low, high = self.loads
        return (
            (row.arm, row.baseline, row.metric) == (self.arm, self.baseline, self.metric)
            and low <= row.cell.rho <= high
            and (not self.workloads or row.cell.workload in self.workloads)
            and (row.cell.copy_rate is not None) is self.drafting
        )


_ALL = (0.0, math.inf)
_DRAFT = f"{OURS}+draft"
_DRAFTED = f"{TUNED}+draft"

AIMS = (
    Aim("P95 agentic ITL against vllm-opt at the default budget", "agentic_itl_ms.p95", DEFAULT, 4),
    Aim("mean agentic ITL, default budget", "agentic_itl_ms.mean", DEFAULT, 1.3),
    Aim(
        "throughput at overload, default budget", "tokens_per_s", DEFAULT, 1.16, loads=(1, math.inf)
    ),
    Aim("SLO attainment of calls", "calls_met", DEFAULT, 0.985, "level"),
    Aim("switch gap against tuned vllm-opt", "switch_gap_ms.mean", TUNED, 6),
    Aim("mean agentic ITL, tuned", "agentic_itl_ms.mean", TUNED, 1.15),
    Aim("P95 agentic ITL, tuned", "agentic_itl_ms.p95", TUNED, 1.3),
    Aim(
        "P95 agentic ITL, tuned, never below", "agentic_itl_ms.p95", TUNED, 0.97, "never", _ALL, ()
    ),
    Aim("P99 agentic ITL, tuned", "agentic_itl_ms.p99", TUNED, 1.2),
    Aim("P99 agentic ITL, tuned, never below", "agentic_itl_ms.p99", TUNED, 0.9, "never", _ALL, ()),
    Aim("final answer P95, tuned", "program_s.p95", TUNED, 1.15),
    Aim("throughput, tuned", "tokens_per_s", TUNED, 1.0),
    Aim("goodput at SLO, tuned", "goodput_per_s", TUNED, 1.25),
    *(
        Aim(
            f"final answer {name.upper()}, grape+draft against tuned vllm-opt",
            f"program_s.{name}",
            TUNED,
            1.6,
            arm=_DRAFT,
            drafting=True,
        )
        for name in ("p50", "p95")
    ),
    Aim(
        "final answer P95, grape+draft against vllm-opt+draft, never below",
        "program_s.p95",
        _DRAFTED,
        1.0,
        "never",
        arm=_DRAFT,
        drafting=True,
    ),
)


class Mark(NamedTuple):
    """How an aim came out.

    value: None: not measured. lowest: its cell of the least value, and that value.
    cells: how many there are; reached: in how many of them the target is reached by itself.
    """

    aim: Aim
    value: Ratio | None
    met: bool
    lowest: tuple[Row, float] | None
    cells: int
    reached: int

    def to_record(self) -> dict[str, Any]:
        """For the JSON file."""
        found = ratio_record(self.value)
        return {
            "mark": self.aim.mark,
            "value": found["ratio"],
            "ci95": found["ci95"],
            "target": self.aim.target,
            "met": self.met,
            "kind": self.aim.kind,
            "cells": self.cells,
            "reached": self.reached,
            "lowest": None
            if self.lowest is None
            else {"value": self.lowest[1], **self.lowest[0].cell._asdict()},
        }


def marks(rows: Iterable[Row], aims: Sequence[Aim] = AIMS) -> list[Mark]:
    """Every aim with what came out."""
    known = list(rows)
    return [_mark(aim, [row for row in known if aim.holds_for(row)]) for aim in aims]


def _mark(aim: Aim, rows: Sequence[Row]) -> Mark:
    cells = [(row, found) for row in rows if (found := _of_cell(aim, row)) is not None]
    if not cells:
        return Mark(aim, None, False, None, 0, 0)
    row, least = min(cells, key=lambda pair: pair[1].ratio)
    if aim.kind == "never":
        value: Ratio | None = least
    elif aim.kind == "level":
        value = _level([row for row, _ in cells])
    else:
        value = overall(BY_NAME[aim.metric], [row for row, _ in cells])
    met = value is not None and value.ratio >= aim.target
    reached = sum(found.ratio >= aim.target for _, found in cells)
    return Mark(aim, value, met, (row, least.ratio), len(cells), reached)


def _of_cell(aim: Aim, row: Row) -> Ratio | None:
    if aim.kind != "level":
        return row.ratio()
    return pooled_ratio((value, 1.0) for value in row.values)  # a mean with its interval


def overall(metric: Metric, rows: Sequence[Row]) -> Ratio | None:
    """The ratio over several cells: one value a seed, their mean and its interval.

    Geometric means over cells; for figures that may be zero, ratios of sums. None without rows.
    """
    seeds = range(min((len(row.values) for row in rows), default=0))
    ours = [_known(row.values[seed] for row in rows) for seed in seeds]
    base = [_known(row.base_values[seed] for row in rows) for seed in seeds]
    above, below = (base, ours) if metric.lower else (ours, base)
    pairs = [(a, b) for a, b in zip(above, below, strict=True) if a is not None and b is not None]
    if metric.pooled:
        return pooled_ratio((sum(a), sum(b)) for a, b in pairs)
    return paired_ratio((geometric_mean(a), geometric_mean(b)) for a, b in pairs if min(*a, *b) > 0)


def _level(rows: Sequence[Row]) -> Ratio | None:
    """The arm's own value: one a seed over all cells, their mean and its interval."""
    seeds = range(min(len(row.values) for row in rows))
    ours = [_known(row.values[seed] for row in rows) for seed in seeds]
    return pooled_ratio((None if values is None else fmean(values), 1.0) for values in ours)


def _known(values: Iterable[float | None]) -> list[float] | None:
    """All values of a seed; None if one was not measured."""
    found: list[float] = []
    for value in values:
        if value is None:
            return None
        found.append(value)
    return found
