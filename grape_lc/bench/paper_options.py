"""What ``grape paper`` simulates: the paper's machines, workloads and loads, and the arms."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from grape_lc.bench.arms import BUDGET, OURS, TUNED, parse_arm
from grape_lc.scheduler.settings import PLAIN


class Setting(NamedTuple):
    """A model on a machine, as ``SimulationSettings`` names them."""

    name: str
    hardware: str
    model: str
    tp: int
    link: str | None


SETTINGS = (
    Setting("A100-40GB, Llama3-8B", "a100-40gb", "llama3-8b", 1, None),
    Setting("2 x A100-40GB PCIe, Qwen3-14B", "a100-40gb", "qwen3-14b", 2, "pcie"),
)
WORKLOADS = ("code", "summary", "search")

DEFAULT = f"{TUNED}:{BUDGET}=2048"
"""vllm-opt at vLLM's default budget: likely the strongest baseline that the paper had."""

PIPED = f"{TUNED}+pipe"
RELEASED = f"{TUNED}+release"
LAYOUT = "layout"
COMPARED = ("vllm", DEFAULT, TUNED, RELEASED, PIPED, LAYOUT, OURS)
"""The arms of the table; those tuned get the budget of the sweep."""

WITHOUT = tuple(f"{OURS}-{mechanism}" for mechanism in PLAIN)
"""grape without each mechanism, one at a time."""

DRAFTING = (f"{TUNED}+draft", f"{OURS}+draft")


class PaperSettings(BaseModel):
    """Sizes of the table; checked when made.

    programs: of each seed and cell. seeds: how many. loads: relative to the saturated rate of
        the tuned vllm-opt. sweep: token budgets that it is tuned with. ablation: the load at which
        mechanisms are taken away, of the first machine; drafting: that of the drafting arms.
    copy_rates: shares of drafted text that answers copy.
    settings, workloads: places in ``SETTINGS`` and names; ablated: workloads of the ablation.
    record, cost, kv_blocks, block_size: a bench on a real engine, to tell how far the simulator
        is from it; None: not told. jobs: simulations at a time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    programs: int = Field(default=120, ge=1)
    seeds: int = Field(default=4, ge=1)
    loads: tuple[float, ...] = (0.5, 0.7, 0.85, 1.2)
    sweep: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096)
    ablation: float = Field(default=0.7, gt=0)
    drafting: float = Field(default=0.7, gt=0)
    copy_rates: tuple[float, ...] = (0.3, 0.5)
    settings: tuple[int, ...] = (0, 1)
    workloads: tuple[str, ...] = WORKLOADS
    ablated: tuple[str, ...] = ("code", "summary")
    record: Path | None = None
    cost: Path | None = None
    kv_blocks: int | None = Field(default=None, ge=1)
    block_size: int = Field(default=32, ge=1)
    jobs: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.loads or any(load <= 0 for load in self.loads):
            raise ValueError(f"loads must be positive, and one at least, not {self.loads}")
        if not self.sweep or any(budget < 1 for budget in self.sweep):
            raise ValueError(f"token budgets must be positive, and one at least, not {self.sweep}")
        if (self.record is None) != (self.cost is None):
            raise ValueError(
                "the error of the simulator needs both a record of grape bench (--record) and the "
                "cost of that machine (--cost)"
            )
        return self

    @classmethod
    def quick(cls) -> PaperSettings:
        """All parts of the table in little: too few programs to lean on."""
        return cls(
            programs=24, seeds=3, loads=(0.7, 1.2), sweep=(128, 512, 2048), ablated=("code",)
        )


def spelled(arm: str, budget: int) -> str:
    """An arm with this token budget written out, where it is to be tuned."""
    found = parse_arm(arm)
    if found.kind != TUNED or found.budget is not None:
        return arm
    return f"{arm}{',' if ':' in arm else ':'}{BUDGET}={budget}"
