"""One way to serve the programs of a comparison: scheduler, engine arguments, and what is added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from grape_lc.bench.ranking import Order
from grape_lc.scheduler.settings import PLAIN, Rule

STOCK = "vllm"
TUNED = "vllm-opt"
OURS = "grape"
BUDGET = "max_num_batched_tokens"
PIPE_TOKENS = 128
"""Tokens of a piece of an answer that ``+pipe`` hands on, as Parrot's pipes once did."""

DRAFTING = "speculative_config"
MOST = 1 << 24  # tokens, or requests

KINDS: Mapping[str, Mapping[str, Any]] = {
    STOCK: {},
    TUNED: {"enable_prefix_caching": True, "scheduling_policy": "priority"},
    OURS: {},
}
"""The engine arguments of each kind of arm."""

PIPE: Mapping[str, Any] = {
    **{name: off if isinstance(off, bool) else str(off) for name, off in PLAIN.items()},
    "incremental": True,
    "static": True,
    "rule": str(Rule.HOPS),
    "chunk": PIPE_TOKENS,
    "lump": PIPE_TOKENS,
    "near_steps": 0,
    "open_cap": MOST,
    "prefill_cap": None,
}
"""Our scheduler with its policy off, save that prompts grow while they wait.

A piece is handed on as soon as a step has room for all of it.
"""


class Tuning(NamedTuple):
    """What a sweep finds for a tuned arm.

    budget: most tokens of a step; None is vLLM's default. order: see ``ranking``.
    """

    budget: int | None = None
    order: Order = "stage"


@dataclass(frozen=True)
class Arm:
    """One way to serve the programs of a comparison.

    name: as it was written; unique in a comparison. kind: ``vllm``, ``vllm-opt`` or ``grape``.
    engine: engine arguments that differ from vLLM's defaults.
    grape: settings of our scheduler that differ from its defaults.
    warmed: whether the static heads of prompts are in the cache when a run begins.
    piped: whether our scheduler is in the engine for its open prompts alone.
    released: whether the flow's driver makes the calls, in the place of the graph.
    layout: whether prompts are in the order that a prefix cache serves best.
    order: what calls that carry a priority are ordered by first; see ``ranking``. None: it is not
        said, so a sweep may choose.
    """

    name: str
    kind: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    grape: Mapping[str, Any] = field(default_factory=dict)
    warmed: bool = False
    piped: bool = False
    released: bool = False
    layout: bool = False
    order: Order | None = None

    @property
    def plain(self) -> bool:
        """Whether it is its kind, perhaps without some mechanism, and nothing is added."""
        extras = (self.warmed, self.piped, self.released, self.layout, DRAFTING in self.engine)
        return not any(extras)

    @property
    def scheduler(self) -> Literal["grape", "stock"]:
        """The scheduler in the engine."""
        return "grape" if self.kind == OURS or self.piped else "stock"

    @property
    def attached(self) -> bool:
        """Whether the engine is told of the programs before they make their calls."""
        return self.scheduler == "grape"

    @property
    def ranked(self) -> bool:
        """Whether calls carry a priority; see ``ranking``."""
        return self.engine.get("scheduling_policy") == "priority"

    @property
    def comparable(self) -> bool:
        """Whether its prompts are those of other arms, so that answers should be equal."""
        return not self.layout

    @property
    def budget(self) -> int | None:
        """Most tokens of a step; None is vLLM's default."""
        return self.engine.get(BUDGET)

    @property
    def tuning(self) -> Tuning:
        """What a sweep may have found for it."""
        return Tuning(self.budget, self.order or "stage")

    def engine_args(self) -> dict[str, Any]:
        """Engine arguments as ``GrapeEngine`` takes them."""
        return {**self.engine, **({"grape": dict(self.grape)} if self.grape else {})}


def fitting(arm: Arm) -> Arm:
    """The arm, with pieces of at most half its budget: a larger one fits beside no decodes."""
    if not arm.piped or arm.budget is None:
        return arm
    most = max(1, arm.budget // 2)
    pieces = {name: min(arm.grape[name], most) for name in ("chunk", "lump")}
    return replace(arm, grape={**arm.grape, **pieces})


def tuned_name(arms: Sequence[Arm]) -> str | None:
    """The arm that ratios are against unless told otherwise: the first tuned one.

    One that is tuned and nothing else goes before warmed and drafting ones.
    """
    tuned = sorted((arm for arm in arms if arm.kind == TUNED), key=lambda arm: not arm.plain)
    return tuned[0].name if tuned else None


def with_tuning(arms: Sequence[Arm], tuning: Tuning) -> tuple[Arm, ...]:
    """``arms`` with this budget and order for the tuned ones that name none.

    One that names the budget ``none`` keeps vLLM's default. A budget of None changes nothing.
    """
    return tuple(_tuned(arm, tuning) if arm.kind == TUNED else arm for arm in arms)


def _tuned(arm: Arm, tuning: Tuning) -> Arm:
    if tuning.budget is not None and BUDGET not in arm.engine:
        arm = fitting(replace(arm, engine={**arm.engine, BUDGET: tuning.budget}))
    return replace(arm, order=tuning.order) if arm.ranked and arm.order is None else arm
