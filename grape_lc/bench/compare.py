"""Several arms on the same programs, in turns, and what they came to.

A *repeat* is one workload: programs and arrival times of their own. Every arm runs it once, in an
order that changes from repeat to repeat; see ``turns``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grape_lc.bench.arms import Arm
from grape_lc.bench.costs import facts_of
from grape_lc.bench.engine_pool import EnginePool
from grape_lc.bench.matrix_progress import MatrixProgress
from grape_lc.bench.metrics import RunRecord
from grape_lc.bench.outcomes import Outcomes, outcomes
from grape_lc.bench.pooled_server import PooledServer
from grape_lc.bench.report import Equal, compare_runs
from grape_lc.bench.run_log import RunLogPart
from grape_lc.bench.server import ArmRun
from grape_lc.bench.slo import NO_SLO, Slo
from grape_lc.bench.turns import turns_of
from grape_lc.bench.workload import Arrival
from grape_lc.errors import ConfigError, GrapeError

Workloads = Sequence[Sequence[Arrival]]


class Comparison(NamedTuple):
    """All runs of all arms, in the order in which they were made.

    arms: names, in the order asked for. infos: what each arm's engine told about itself.
    slo: what programs are judged by.
    different: arms whose prompts are not those of the others, so that answers need not be equal.
    """

    arms: tuple[str, ...]
    runs: tuple[ArmRun, ...]
    infos: Mapping[str, Mapping[str, Any]]
    slo: Slo = NO_SLO
    different: frozenset[str] = frozenset()

    def records(self, arm: str) -> dict[int, RunRecord]:
        """Records of an arm's runs that succeeded, by repeat."""
        return {r.repeat: r.record for r in self.runs if r.arm == arm and r.record is not None}

    def metrics(self, arm: str) -> Outcomes:
        """The figures of an arm over all its runs; programs of failed ones have met no SLO."""
        lost = sum(run.offered for run in self.failures if run.arm == arm)
        counters = [run.counters for run in self.runs if run.arm == arm]
        records, facts = list(self.records(arm).values()), facts_of(self.infos, arm)
        return outcomes(records, self.slo, lost=lost, counters=counters, facts=facts)

    def metrics_by_repeat(self, arm: str) -> dict[int, Outcomes]:
        """The figures of each of its runs; a failed one has only met no SLO."""
        return {run.repeat: self.metrics_of(run) for run in self.runs if run.arm == arm}

    def metrics_of(self, run: ArmRun) -> Outcomes:
        """The figures of one of its runs; a failed one has only met no SLO."""
        if run.record is None:
            return outcomes([], self.slo, lost=run.offered)
        facts = facts_of(self.infos, run.arm)
        return outcomes([run.record], self.slo, counters=[run.counters], facts=facts)

    def counter(self, arm: str, name: str) -> float | None:
        """By how much a counter of the engine rose over all runs; None where it has none."""
        values = [r.counters[name] for r in self.runs if r.arm == arm and name in r.counters]
        return sum(values) if values else None

    def equal(self, arm: str) -> Equal:
        """How many answers of an arm are those of the first arm in the same repeat.

        None are compared where one of the two has other prompts.
        """
        if len(self.different & {arm, self.arms[0]}) == 1:
            return Equal(0, 0)
        first = self.records(self.arms[0])
        pairs = [
            compare_runs(first[repeat], record)
            for repeat, record in self.records(arm).items()
            if repeat in first
        ]
        return Equal(sum(p.compared for p in pairs), sum(p.identical for p in pairs))

    @property
    def failures(self) -> tuple[ArmRun, ...]:
        """Runs that failed."""
        return tuple(run for run in self.runs if run.record is None)


class Part(NamedTuple):
    """Which runs a comparison consists of, by what they are told apart.

    title: begins the titles of its runs. workload, pace: runs with the same ones take about as
    long. log: where runs are taken from and kept.
    """

    title: str
    workload: str
    pace: str
    log: RunLogPart


def run_comparison(
    arms: Sequence[Arm],
    workloads: Workloads,
    servers: Mapping[str, PooledServer],
    pool: EnginePool,
    progress: MatrixProgress,
    part: Part,
    slo: Slo = NO_SLO,
) -> Comparison:
    """Run every arm on every workload; runs that the log has are taken from there.

    servers: of each arm, by its name; on engines of ``pool``.

    A run that fails for a reason of the engine is reported and left out; its engine is ended,
    and started again for the next run that needs it. Raises ConfigError, which no repetition
    would cure, and what is not an error of this package.
    """
    names = [arm.name for arm in arms]
    tunings = {arm.name: arm.tuning for arm in arms}
    engines = {name: servers[name].key for name in names}
    order = turns_of(engines, len(workloads), pool.most, pool.open_engines)
    turns = [(repeat, name) for repeat, each in order.items() for name in each]
    found = {
        (repeat, name): old
        for repeat, name in turns
        if (old := part.log.get(name, repeat, tunings[name])) is not None
    }
    missing = [turn for turn in turns if turn not in found]
    if len(set(engines.values())) <= pool.most:
        # All are open before anything is measured, so that the machine is the same for all runs.
        for name in names:
            if any(arm == name for _, arm in missing):
                _start(servers[name], progress)
    runs = {turn: run for turn, (run, _) in found.items()}
    infos = {name: info for (_, name), (_, info) in found.items()}
    for repeat, name in missing:
        place = (repeat, order[repeat].index(name) + 1)
        run = _run(servers[name], workloads[repeat - 1], place, progress, part)
        runs[repeat, name] = run
        part.log.add(run, servers[name].info, tunings[name])
    infos |= {name: servers[name].info for _, name in missing}
    return Comparison(
        tuple(names),
        tuple(runs[turn] for turn in turns),
        {name: infos.get(name, {}) for name in names},
        slo,
        frozenset(arm.name for arm in arms if not arm.comparable),
    )


def _start(server: PooledServer, progress: MatrixProgress) -> None:
    try:
        server.start()
    except ConfigError:
        raise
    except GrapeError as error:
        server.drop()
        # Its runs try again, and say so where they fail too.
        progress.say(f"the {server.arm.name} engine did not start: {error}")


def _run(
    server: PooledServer,
    arrivals: Sequence[Arrival],
    place: tuple[int, int],
    progress: MatrixProgress,
    part: Part,
) -> ArmRun:
    name, (repeat, position), offered = server.arm.name, place, len(arrivals)
    title = f"{part.title}, repeat {repeat}, {name}"
    try:
        server.start()
        progress.begin(title, (part.workload, part.pace), offered)
        record, counters = server.run(arrivals, repeat, progress.tick)
    except ConfigError:
        raise
    except GrapeError as error:
        server.drop()
        message = f"{type(error).__name__}: {error}"
        progress.fail(title, message)
        return ArmRun(name, repeat, position, None, {}, message, offered)
    progress.end()
    return ArmRun(name, repeat, position, record, counters, offered=offered)
