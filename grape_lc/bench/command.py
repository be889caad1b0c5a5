"""``grape bench``: probes, sweeps and comparisons, over all workloads and rates."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from grape_lc.bench.arms import Arm, with_tuning
from grape_lc.bench.engine_pool import EngineOf, EnginePool
from grape_lc.bench.footing import footing_of
from grape_lc.bench.matrix import BenchResult, Cell, CellResult, Footing
from grape_lc.bench.matrix_progress import MatrixProgress
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.plan import cells_of, engines_open, order_part, plan_runs, sweep_part
from grape_lc.bench.run_log import RunLog, head_of
from grape_lc.bench.server import BenchEngine
from grape_lc.bench.settings import installed_versions
from grape_lc.bench.sweep import Choice, Trial, choose, order_arms, sweep_arm, sweep_table
from grape_lc.bench.tables import gains_against
from grape_lc.bench.workbench import Programs, Workbench


def real_engine(settings: BenchSettings, console: Console) -> EngineOf:
    """Makes real engines, which say on ``console`` when they start and when they serve."""
    from grape_lc.runtime.client import GrapeEngine

    def make(arm: Arm, shared: dict[str, Any]) -> BenchEngine:
        begin = time.monotonic()
        console.print(f"starting the {arm.name} engine", highlight=False, markup=False)

        def progress(text: str) -> None:
            # Lines that overwrite themselves would fight with the live table of the runs.
            if text == "ready":
                line = f"the {arm.name} engine serves after {time.monotonic() - begin:.0f} s"
                console.print(line, highlight=False, markup=False)

        args = {**shared, **arm.engine_args()}
        return GrapeEngine(settings.model, scheduler=arm.scheduler, progress=progress, **args)

    return make


class Bench:
    """One call of ``grape bench``.

    device: ``cpu`` or ``gpu``. resume: file that what was measured is taken from and added to.
    """

    def __init__(
        self,
        settings: BenchSettings,
        console: Console,
        engine_of: EngineOf,
        device: str,
        resume: Path | None = None,
    ) -> None:
        self._settings = settings
        self._console = console
        self._engine_of = engine_of
        self._device = device
        self._resume = resume

    def run(self) -> BenchResult:
        """Everything that the settings ask for; prints as it goes. All engines are ended.

        Raises ConfigError (inputs, engine arguments, a file of another comparison), and
        EngineError when a probe fails twice or all of a sweep does.
        """
        settings, log = self._settings, self._log
        programs = Programs(settings)
        most = engines_open(settings)
        plan = plan_runs(
            settings, log, settings.engine_args(self._device, settings.kv_blocks, most)
        )
        if plan.taken:
            self._console.print(
                f"{plan.taken} runs are taken from {self._resume}", highlight=False, markup=False
            )
        with (
            EnginePool(self._engine_of, most) as pool,
            MatrixProgress(self._console, plan.runs, plan.taken, pool) as progress,
        ):
            bench = Workbench(settings, self._device, programs, pool, log, progress, self._console)
            return _measured(bench)

    @cached_property
    def _log(self) -> RunLog:
        settings = self._settings.model_dump(mode="json")
        return RunLog(self._resume, head_of(settings, self._device, installed_versions()))


def _measured(bench: Workbench) -> BenchResult:
    """What all workloads need to know first, then every sweep, then every comparison.

    So each budget of a sweep is started as seldom as may be.
    """
    cells = cells_of(bench.settings)
    workloads = bench.settings.parsed_workloads()
    footings = {workload: footing_of(bench, workload) for workload in workloads}
    sweeps = {cell: _sweep(bench, cell, footings[cell.workload]) for cell in cells}
    return BenchResult(
        tuple(_compare(bench, cell, footings[cell.workload], *sweeps[cell]) for cell in cells)
    )


def _sweep(
    bench: Workbench, cell: Cell, footing: Footing
) -> tuple[tuple[Trial, ...], Choice | None]:
    settings = bench.settings
    if not settings.sweep:
        return (), None
    programs = bench.programs.drawn(cell.workload, footing.rate(cell.asked), settings.sweep_repeats)

    def tried(part: str, arms: Sequence[Arm]) -> tuple[Trial, ...]:
        found = bench.compare(part, cell, arms, programs, footing.kv_blocks)
        return tuple(Trial(a.budget, found.metrics(a.name), a.tuning.order) for a in arms)

    trials = tried(sweep_part(cell), [sweep_arm(budget) for budget in settings.sweep])
    trials += tried(order_part(cell), order_arms(choose(trials).best.budget))
    choice = choose(trials)
    table = sweep_table(trials, choice)
    table.title = f"{cell}: {table.title}"
    bench.show(table)
    bench.say(f"{cell}: {choice}")
    return trials, choice


def _compare(
    bench: Workbench,
    cell: Cell,
    footing: Footing,
    trials: tuple[Trial, ...],
    choice: Choice | None,
) -> CellResult:
    settings, rate = bench.settings, footing.rate(cell.asked)
    arms = settings.parsed_arms()
    if choice is not None:
        arms = with_tuning(arms, choice.tuning)
    programs = bench.programs.drawn(cell.workload, rate, settings.repeats)
    comparison = bench.compare(str(cell), cell, arms, programs, footing.kv_blocks)
    gains = gains_against(comparison, settings.base_arm())
    return CellResult(cell, footing, rate, arms, comparison, gains, trials, choice)
