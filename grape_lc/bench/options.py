"""What ``grape bench`` runs, and what its engines are told for it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from grape_lc.bench.arms import TUNED, Arm, parse_arms, tuned_name
from grape_lc.bench.arrivals import Pattern, parse_arrivals
from grape_lc.bench.examples import parse_workloads
from grape_lc.bench.rates import Rate, parse_rates
from grape_lc.bench.slo import Slo, parse_slo
from grape_lc.engine.device_peaks import MEASURE_PEAK
from grape_lc.errors import ConfigError

_GPU_SHARE = 0.84

DEFAULT_RATES = "0.85x"
"""Of an open pattern."""

QUICK: Mapping[str, Any] = {
    "arms": "vllm-opt,grape",
    "programs": 2,
    "repeats": 2,
    "max_tokens": 16,
}
"""Settings of ``--quick``: all workloads within six minutes on two quiet cores."""


class BenchSettings(BaseModel):
    """What a comparison runs; checked when made. See ``docs/bench.md`` for each of them.

    workloads: as ``examples.parse_workloads`` reads them.
    arms: as ``arms.parse_arms`` reads them. base: the arm that ratios are against; None is the
        tuned one where it takes part, else the first.
    rates: as ``rates.parse_rates`` reads them; every workload runs at each of them. None is
        ``0.85x``, and no rate at all in a closed loop.
    arrivals: as ``arrivals.parse_arrivals`` reads them; a closed loop has no rate.
    tenants: programs are dealt to so many tenants, in turn.
    lengths: ``eos``, answers end where the model ends them; ``fixed``, each has ``max_tokens``.
    sweep: token budgets to try in each cell, ``default`` for vLLM's own.
    kv_blocks: KV blocks of every engine; kv_share: the same, as a share of what all programs
        would hold at once. None of both: vLLM's default.
    seed: of the first repeat; each further one has the next.
    slo: targets that programs are judged by, as ``slo.parse_slo`` reads them.
    quality: also judge the answers; programs that the model writes are run for that.
    limit_s: seconds after its last arrival at which a run is given up.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    workloads: str = "code,summary,search"
    arms: str = "vllm,vllm-opt,grape"
    base: str | None = None
    rates: str | None = None
    programs: int = Field(default=8, ge=1)
    arrivals: str = "poisson"
    tenants: int = Field(default=1, ge=1)
    repeats: int = Field(default=5, ge=1)
    max_tokens: int = Field(default=64, ge=1)
    lengths: Literal["eos", "fixed"] = "eos"
    sweep: tuple[int | Literal["default"], ...] = ()
    sweep_repeats: int = Field(default=1, ge=1)
    kv_blocks: int | None = Field(default=None, ge=2)
    kv_share: float | None = Field(default=None, gt=0)
    seed: int = 0
    dtype: str | None = None
    model: str | None = None
    data: Path | None = None
    slo: str = ""
    quality: bool = False
    limit_s: float = Field(default=900.0, gt=0)

    @model_validator(mode="after")
    def _check(self) -> BenchSettings:
        self.targets()
        self.parsed_workloads()
        if self.pattern.in_flight is not None and self.rates is not None:
            raise ValueError(f"a closed loop has no rate: {self.arrivals} and rates {self.rates}")
        self.parsed_rates()
        if self.kv_blocks is not None and self.kv_share is not None:
            raise ValueError("kv_blocks and kv_share exclude each other")
        if any(budget != "default" and budget < 1 for budget in self.sweep):
            raise ValueError(f"token budgets of a sweep must be positive: {self.sweep}")
        if len(set(self.sweep)) < len(self.sweep):
            raise ValueError(f"a token budget stands twice in the sweep {self.sweep}")
        names = [arm.name for arm in parse_arms(self.arms)]
        if self.base is not None and self.base not in names:
            raise ValueError(f"base {self.base!r} is none of the arms {', '.join(names)}")
        if self.sweep and not any(arm.kind == TUNED for arm in self.parsed_arms()):
            raise ValueError(f"a sweep tunes {TUNED}, which is none of the arms {self.arms!r}")
        return self

    def targets(self) -> Slo:
        """What programs are judged by. Raises ConfigError."""
        return parse_slo(self.slo)

    @cached_property
    def pattern(self) -> Pattern:
        """When programs arrive; a trace is read once. Raises ConfigError."""
        return parse_arrivals(self.arrivals)

    def parsed_workloads(self) -> tuple[str, ...]:
        """The workloads, in their order. Raises ConfigError."""
        return parse_workloads(self.workloads)

    def parsed_rates(self) -> tuple[Rate | None, ...]:
        """The rates, in their order; of a closed loop only None. Raises ConfigError."""
        if self.pattern.in_flight is not None:
            return (None,)
        return parse_rates(DEFAULT_RATES if self.rates is None else self.rates)

    def parsed_arms(self) -> tuple[Arm, ...]:
        """The arms, in the order of their columns."""
        return parse_arms(self.arms)

    def base_arm(self) -> str:
        """The arm that ratios are against."""
        if self.base is not None:
            return self.base
        arms = self.parsed_arms()
        return tuned_name(arms) or arms[0].name

    def seeds(self, repeats: int) -> range:
        """The seed of each repeat, of problems and arrival times alike."""
        return range(self.seed, self.seed + repeats)

    def engine_args(self, device: str, kv_blocks: int | None, engines: int) -> dict[str, Any]:
        """Engine arguments that all arms share, on ``cpu`` or ``gpu``.

        engines: how many are open at a time, and share the memory of a GPU.
        """
        args: dict[str, Any] = {"dtype": self.dtype or ("float32" if device == "cpu" else "auto")}
        if device == "cpu":
            args["additional_config"] = {MEASURE_PEAK: True}
        if device == "gpu":
            args["gpu_memory_utilization"] = _GPU_SHARE / engines
        if kv_blocks is not None:
            # vLLM refuses to start with less KV than its longest request may need, unless told
            # to shorten that one (-1).
            args |= {"num_gpu_blocks_override": kv_blocks, "max_model_len": -1}
        return args


def parse_sweep(text: str) -> tuple[int | Literal["default"], ...]:
    """Token budgets from a list like ``64,128,default``. Raises ConfigError."""
    budgets: list[int | Literal["default"]] = []
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        if piece == "default":
            budgets.append("default")
        elif piece.isdecimal():
            budgets.append(int(piece))
        else:
            raise ConfigError(f"{piece!r} is no token budget; write numbers and 'default'")
    return tuple(budgets)
