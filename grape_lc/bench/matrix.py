"""The matrix of a comparison: a cell for each workload and each rate, and all arms in each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from grape_lc.bench.arms import Arm
from grape_lc.bench.compare import Comparison
from grape_lc.bench.probe import Probe
from grape_lc.bench.rates import Rate
from grape_lc.bench.server import ArmRun
from grape_lc.bench.sweep import Choice, Trial
from grape_lc.bench.tables import Gains


class Cell(NamedTuple):
    """A workload at a rate, as they were asked for; None is a closed loop."""

    workload: str
    asked: Rate | None

    def __str__(self) -> str:
        return self.workload if self.asked is None else f"{self.workload} at {self.asked}"


class Footing(NamedTuple):
    """What is known of a workload before it is compared.

    saturated_rate: programs a second that vllm-opt carries; None where it was not asked for.
    kv_blocks: of every engine; None is vLLM's default.
    probes: runs of all programs at once, the one with vLLM's default KV first.
    """

    saturated_rate: float | None
    kv_blocks: int | None
    probes: tuple[Probe, ...] = ()

    def rate(self, asked: Rate | None) -> float | None:
        """Programs a second; None in a closed loop."""
        if asked is None or not asked.relative:
            return None if asked is None else asked.value
        if self.saturated_rate is None:
            raise ValueError(f"{asked} of an unknown saturated rate")
        return asked.value * self.saturated_rate


class CellResult(NamedTuple):
    """A comparison, and what was found out before it.

    rate: programs a second; None in a closed loop. gains: against the base arm.
    arms: as they ran, what the sweep found included.
    trials, choice: of the sweep, if there was one.
    """

    cell: Cell
    footing: Footing
    rate: float | None
    arms: tuple[Arm, ...]
    comparison: Comparison
    gains: Gains
    trials: tuple[Trial, ...] = ()
    choice: Choice | None = None

    @property
    def load(self) -> float | None:
        """The share of the saturated rate that was asked for; None where a rate was."""
        asked = self.cell.asked
        return asked.value if asked is not None and asked.relative else None


class BenchResult(NamedTuple):
    """All cells, in the order asked for: workload by workload, and rate by rate in each."""

    cells: tuple[CellResult, ...]

    @property
    def failures(self) -> Mapping[Cell, tuple[ArmRun, ...]]:
        """Runs that failed, of cells in which some did."""
        return {
            each.cell: each.comparison.failures for each in self.cells if each.comparison.failures
        }
