"""The simulations that the paper's table is made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from grape_lc.bench.arms import OURS, parse_arm
from grape_lc.bench.simulate import Figures, Simulation, arm_config
from grape_lc.bench.simulation_options import SimulationSettings
from grape_lc.engine.simulator.host import HostSettings
from grape_lc.engine.simulator.programs import Workload
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.engine.simulator.simulation import saturated_rate

TUNING_SEED = 1_000_000
"""What tunes a baseline is not what judges it."""

SATURATING = 320
"""Programs of a saturated run, as ``saturated_rate`` has them."""

STEPS = {"code": 5.0, "summary": 7.5, "search": 1.6}
_OURS = 2.7
"""Measured: a workload's time per program, and how much longer a step of our arms takes. Only the
time that is left is told by them."""


@dataclass(frozen=True)
class Simulated:
    """One arm on one seed."""

    settings: SimulationSettings

    @cached_property
    def key(self) -> str:
        """All settings but how many run at a time."""
        return self.settings.model_dump_json(exclude={"jobs"})

    @property
    def weight(self) -> float:
        """By programs, workload and arm."""
        ours = parse_arm(self.settings.arms).scheduler == OURS
        return self.settings.programs * STEPS[self.settings.workload] * (_OURS if ours else 1.0)

    def run(self) -> Figures:
        """The figures of its arm."""
        found = Simulation(self.settings, _silent).run().figures
        return found[self.settings.arms][0]


@dataclass(frozen=True)
class Saturated:
    """Programs a second of one arm that always has work."""

    settings: SimulationSettings

    @cached_property
    def key(self) -> str:
        """As of a simulation."""
        return "saturated " + self.settings.model_dump_json(exclude={"jobs"})

    @property
    def weight(self) -> float:
        """As of a simulation of its programs."""
        return SATURATING * STEPS[self.settings.workload]

    def run(self) -> float:
        """The rate."""
        settings = self.settings
        return saturated_rate(
            arm_config(parse_arm(settings.arms), settings),
            settings.machine(),
            Workload(SHAPES[settings.workload], settings.first),
            count=SATURATING,
            host=HostSettings(hop_s=settings.hop_s),
        )


def _silent(text: str) -> None:
    """Single simulations of many say nothing."""
