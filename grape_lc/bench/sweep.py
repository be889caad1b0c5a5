"""Tuning the strongest baseline: vllm-opt at several token budgets, and in both orders of calls.

First the budgets, with calls ordered by stage; then the other order at the best budget. The rule:
the lowest P99 agentic ITL among the trials whose tokens per second are at least 0.98 of the best.
Which budget would win by P95 or by the mean is told beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from rich.table import Table

from grape_lc.bench.arms import BUDGET, TUNED, Arm, Tuning, parse_arm, with_tuning
from grape_lc.bench.metrics import Metrics
from grape_lc.bench.ranking import Order
from grape_lc.bench.report import number
from grape_lc.errors import EngineError

KEPT_SPEED = 0.98
RULE = (
    f"lowest P99 agentic ITL among budgets with at least {KEPT_SPEED:g} of the best tokens per "
    "second"
)


class Trial(NamedTuple):
    """A token budget (None: vLLM's default), an order of calls, and their figures."""

    budget: int | None
    metrics: Metrics
    order: Order = "stage"

    @property
    def title(self) -> str:
        """Budget and order as they are printed."""
        budget = "default" if self.budget is None else str(self.budget)
        return budget if self.order == "stage" else f"{budget}, by {self.order}"


class Choice(NamedTuple):
    """The budget by the rule, and those that would win by other figures."""

    best: Trial
    by_p95: Trial
    by_mean: Trial

    def to_record(self) -> dict[str, Any]:
        """For the JSON file."""
        budgets = {name: trial.budget for name, trial in self._asdict().items()}
        return {"rule": RULE, **budgets, "order": self.best.order}

    @property
    def tuning(self) -> Tuning:
        """What the tuned arms take over."""
        return Tuning(self.best.budget, self.best.order)

    def __str__(self) -> str:
        return (
            f"{TUNED} takes max_num_batched_tokens = {self.best.title} ({RULE}); by P95 it would "
            f"be {self.by_p95.title}, by the mean {self.by_mean.title}"
        )


def sweep_arm(budget: int | Literal["default"]) -> Arm:
    """The tuned arm at one budget."""
    return parse_arm(TUNED if budget == "default" else f"{TUNED}:{BUDGET}={budget}")


def order_arms(budget: int | None) -> tuple[Arm, ...]:
    """The tuned arm in each other order of calls, at a budget, which its name does not tell."""
    others = [order for order in get_args(Order) if order != "stage"]
    return with_tuning([parse_arm(f"{TUNED}:order={order}") for order in others], Tuning(budget))


def choose(trials: Sequence[Trial]) -> Choice:
    """Apply the rule; ties go to the higher tokens per second, the larger budget, the stage.

    The same condition on tokens per second holds for the other two figures. Raises EngineError
    when no trial has figures.
    """
    measured = [trial for trial in trials if trial.metrics["tokens_per_s"]]
    if not measured:
        raise EngineError("no budget of the sweep was measured: all of its runs failed")
    fastest = max(_speed(trial) for trial in measured)
    kept = [trial for trial in measured if _speed(trial) >= KEPT_SPEED * fastest]

    def best(figure: Callable[[Metrics], float | None]) -> Trial:
        return min(
            kept,
            key=lambda trial: (
                value if (value := figure(trial.metrics)) is not None else float("inf"),
                -_speed(trial),
                -(trial.budget or float("inf")),
                trial.order != "stage",
            ),
        )

    return Choice(
        best(lambda metrics: metrics["agentic_itl_ms"]["p99"]),
        best(lambda metrics: metrics["agentic_itl_ms"]["p95"]),
        best(lambda metrics: metrics["agentic_itl_ms"]["mean"]),
    )


def sweep_table(trials: Sequence[Trial], choice: Choice) -> Table:
    """The figures that the rule looks at, and some beside."""
    table = Table(title=f"{TUNED} at each token budget", title_justify="left")
    for column in (
        *("max_num_batched_tokens", "tokens/s", "ITL mean (ms)", "P95", "P99", "max"),
        *("switch mean (ms)", "TTFT mean (ms)", "program mean (s)"),
    ):
        table.add_column(column, justify="right")
    for trial in trials:
        metrics, itl = trial.metrics, trial.metrics["agentic_itl_ms"]
        table.add_row(
            trial.title + (" *" if trial is choice.best else ""),
            number(metrics["tokens_per_s"], 1),
            *(number(itl[name], 1) for name in ("mean", "p95", "p99", "max")),
            number(metrics["switch_gap_ms"]["mean"], 1),
            number(metrics["ttft_ms"]["mean"], 1),
            number(metrics["program_s"]["mean"], 2),
        )
    return table


def _speed(trial: Trial) -> float:
    return trial.metrics["tokens_per_s"] or 0.0
