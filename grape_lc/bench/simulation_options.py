"""What ``grape simulate`` simulates."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from grape_lc.bench.arms import BUDGET, TUNED, Arm, parse_arms, tuned_name
from grape_lc.bench.synthetic_shape import workload_shape
from grape_lc.engine.simulator.hardware import Machine, machine
from grape_lc.engine.simulator.programs import Shape
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost


class SimulationSettings(BaseModel):
    """A simulated comparison; checked when made. See ``docs/simulator.md`` for each of them.

    workload: a shape by its name, or ``synthetic:axis=value``. record, record_run: a recorded run
        in its place, and its place in the file.
    hardware, model, tp, link: the machine. cost: a fitted F in the place of its own.
    kv_blocks, block_size: the pool; None: what the machine has room for.
    rho: load, relative to the saturated rate of the tuned vllm-opt. rate: programs a second, in
        its place. closed: programs at a time, in the place of both. cv: of the arrivals.
    programs: of each seed. seeds: how many; first: the first of them.
    arms, base, sweep: as in ``grape bench``; the sweep tunes the arms of kind vllm-opt that name
        no budget, on seeds of its own.
    noise: spread of step times. hop_s: from a call's end to the next call's arrival. differ: share
        of calls whose prompt is not what was predicted. learned: the policy learns F.
    copy_rate: share of answers that is copied from their prompts, where an arm drafts.
    replicas: engines. jobs: simulations at a time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    workload: str = "code"
    record: Path | None = None
    record_run: int = Field(default=0, ge=0)
    hardware: str = "a100-40gb"
    model: str = "llama3-8b"
    tp: int = 1
    link: str | None = None
    cost: Path | None = None
    device: Literal["cpu", "gpu"] = "gpu"
    kv_blocks: int | None = Field(default=None, ge=1)
    block_size: int = Field(default=16, ge=1)
    rho: float = Field(default=0.85, gt=0)
    rate: float | None = Field(default=None, gt=0, le=1e6)
    closed: int | None = Field(default=None, ge=1)
    cv: float = Field(default=1.0, ge=0.01, le=100)
    programs: int = Field(default=300, ge=1)
    seeds: int = Field(default=3, ge=1)
    first: int = 0
    arms: str = "vllm,vllm-opt,grape"
    base: str | None = None
    sweep: tuple[int, ...] = (256, 512, 1024, 2048, 4096)
    noise: float = Field(default=0.0, ge=0, lt=1)
    hop_s: float = Field(default=0.010, ge=0, le=3600)
    copy_rate: float = Field(default=0.3, ge=0, le=1)
    differ: float = Field(default=0.0, ge=0, le=1)
    learned: bool = False
    replicas: int = Field(default=1, ge=1)
    jobs: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1)

    @model_validator(mode="after")
    def _check(self) -> SimulationSettings:
        try:
            self.shape()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.cost is not None and self.kv_blocks is None:
            raise ValueError("a fitted cost says nothing about memory: name kv_blocks too")
        if any(budget < 1 for budget in self.sweep):
            raise ValueError(f"token budgets of a sweep must be positive: {self.sweep}")
        names = [arm.name for arm in parse_arms(self.arms)]
        if self.base is not None and self.base not in names:
            raise ValueError(f"base {self.base!r} is none of the arms {', '.join(names)}")
        return self

    def shape(self) -> Shape:
        """What the programs are like."""
        return workload_shape(self.workload)

    def parsed_arms(self) -> tuple[Arm, ...]:
        """The arms, in the order of their columns."""
        return parse_arms(self.arms)

    def base_arm(self) -> str:
        """The arm that ratios are against."""
        if self.base is not None:
            return self.base
        arms = self.parsed_arms()
        return tuned_name(arms) or arms[0].name

    def tunes(self) -> bool:
        """Whether an arm needs the sweep."""
        return any(
            arm.kind == TUNED and arm.engine.get(BUDGET) is None for arm in self.parsed_arms()
        )

    def machine(self) -> Machine:
        """What a replica runs on. Raises ConfigError for unknown names and unreadable files."""
        if self.cost is None:
            found = machine(
                self.hardware, self.model, tp=self.tp, link=self.link, block_size=self.block_size
            )
            return found._replace(blocks=self.kv_blocks or found.blocks)
        assert self.kv_blocks is not None, "checked above"
        return Machine(read_cost(self.cost), self.kv_blocks, self.block_size)

    def describe(self) -> str:
        """One line on what is about to be simulated."""
        what = f"{self.programs} programs of {self.workload}"
        if self.record is not None:
            what = f"the programs of {self.record}"
        where = (
            f"the cost of {self.cost}"
            if self.cost is not None
            else f"{self.model} on {self.tp} x {self.hardware}"
        )
        many = f", {self.replicas} replicas" if self.replicas > 1 else ""
        last = self.first + self.seeds - 1
        return f"{what}, seeds {self.first} to {last}; {where}{many}; arms {self.arms}"


def read_cost(path: Path) -> LinearCost:
    """F from the file that ``grape profile --json`` wrote. Raises ConfigError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return LinearCost.from_mapping(document["coefficients"])
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} holds no fitted cost: {error!r:.300}") from error
