"""``grape regimes``: where grape gains against the tuned vllm-opt, and where it does not.

Chains of calls at every point of the map, on the simulator: saturated rate, budget of the tuned
vllm-opt by the rule of ``grape bench`` (on a seed of its own), then both arms on the same programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from grape_lc.bench.arms import OURS, TUNED, parse_arm
from grape_lc.bench.batch import Batch, Kept, code_digest
from grape_lc.bench.intervals import Ratio
from grape_lc.bench.paper_jobs import SATURATING, TUNING_SEED
from grape_lc.bench.paper_rows import METRICS, Cell, Row
from grape_lc.bench.regimes_options import Kind, Point, RegimeSettings
from grape_lc.bench.simulate import Figures, Trial, arm_config, choose, tuned
from grape_lc.bench.simulation_options import SimulationSettings
from grape_lc.engine.simulator.arrivals import Renewal
from grape_lc.engine.simulator.hardware import machine
from grape_lc.engine.simulator.host import HostSettings
from grape_lc.engine.simulator.programs import Workload
from grape_lc.engine.simulator.simulation import saturated_rate, simulate

MAPPED = (
    "program_s.p50",
    "program_s.p95",
    "switch_gap_ms.mean",
    "agentic_itl_ms.p95",
    "tokens_per_s",
)
"""The metrics of the map."""

NEVER_WORSE = ("program_s.p95", "agentic_itl_ms.p95")
"""Those that may nowhere be more than ``MOST_WORSE`` times the baseline's."""

MOST_WORSE = 1.03

_OURS = 2.7  # measured: how much longer a step of our arm takes; for the time that is left


@dataclass(frozen=True)
class ChainJob:
    """One arm on chains of a kind.

    rate: programs a second; None: there is always work. load: the same relative to saturation.
    """

    kind: Kind
    arm: str
    hardware: str
    model: str
    rate: float | None
    load: float | None
    seed: int
    programs: int

    @property
    def key(self) -> str:
        """All its settings."""
        return repr(self)

    @property
    def weight(self) -> float:
        """By calls and their steps; at a light load a step has fewer of them."""
        steps = self.kind.depth * (20 + self.kind.output)
        alone = 1.0 if self.load is None else 1.0 + 0.2 / self.load
        return self.programs * steps * alone * (_OURS if self.arm == OURS else 1.0)

    def run(self) -> Figures | float:
        """Its figures; if saturated, the rate."""
        arm = arm_config(parse_arm(self.arm), SimulationSettings(arms=self.arm, jobs=1))
        gpu = machine(self.hardware, self.model)
        programs, host = Workload(self.kind.shape(), self.seed), HostSettings()
        if self.rate is None:
            return saturated_rate(arm, gpu, programs, count=self.programs, host=host)
        arrivals = Renewal(self.rate)
        found = simulate(arm, gpu, programs, arrivals, self.programs, seed=self.seed, host=host)
        return found.figures()


@dataclass(frozen=True)
class Regime:
    """What came out at a point: budget of the baseline, programs a second, figures by arm."""

    point: Point
    rate: float
    budget: int
    figures: Mapping[str, tuple[Figures, ...]]

    def rows(self) -> list[Row]:
        """Every metric of grape against the tuned vllm-opt."""
        kind = self.point.kind
        cell = Cell("", kind.shape().name, self.point.rho, self.rate, self.budget)
        return [
            Row(
                cell,
                OURS,
                TUNED,
                metric.name,
                tuple(metric.of(entry) for entry in self.figures[OURS]),
                tuple(metric.of(entry) for entry in self.figures[TUNED]),
            )
            for metric in METRICS
            if metric.name in MAPPED
        ]

    @cached_property
    def ratios(self) -> Mapping[str, Ratio | None]:
        """By metric; above 1 is a gain."""
        return {row.metric: row.ratio() for row in self.rows()}


class Violation(NamedTuple):
    """A point at which grape is worse than it may be."""

    point: Point
    metric: str
    ratio: Ratio


def violations(regimes: Sequence[Regime]) -> list[Violation]:
    """All of them, the worst first."""
    found = [
        Violation(regime.point, metric, ratio)
        for regime in regimes
        for metric, ratio in regime.ratios.items()
        if metric in NEVER_WORSE and ratio is not None and ratio.ratio < 1 / MOST_WORSE
    ]
    return sorted(found, key=lambda violation: (violation.ratio.ratio, violation.metric))


class Regimes:
    """One call of ``grape regimes``; ``say`` is told what goes on.

    resume: a file that keeps finished simulations. Raises ConfigError if it is something else.
    """

    def __init__(
        self, settings: RegimeSettings, say: Callable[[str], None], resume: Path | None = None
    ) -> None:
        self._settings = settings
        self._say = say
        self._kept = Kept(resume, code_digest())

    def run(self) -> list[Regime]:
        """All points of the map, in their order."""
        settings, points = self._settings, self._settings.points()
        kinds = list(dict.fromkeys(point.kind for point in points))
        saturating = [
            self._saturated(kind, tuned(budget).name) for kind in kinds for budget in settings.sweep
        ]
        planned = sum(job.weight for job in saturating) + sum(
            self._at(point, arm, 1.0, 0).weight * times
            for point in points
            for arm, times in (
                (TUNED, len(settings.sweep) + settings.seeds),
                (OURS, settings.seeds),
            )
        )
        with Batch(self._kept, planned, settings.jobs, self._say) as batch:
            found = iter(batch.results(saturating))
            rates = {kind: max(next(found) for _ in settings.sweep) for kind in kinds}
            self._say(f"{len(kinds)} kinds of programs: saturated rates are known")
            sweeps = iter(
                batch.results(
                    [
                        self._at(point, tuned(budget).name, rates[point.kind], TUNING_SEED)
                        for point in points
                        for budget in settings.sweep
                    ]
                )
            )
            budgets = {}
            for point in points:
                trials = [
                    Trial(budget, rates[point.kind], next(sweeps)) for budget in settings.sweep
                ]
                budgets[point] = choose(trials).budget
            self._say(f"{len(points)} points: {TUNED} is tuned")
            seeds = range(settings.seeds)
            compared = iter(
                batch.results(
                    [
                        self._at(point, arm, rates[point.kind], seed)
                        for point in points
                        for seed in seeds
                        for arm in (tuned(budgets[point]).name, OURS)
                    ]
                )
            )
            regimes = []
            for point in points:
                both = [(next(compared), next(compared)) for _ in seeds]
                base, ours = zip(*both, strict=True)
                rate = point.rho * rates[point.kind]
                regimes.append(Regime(point, rate, budgets[point], {TUNED: base, OURS: ours}))
        return regimes

    def _at(self, point: Point, arm: str, saturated: float, seed: int) -> ChainJob:
        """An arm at a point; ``saturated``: programs a second at a load of 1."""
        settings, rate = self._settings, point.rho * saturated
        count = point.programs(settings.programs)
        return ChainJob(
            point.kind, arm, settings.hardware, settings.model, rate, point.rho, seed, count
        )

    def _saturated(self, kind: Kind, arm: str) -> ChainJob:
        settings = self._settings
        return ChainJob(
            kind, arm, settings.hardware, settings.model, None, None, TUNING_SEED, SATURATING
        )
