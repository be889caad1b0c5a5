"""Which runs a comparison consists of, before any is made: for their number and the time left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grape_lc.bench.arms import TUNED, Arm, parse_arm
from grape_lc.bench.engine_pool import MOST_ENGINES, engine_key
from grape_lc.bench.matrix import Cell
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.run_log import RunLog
from grape_lc.bench.sweep import order_arms, sweep_arm
from grape_lc.bench.time_left import Kind, Planned
from grape_lc.bench.turns import turns_of

SATURATION = "saturation"
"""The pace of closed-loop runs of all programs."""


class Plan(NamedTuple):
    """The runs to be made, in their order, and how many are taken from a file."""

    runs: tuple[Planned, ...]
    taken: int


def cells_of(settings: BenchSettings) -> tuple[Cell, ...]:
    """All cells, workload by workload."""
    return tuple(
        Cell(workload, rate)
        for workload in settings.parsed_workloads()
        for rate in settings.parsed_rates()
    )


def pace_of(cell: Cell) -> str:
    """Runs of a workload at one pace take about as long."""
    return str(cell.asked)


def sweep_part(cell: Cell) -> str:
    """What its runs are kept under."""
    return f"sweep of {cell}"


def order_part(cell: Cell) -> str:
    """What its runs in another order of calls are kept under."""
    return f"orders of {cell}"


def needs_saturation(settings: BenchSettings) -> bool:
    """Whether a rate is a share of the saturated one."""
    return any(rate is not None and rate.relative for rate in settings.parsed_rates())


def engines_open(settings: BenchSettings) -> int:
    """How many engines are open at a time: no more than there are different ones."""
    if settings.kv_share is not None:
        return MOST_ENGINES  # every workload has another KV, and so other engines
    arms = [*settings.parsed_arms(), *map(sweep_arm, settings.sweep)]
    if needs_saturation(settings):
        arms.append(parse_arm(TUNED))
    return min(len({engine_key(arm, {}) for arm in arms}), MOST_ENGINES)


def plan_runs(settings: BenchSettings, log: RunLog, shared: Mapping[str, Any]) -> Plan:
    """The plan. Budgets that a sweep is going to choose are taken to be vLLM's default.

    shared: engine arguments of all arms.
    """
    found = _Found(settings, log, shared)
    cells = cells_of(settings)
    for workload in settings.parsed_workloads():
        if settings.kv_share is not None:
            found.probe(workload, None)
        if needs_saturation(settings):
            found.probe(workload, settings.kv_blocks)
    if settings.sweep:
        trials = [sweep_arm(budget) for budget in settings.sweep]
        for cell in cells:
            found.part(cell, sweep_part(cell), trials, settings.sweep_repeats)
            found.part(cell, order_part(cell), order_arms(None), settings.sweep_repeats)
    for cell in cells:
        found.part(cell, str(cell), settings.parsed_arms(), settings.repeats)
    return Plan(tuple(found.missing), found.taken)


class _Found:
    def __init__(self, settings: BenchSettings, log: RunLog, shared: Mapping[str, Any]) -> None:
        self.missing: list[Planned] = []
        self.taken = 0
        self._shares = settings.kv_share is not None
        self._most = engines_open(settings)
        self._log = log
        self._shared = shared

    def probe(self, workload: str, kv_blocks: int | None) -> None:
        if self._log.probe(workload, kv_blocks) is not None:
            self.taken += 1
        else:
            kind = workload, SATURATION
            self.missing.append(Planned(kind, self._engine(workload, parse_arm(TUNED))))

    def part(self, cell: Cell, name: str, arms: Sequence[Arm], repeats: int) -> None:
        log = self._log.part(name)
        kind: Kind = (cell.workload, pace_of(cell))
        engines = {arm.name: self._engine(cell.workload, arm) for arm in arms}
        for repeat, order in turns_of(engines, repeats, self._most).items():
            for arm in order:
                if log.has(arm, repeat):
                    self.taken += 1
                else:
                    self.missing.append(Planned(kind, engines[arm]))

    def _engine(self, workload: str, arm: Arm) -> str:
        key = engine_key(arm, self._shared)
        return f"{workload} {key}" if self._shares else key
