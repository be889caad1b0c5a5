"""Rows of the paper's table: one figure of one arm against a baseline, in one cell.

A ratio is above 1 where the arm is better: baseline / arm for times, arm / baseline for rates and
shares. Its interval resamples seeds; both arms of a seed have the same programs at the same times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grape_lc.bench.intervals import Ratio, paired_ratio, pooled_ratio
from grape_lc.bench.paper_options import DEFAULT
from grape_lc.bench.simulate import Figures


class Metric(NamedTuple):
    """A figure by its path of names.

    lower: whether less is better. pooled: it may be zero, so sums are compared, not logarithms.
    """

    name: str
    title: str
    digits: int
    lower: bool
    pooled: bool = False

    def of(self, figures: Figures) -> float | None:
        """Its value; None where it was not measured."""
        value: Any = figures
        for part in self.name.split("."):
            value = None if value is None else value.get(part)
        return None if value is None else float(value)


METRICS = (
    Metric("agentic_itl_ms.mean", "agentic ITL, mean (ms)", 2, True),
    Metric("agentic_itl_ms.p95", "agentic ITL, P95 (ms)", 1, True),
    Metric("agentic_itl_ms.p99", "agentic ITL, P99 (ms)", 1, True),
    Metric("switch_gap_ms.mean", "switch gap, mean (ms)", 1, True),
    Metric("program_s.p50", "final answer, P50 (s)", 2, True),
    Metric("program_s.p95", "final answer, P95 (s)", 2, True),
    Metric("tokens_per_s", "output tokens per second", 1, False),
    Metric("goodput_per_s", "goodput at SLO (programs/s)", 3, False, pooled=True),
    Metric("calls_met", "SLO attainment, calls", 4, False, pooled=True),
    Metric("programs_met", "SLO attainment, programs", 4, False, pooled=True),
    Metric("mfu", "model FLOPs utilisation", 4, False),
)
BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in METRICS}

PAPER: Mapping[tuple[str, str], float] = {
    ("vllm", "agentic_itl_ms.mean"): 1.29,
    ("vllm", "agentic_itl_ms.p95"): 5.51,
    ("vllm", "tokens_per_s"): 1.33,
    (DEFAULT, "agentic_itl_ms.mean"): 1.15,
    (DEFAULT, "agentic_itl_ms.p95"): 3.80,
    (DEFAULT, "tokens_per_s"): 1.16,
    (DEFAULT, "mfu"): 1.16,
}
"""What the paper reports, by baseline and metric; utilisation is its largest figure."""

PAPER_PARROT: Mapping[str, float] = {
    "agentic_itl_ms.mean": 2.30,
    "agentic_itl_ms.p95": 8.49,
    "tokens_per_s": 2.86,
}
"""Against Parrot, which is not simulated."""

PAPER_ATTAINMENT = (0.9810, 0.8346)
"""Share of requests within their SLO, the paper's system and vllm-opt."""


class Cell(NamedTuple):
    """Where figures were taken.

    setting: of the machine. rho: load; rate: programs a second. budget: of the tuned arms.
    copy_rate: of drafted text; None where nothing drafts.
    """

    setting: str
    workload: str
    rho: float
    rate: float
    budget: int
    copy_rate: float | None = None


class Row(NamedTuple):
    """One figure of an arm and of its baseline, a value a seed."""

    cell: Cell
    arm: str
    baseline: str
    metric: str
    values: tuple[float | None, ...]
    base_values: tuple[float | None, ...]

    def ratio(self) -> Ratio | None:
        """How much better the arm is; None where nothing can be compared."""
        metric = BY_NAME[self.metric]
        pairs = zip(self.base_values, self.values, strict=True)
        ordered = pairs if metric.lower else ((ours, base) for base, ours in pairs)
        return pooled_ratio(ordered) if metric.pooled else paired_ratio(ordered)

    def to_record(self) -> dict[str, Any]:
        """For the JSON file."""
        return {
            **self.cell._asdict(),
            "arm": self.arm,
            "baseline": self.baseline,
            "metric": self.metric,
            "values": list(self.values),
            "base_values": list(self.base_values),
            **ratio_record(self.ratio()),
            "paper": PAPER.get((self.baseline, self.metric)) if self.arm == "grape" else None,
        }


def ratio_record(ratio: Ratio | None) -> dict[str, Any]:
    """``{"ratio", "ci95", "n"}``; None where there is no such number."""
    if ratio is None:
        return {"ratio": None, "ci95": None, "n": 0}
    interval = None if ratio.low is None or ratio.high is None else [ratio.low, ratio.high]
    return {"ratio": ratio.ratio, "ci95": interval, "n": ratio.pairs}


def rows(
    cell: Cell, figures: Mapping[str, Sequence[Figures]], arm: str, baseline: str
) -> list[Row]:
    """The rows of one arm against another, by arm and seed; none where one of them is missing."""
    if arm not in figures or baseline not in figures:
        return []
    return [
        Row(
            cell,
            arm,
            baseline,
            metric.name,
            tuple(metric.of(entry) for entry in figures[arm]),
            tuple(metric.of(entry) for entry in figures[baseline]),
        )
        for metric in METRICS
    ]
