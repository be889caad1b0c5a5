"""``grape paper``: the paper's table on the simulator.

Three stages, so that many simulations can run at a time. First every machine's and workload's
saturated rate: the best of vllm-opt's token budgets. Then its budget at every load, on seeds of
its own, by the rule of ``grape bench``. Then all arms, with the same programs in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.bench.arms import OURS, TUNED
from grape_lc.bench.batch import Batch, Kept, code_digest
from grape_lc.bench.paper_jobs import SATURATING, STEPS, TUNING_SEED, Saturated, Simulated
from grape_lc.bench.paper_options import (
    COMPARED,
    DRAFTING,
    SETTINGS,
    WITHOUT,
    PaperSettings,
    Setting,
    spelled,
)
from grape_lc.bench.paper_rows import Cell, Row, rows
from grape_lc.bench.simulate import Figures, Trial, choose, tuned
from grape_lc.bench.simulation_options import SimulationSettings


class Table(NamedTuple):
    """All that was simulated.

    saturated: programs a second, by setting and workload. trials: of each sweep, by setting,
    workload and load. rows: every comparison.
    """

    saturated: Mapping[tuple[str, str], float]
    trials: Mapping[tuple[str, str, float], tuple[Trial, ...]]
    rows: tuple[Row, ...]


class _Place(NamedTuple):
    setting: Setting
    workload: str


class _Point(NamedTuple):
    """Where arms are compared: load, programs a second, budget, copy rate."""

    place: _Place
    rho: float
    rate: float
    budget: int
    copy_rate: float | None = None

    def cell(self) -> Cell:
        return Cell(
            self.place.setting.name,
            self.place.workload,
            self.rho,
            self.rate,
            self.budget,
            self.copy_rate,
        )


class Paper:
    """One call of ``grape paper``; ``say`` is told what goes on.

    resume: a file that keeps finished simulations. Raises ConfigError if it is something else.
    """

    def __init__(
        self, settings: PaperSettings, say: Callable[[str], None], resume: Path | None = None
    ) -> None:
        self._settings = settings
        self._say = say
        self._kept = Kept(resume, code_digest())

    def run(self) -> Table:
        """The whole table."""
        settings = self._settings
        places = [
            _Place(SETTINGS[number], workload)
            for number in settings.settings
            for workload in settings.workloads
        ]
        with Batch(self._kept, self._planned(places), settings.jobs, self._say) as batch:
            saturated = self._saturate(batch, places)
            loads = {place: self._loads(place) for place in places}
            trials = self._sweep(batch, saturated, loads)
            compared = self._compare(batch, self._points(saturated, loads, trials))
        return Table(
            {(place.setting.name, place.workload): rate for place, rate in saturated.items()},
            {(p.setting.name, p.workload, rho): found for (p, rho), found in trials.items()},
            tuple(compared),
        )

    def _base(self, place: _Place, **changed: Any) -> SimulationSettings:
        setting = place.setting
        return SimulationSettings(
            workload=place.workload,
            hardware=setting.hardware,
            model=setting.model,
            tp=setting.tp,
            link=setting.link,
            programs=self._settings.programs,
            seeds=1,
            jobs=1,
            **changed,
        )

    def _loads(self, place: _Place) -> tuple[float, ...]:
        """Every load at which something is compared here."""
        settings = self._settings
        extra = {settings.drafting} if settings.copy_rates and self._drafts(place) else set()
        extra |= {settings.ablation} if self._ablates(place) else set()
        return tuple(sorted({*settings.loads, *extra}))

    def _ablates(self, place: _Place) -> bool:
        first = SETTINGS[self._settings.settings[0]]
        return place.setting == first and place.workload in self._settings.ablated

    def _drafts(self, place: _Place) -> bool:
        return place.workload in ("code", "summary")

    def _saturate(self, batch: Batch, places: Sequence[_Place]) -> dict[_Place, float]:
        budgets = self._settings.sweep
        jobs = [
            Saturated(self._base(place, arms=tuned(budget).name, first=TUNING_SEED))
            for place in places
            for budget in budgets
        ]
        found = iter(batch.results(jobs))
        saturated = {place: max(next(found) for _ in budgets) for place in places}
        for place, rate in saturated.items():
            self._say(
                f"{place.setting.name}, {place.workload}: {TUNED} saturates at {rate:.4g} "
                "programs/s"
            )
        return saturated

    def _sweep(
        self,
        batch: Batch,
        saturated: Mapping[_Place, float],
        loads: Mapping[_Place, Sequence[float]],
    ) -> dict[tuple[_Place, float], tuple[Trial, ...]]:
        budgets = self._settings.sweep
        points = [(place, rho) for place, found in loads.items() for rho in found]
        jobs = [
            Simulated(
                self._base(
                    place, arms=tuned(budget).name, first=TUNING_SEED, rate=rho * saturated[place]
                )
            )
            for place, rho in points
            for budget in budgets
        ]
        found = iter(batch.results(jobs))
        return {
            point: tuple(Trial(budget, saturated[point[0]], next(found)) for budget in budgets)
            for point in points
        }

    def _points(
        self,
        saturated: Mapping[_Place, float],
        loads: Mapping[_Place, Sequence[float]],
        trials: Mapping[tuple[_Place, float], tuple[Trial, ...]],
    ) -> list[tuple[_Point, tuple[str, ...]]]:
        """Where arms are compared, and which."""
        settings, points = self._settings, []
        for place, found in loads.items():
            for rho in found:
                budget = choose(trials[place, rho]).budget
                point = _Point(place, rho, rho * saturated[place], budget)
                arms = list(COMPARED) if rho in settings.loads else [TUNED, OURS]
                if rho == settings.ablation and self._ablates(place):
                    arms += WITHOUT
                points.append((point, tuple(arms)))
                if rho == settings.drafting and self._drafts(place):
                    points += [
                        (point._replace(copy_rate=rate), (TUNED, OURS, *DRAFTING))
                        for rate in settings.copy_rates
                    ]
        return points

    def _compare(
        self, batch: Batch, points: Sequence[tuple[_Point, tuple[str, ...]]]
    ) -> Iterable[Row]:
        jobs = [
            self._job(point, arm, seed)
            for point, arms in points
            for seed in range(self._settings.seeds)
            for arm in arms
        ]
        found = iter(batch.results(jobs))
        for point, arms in points:
            figures: dict[str, list[Figures]] = {arm: [] for arm in arms}
            for _ in range(self._settings.seeds):
                for arm in arms:
                    figures[arm].append(next(found))
            for arm, baseline in pairs(arms):
                if point.copy_rate is not None and arm == OURS:
                    continue  # it drafts nothing, and stands in the table already
                yield from rows(point.cell(), figures, arm, baseline)

    def _job(self, point: _Point, arm: str, seed: int) -> Simulated:
        drafts = point.copy_rate is not None and arm in DRAFTING
        changed = {"copy_rate": point.copy_rate} if drafts else {}
        return Simulated(
            self._base(
                point.place, arms=spelled(arm, point.budget), first=seed, rate=point.rate, **changed
            )
        )

    def _planned(self, places: Sequence[_Place]) -> float:
        """The weights of all jobs, as though every load had the first budget of the sweep."""
        settings, nothing = self._settings, dict.fromkeys(places, 1.0)
        loads = {place: self._loads(place) for place in places}
        first = (
            Trial(settings.sweep[0], 1.0, {"tokens_per_s": 1.0, "agentic_itl_ms": {"p99": 1}}),
        )
        trials = {(place, rho): first for place, found in loads.items() for rho in found}
        compared = sum(
            self._job(point, arm, 0).weight * settings.seeds
            for point, arms in self._points(nothing, loads, trials)
            for arm in arms
        )
        each = sum(
            STEPS[place.workload] * (SATURATING + settings.programs * len(found))
            for place, found in loads.items()
        )
        return compared + each * len(settings.sweep)


def pairs(arms: Sequence[str]) -> list[tuple[str, str]]:
    """Which arms are compared with which: ours with all, the others with the tuned one.

    A mechanism's own contribution is grape against grape without it.
    """
    found = []
    for arm in arms:
        if arm == TUNED:
            continue
        if arm in WITHOUT:
            found.append((OURS, arm))
        elif arm == f"{OURS}+draft":
            found += [(arm, TUNED), (arm, OURS), (arm, f"{TUNED}+draft")]
        else:
            found.append((arm, TUNED))
    if OURS in arms:
        found += [(OURS, arm) for arm in arms if arm in COMPARED and arm not in (OURS, TUNED)]
    return found
