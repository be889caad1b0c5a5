"""``grape simulate``: the arms of a comparison on the simulator.

First the load: programs a second that vllm-opt ends when there is always work, at the best of the
swept token budgets. Then its budget: the sweep runs at the load of the comparison, on other
seeds, and the budget is taken that ``grape bench`` would take. Then every arm runs every seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.bench.arms import BUDGET, OURS, TUNED, Arm, Tuning, parse_arm, with_tuning
from grape_lc.bench.simulation_options import SimulationSettings
from grape_lc.bench.sweep import KEPT_SPEED
from grape_lc.bench.workers import end_with_parent
from grape_lc.engine.simulator.arrivals import Arrivals, Closed, Renewal
from grape_lc.engine.simulator.drafting import Drafting
from grape_lc.engine.simulator.hardware import Machine
from grape_lc.engine.simulator.host import HostSettings
from grape_lc.engine.simulator.layout import history_first
from grape_lc.engine.simulator.programs import Workload
from grape_lc.engine.simulator.recorded import Recorded, from_record
from grape_lc.engine.simulator.settings import EngineSettings, fitting
from grape_lc.engine.simulator.simulation import ArmConfig, saturated_rate, simulate
from grape_lc.engine.vllm_settings import DriverSettings
from grape_lc.errors import ConfigError
from grape_lc.scheduler.record import StepRecord, header
from grape_lc.scheduler.settings import PLAIN, PolicyConfig

Figures = dict[str, Any]
"""As ``Statistics.figures`` gives them."""

_STOCK_BUDGET = 2048
_DRAFTING = "speculative_config"
_RELEASE_S = 0.001  # where no client has to make the next call; an assumption
_SWEEP_SEEDS = 1_000_000  # added to a seed: what tunes a baseline is not what judges it


class Trial(NamedTuple):
    """A token budget of vllm-opt: its saturated rate, and its figures at the load."""

    budget: int
    saturated_rate: float
    figures: Figures | None = None


class Result(NamedTuple):
    """A simulated comparison.

    rate: programs a second; None for a closed loop or a record. trials: of the sweep. arms: as
    they ran. figures: of each arm, one entry a seed.
    """

    rate: float | None
    trials: tuple[Trial, ...]
    arms: tuple[Arm, ...]
    figures: dict[str, list[Figures]]


class _Job(NamedTuple):
    """One simulation; travels to another process."""

    settings: SimulationSettings
    arm: Arm
    rate: float | None
    seed: int

    def run(self, record: Callable[[int, StepRecord], None] | None = None) -> Figures:
        settings, machine = self.settings, self.settings.machine()
        arrivals: Arrivals
        if settings.record is not None:
            recorded = from_record(settings.record, run=settings.record_run)
            arrivals, count = recorded.arrivals, len(recorded.programs)
            return _simulate(self, machine, recorded, arrivals, count, record)
        shape = settings.shape()
        if settings.closed is not None:
            arrivals = Closed(settings.closed)
        else:
            assert self.rate is not None, "an open workload has a rate"
            arrivals = Renewal(self.rate, settings.cv)
        if self.arm.layout:
            shape = history_first(shape)
        work = Workload(shape, self.seed, differ=settings.differ)
        return _simulate(self, machine, work, arrivals, settings.programs, record)


def _simulate(
    job: _Job,
    machine: Machine,
    programs: Workload | Recorded,
    arrivals: Arrivals,
    count: int,
    record: Callable[[int, StepRecord], None] | None,
) -> Figures:
    settings = job.settings
    return simulate(
        arm_config(job.arm, settings),
        machine,
        programs,
        arrivals,
        count,
        seed=job.seed,
        replicas=settings.replicas,
        host=HostSettings(hop_s=hop_s(job.arm, settings)),
        record=record,
        heads=programs.heads() if job.arm.warmed else (),
    ).figures(machine.rating, replicas=settings.replicas, block_size=machine.block_size)


def _run(job: _Job) -> Figures:
    return job.run()


def _saturate(job: _Job) -> float:
    settings = job.settings
    return saturated_rate(
        arm_config(job.arm, settings),
        settings.machine(),
        Workload(settings.shape(), job.seed),
        replicas=settings.replicas,
        host=HostSettings(hop_s=settings.hop_s),
    )


def hop_s(arm: Arm, settings: SimulationSettings) -> float:
    """Seconds from a call's end to the next call's arrival, whoever makes it."""
    return min(_RELEASE_S, settings.hop_s) if arm.released else settings.hop_s


def arm_config(arm: Arm, settings: SimulationSettings) -> ArmConfig:
    """An arm as the simulator takes it. Raises ConfigError for what is not simulated."""
    simulated = {BUDGET, _DRAFTING, "max_num_seqs", "scheduling_policy", "enable_prefix_caching"}
    other = sorted(set(arm.engine) - simulated)
    if arm.layout and settings.record is not None:
        raise ConfigError(f"arm {arm.name!r}: a recorded run has prompts of one order only")
    if arm.tuning.order != "stage":
        raise ConfigError(f"arm {arm.name!r}: the simulator ranks calls by their stage first")
    if other or arm.engine.get("enable_prefix_caching") is False:
        raise ConfigError(f"arm {arm.name!r}: the simulator has prefix caching and no {other}")
    if arm.scheduler == OURS:
        given = {"grape": dict(arm.grape)}
        config = DriverSettings.read(given, on_cpu=settings.device == "cpu").policy
    else:
        config = PolicyConfig.from_mapping(PLAIN)
    engine = EngineSettings(
        max_tokens=arm.budget or _STOCK_BUDGET,
        rows=arm.engine.get("max_num_seqs") or 256,
        by_priority=arm.ranked,
        noise=settings.noise,
        drafting=_drafting(arm, settings),
    )
    return ArmConfig(arm.name, config, engine, ahead=arm.attached, learned=settings.learned)


def _drafting(arm: Arm, settings: SimulationSettings) -> Drafting | None:
    config = arm.engine.get(_DRAFTING)
    if config is None:
        return None
    return Drafting(
        config["num_speculative_tokens"], config["prompt_lookup_min"], settings.copy_rate
    )


Workers = Callable[[Callable[[_Job], Any], Iterable[_Job]], Iterator[Any]]
"""Runs a function on every job, and gives the results in the order of the jobs."""


@contextmanager
def _workers(count: int) -> Iterator[Workers]:
    """``count`` jobs at a time, each in a process of its own; in this one if it is 1."""
    if count == 1:
        yield map
        return
    spawn = get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=spawn, initializer=end_with_parent) as pool:
        try:
            yield pool.map
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class Simulation:
    """One call of ``grape simulate``; ``say`` is told what goes on."""

    def __init__(self, settings: SimulationSettings, say: Callable[[str], None]) -> None:
        self._settings = settings
        self._say = say

    def run(self) -> Result:
        """Everything that the settings ask for."""
        settings = self._settings
        arms = settings.parsed_arms()
        for arm in arms:
            arm_config(arm, settings)
        with _workers(settings.jobs) as workers:
            rate, trials = self._load(workers)
            if settings.tunes():
                trials = self._sweep(workers, rate, trials)
                best = choose(trials)
                arms = with_tuning(arms, Tuning(best.budget))
                self._say(f"{TUNED}: {best.budget} tokens a step, by the rule of grape bench")
            seeds = range(settings.first, settings.first + settings.seeds)
            jobs = [_Job(settings, arm, rate, seed) for seed in seeds for arm in arms]
            figures: dict[str, list[Figures]] = {arm.name: [] for arm in arms}
            for job, found in zip(jobs, workers(_run, jobs), strict=True):
                figures[job.arm.name].append(found)
                self._say(f"seed {job.seed} {job.arm.name}: {found['steps']} steps")
        return Result(rate, trials, arms, figures)

    def _load(self, workers: Workers) -> tuple[float | None, tuple[Trial, ...]]:
        """Programs a second, and what was found on the way."""
        settings = self._settings
        if settings.record is not None or settings.closed is not None:
            return None, ()
        if settings.rate is not None:
            return settings.rate, ()
        budgets = settings.sweep or (_STOCK_BUDGET,)
        seed = settings.first + _SWEEP_SEEDS
        jobs = [_Job(settings, tuned(budget), None, seed) for budget in budgets]
        trials = tuple(
            Trial(budget, found)
            for budget, found in zip(budgets, workers(_saturate, jobs), strict=True)
        )
        best = max(trials, key=lambda trial: trial.saturated_rate)
        rate = settings.rho * best.saturated_rate
        self._say(
            f"rate: {rate:.4g} programs/s, {settings.rho:g} of {best.saturated_rate:.4g}, at which "
            f"{TUNED} with {best.budget} tokens a step saturates"
        )
        return rate, trials

    def _sweep(
        self, workers: Workers, rate: float | None, trials: Sequence[Trial]
    ) -> tuple[Trial, ...]:
        """Figures of vllm-opt at every budget, at the load of the comparison."""
        settings = self._settings
        budgets = settings.sweep or (_STOCK_BUDGET,)
        known = {trial.budget: trial.saturated_rate for trial in trials}
        seed = settings.first + _SWEEP_SEEDS
        jobs = [_Job(settings, tuned(budget), rate, seed) for budget in budgets]
        return tuple(
            Trial(budget, known.get(budget, 0.0), figures)
            for budget, figures in zip(budgets, workers(_run, jobs), strict=True)
        )


def tuned(budget: int) -> Arm:
    """vllm-opt with a token budget."""
    return parse_arm(f"{TUNED}:{BUDGET}={budget}")


def choose(trials: Sequence[Trial]) -> Trial:
    """The lowest P99 agentic ITL among those with nearly the best speed; ties as in ``sweep``."""
    measured = [(trial, trial.figures) for trial in trials if trial.figures is not None]
    fastest = max(figures["tokens_per_s"] for _, figures in measured)
    able = [
        (figures["agentic_itl_ms"]["p99"], -figures["tokens_per_s"], -trial.budget, trial)
        for trial, figures in measured
        if figures["tokens_per_s"] >= KEPT_SPEED * fastest
    ]
    return min(able)[-1]


def check_records(settings: SimulationSettings) -> None:
    """Raise ConfigError if steps cannot be recorded: those of several engines would mix."""
    if settings.replicas > 1:
        raise ConfigError("records are of one engine: they need one replica (--replicas 1)")


def write_records(settings: SimulationSettings, rate: float | None, arm: Arm, path: Path) -> int:
    """Simulate one arm on the first seed and write the record of each step; how many.

    Raises ConfigError if the file cannot be written or there are several replicas.
    """
    check_records(settings)
    job = _Job(settings, arm, rate, settings.first)
    count = 0
    try:
        with path.open("w", encoding="utf-8") as file:
            simulated = arm_config(arm, settings)
            file.write(header(fitting(simulated.config, simulated.engine)) + "\n")

            def write(number: int, record: StepRecord) -> None:
                nonlocal count
                count += 1
                file.write(record.to_json() + "\n")

            job.run(write)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    return count
