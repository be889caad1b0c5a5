"""``grape bench``: probe, sweep and comparison, one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from grape_lc.bench.arms import TUNED, Arm, parse_arm, with_budget
from grape_lc.bench.compare import Comparison, Workloads, run_comparison
from grape_lc.bench.examples import Example, load_example
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.probe import Probe, run_probe
from grape_lc.bench.run_log import RunLog, head_of
from grape_lc.bench.server import ArmServer, BenchEngine
from grape_lc.bench.settings import installed_versions
from grape_lc.bench.sweep import Choice, Trial, choose, sweep_arm, sweep_table
from grape_lc.bench.tables import Gains, gains_against
from grape_lc.bench.workload import dealt

EngineOf = Callable[[Arm, dict[str, Any]], BenchEngine]
"""Makes the engine of an arm, given the engine arguments that all arms share."""


class BenchResult(NamedTuple):
    """A comparison, and what was found out before it.

    gains: against the base arm. arms: as they ran, the budget of the sweep included.
    rate: arrivals a second; None in a closed loop. kv_blocks: None is vLLM's default. probes: runs
    of all programs at once, the one with vLLM's default first. trials, choice: of the sweep, if
    there was one.
    """

    comparison: Comparison
    gains: Gains
    arms: tuple[Arm, ...]
    rate: float | None
    kv_blocks: int | None
    probes: tuple[Probe, ...] = ()
    trials: tuple[Trial, ...] = ()
    choice: Choice | None = None


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
        """Everything that the settings ask for; prints as it goes.

        Raises ConfigError (inputs, engine arguments, a file of another comparison), and
        EngineError when a probe fails or all of a sweep does.
        """
        settings = self._settings
        if self._log.runs:
            self._say(f"{self._log.runs} runs are taken from {self._resume}")
        # Before any engine starts: are there inputs enough?
        self._workloads(None, max(settings.repeats, settings.sweep_repeats))
        rate, kv_blocks, probes = self._prepare()
        arms = settings.parsed_arms()
        trials: tuple[Trial, ...] = ()
        choice = None
        if settings.sweep:
            trials, choice = self._sweep(rate, kv_blocks)
            arms = with_budget(arms, choice.best.budget)
        self._say(f"comparing {', '.join(arm.name for arm in arms)}")
        comparison = self._compare(
            "comparison", arms, self._workloads(rate, settings.repeats), kv_blocks
        )
        gains = gains_against(comparison, settings.base_arm())
        return BenchResult(comparison, gains, arms, rate, kv_blocks, probes, trials, choice)

    @cached_property
    def _example(self) -> Example:
        example = load_example(self._settings.workflow, self._settings.data)
        return example if self._settings.quality else example._replace(scorer=None)

    @cached_property
    def _log(self) -> RunLog:
        settings = self._settings.model_dump(mode="json")
        return RunLog(self._resume, head_of(settings, self._device, installed_versions()))

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def _workloads(self, rate: float | None, repeats: int) -> Workloads:
        """The programs of each repeat; without a rate where their times do not matter."""
        settings = self._settings
        return [
            dealt(
                settings.pattern.schedule(
                    self._example.draw(settings.programs, seed), rate or 1.0, seed
                ),
                settings.tenants,
            )
            for seed in settings.seeds(repeats)
        ]

    def _prepare(self) -> tuple[float | None, int | None, tuple[Probe, ...]]:
        """Arrival rate and KV blocks, from closed-loop runs where they are not given."""
        settings, probes = self._settings, []
        kv_blocks = settings.kv_blocks
        if settings.kv_share is not None:
            probes.append(self._probe(None))
            kv_blocks = probes[0].kv_blocks(settings.kv_share)
            mean = sum(probes[0].largest) / len(probes[0].largest)
            self._say(
                f"KV: {kv_blocks} blocks of {probes[0].block_size} tokens, {settings.kv_share:g} "
                f"of {settings.programs} programs whose largest calls hold {mean:.0f} tokens each "
                "on the average"
            )
        if settings.pattern.in_flight is not None:
            return None, kv_blocks, tuple(probes)
        if settings.rate != "auto":
            return settings.rate, kv_blocks, tuple(probes)
        if kv_blocks is not None or not probes:
            probes.append(self._probe(kv_blocks))
        saturated = probes[-1].saturated_rate
        rate = settings.load * saturated
        self._say(
            f"rate: {rate:.4f} programs/s, {settings.load:g} of {saturated:.4f}, at which {TUNED} "
            f"saturates: {probes[-1].tokens_per_s:.1f} tokens/s with all {settings.programs} "
            f"programs at once, {probes[-1].program_tokens:.0f} tokens a program"
        )
        return rate, kv_blocks, tuple(probes)

    def _probe(self, kv_blocks: int | None) -> Probe:
        found = self._log.probe(kv_blocks)
        if found is not None:
            return found
        memory = "" if kv_blocks is None else f", {kv_blocks} KV blocks"
        self._say(f"closed loop: {self._settings.programs} programs at once on {TUNED}{memory}")
        server = self._server(parse_arm(TUNED), kv_blocks, 1, in_flight=None)
        probe = run_probe(server, self._workloads(None, 1)[0])
        self._log.add_probe(kv_blocks, probe)
        return probe

    def _sweep(self, rate: float | None, kv_blocks: int | None) -> tuple[tuple[Trial, ...], Choice]:
        settings = self._settings
        self._say(f"sweep: {TUNED} at {', '.join(map(str, settings.sweep))} tokens a step")
        arms = [sweep_arm(budget) for budget in settings.sweep]
        comparison = self._compare(
            "sweep", arms, self._workloads(rate, settings.sweep_repeats), kv_blocks
        )
        trials = tuple(Trial(arm.budget, comparison.metrics(arm.name)) for arm in arms)
        choice = choose(trials)
        self._console.print(sweep_table(trials, choice))
        self._say(str(choice))
        return trials, choice

    def _compare(
        self, part: str, arms: Sequence[Arm], workloads: Workloads, kv_blocks: int | None
    ) -> Comparison:
        settings = self._settings
        return run_comparison(
            arms,
            workloads,
            self._console,
            lambda arm: self._server(
                arm, kv_blocks, len(arms), in_flight=settings.pattern.in_flight
            ),
            settings.targets(),
            self._log.part(part),
        )

    def _server(
        self, arm: Arm, kv_blocks: int | None, arms: int, *, in_flight: int | None
    ) -> ArmServer:
        settings = self._settings
        shared = settings.engine_args(self._device, kv_blocks, arms)
        return ArmServer(
            arm,
            self._example,
            settings.max_tokens,
            lambda arm: self._engine_of(arm, shared),
            settings.limit_s,
            in_flight,
        )
