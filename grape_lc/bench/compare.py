"""Several arms on the same programs, in turns.

A *repeat* is one workload: programs and arrival times of their own. Every arm runs it once,
in an order that rotates from repeat to repeat::

    repeat 1   a b c
    repeat 2   b c a
    repeat 3   c a b

so that a machine that grows slower or faster, or warmer, favours none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from rich.console import Console

from grape_lc.bench.arms import Arm
from grape_lc.bench.metrics import RunRecord
from grape_lc.bench.outcomes import Outcomes, outcomes, prefilled_tokens, wasted_tokens
from grape_lc.bench.progress import RunProgress
from grape_lc.bench.report import Equal, compare_runs
from grape_lc.bench.run_log import RunLogPart, no_log
from grape_lc.bench.server import ArmRun, ArmServer
from grape_lc.bench.slo import NO_SLO, Slo
from grape_lc.bench.workload import Arrival
from grape_lc.errors import ConfigError, GrapeError

MOST_ENGINES = 4
"""Engines that are open at once; with more arms each run starts and ends its own."""

Workloads = Sequence[Sequence[Arrival]]


class Comparison(NamedTuple):
    """All runs of all arms, in the order in which they were made.

    arms: names, in the order asked for. infos: what each arm's engine told about itself.
    slo: what programs are judged by.
    """

    arms: tuple[str, ...]
    runs: tuple[ArmRun, ...]
    infos: Mapping[str, Mapping[str, Any]]
    slo: Slo = NO_SLO

    def records(self, arm: str) -> dict[int, RunRecord]:
        """Records of an arm's runs that succeeded, by repeat."""
        return {r.repeat: r.record for r in self.runs if r.arm == arm and r.record is not None}

    def metrics(self, arm: str) -> Outcomes:
        """The figures of an arm over all its runs; programs of failed ones have met no SLO."""
        lost = sum(run.offered for run in self.failures if run.arm == arm)
        return outcomes(list(self.records(arm).values()), self.slo, lost=lost)

    def metrics_by_repeat(self, arm: str) -> dict[int, Outcomes]:
        """The figures of each of its runs; a failed one has only met no SLO."""
        return {
            run.repeat: outcomes([run.record], self.slo)
            if run.record is not None
            else outcomes([], self.slo, lost=run.offered)
            for run in self.runs
            if run.arm == arm
        }

    def prefilled(self, arm: str) -> float:
        """Prompt tokens that its engine computed, early ones among them; recomputed ones not."""
        early = self.counter(arm, "open_tokens") or 0.0
        return prefilled_tokens(list(self.records(arm).values()), early)

    def wasted(self, arm: str) -> float | None:
        """Early tokens that no call took over, at least; None where the engine counts none."""
        early, adopted = self.counter(arm, "open_tokens"), self.counter(arm, "adopted_tokens")
        return None if early is None or adopted is None else wasted_tokens(early, adopted)

    def counter(self, arm: str, name: str) -> float | None:
        """By how much a counter of the engine rose over all runs; None where it has none."""
        values = [r.counters[name] for r in self.runs if r.arm == arm and name in r.counters]
        return sum(values) if values else None

    def equal(self, arm: str) -> Equal:
        """How many answers of an arm are those of the first arm in the same repeat."""
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


def rotated(arms: Sequence[str], repeat: int) -> list[str]:
    """The order of the arms in a repeat, counted from 1."""
    shift = (repeat - 1) % len(arms)
    return [*arms[shift:], *arms[:shift]]


def run_comparison(
    arms: Sequence[Arm],
    workloads: Workloads,
    console: Console,
    serve: Callable[[Arm], ArmServer],
    slo: Slo = NO_SLO,
    log: RunLogPart | None = None,
) -> Comparison:
    """Run every arm on every workload; runs that ``log`` has are taken from there.

    A run that fails for a reason of the engine is reported and left out; its engine is ended,
    and started again for the arm's next run. Raises ConfigError, which no repetition would
    cure, and what is not an error of this package. All engines are ended in every case.
    """
    names, kept = [arm.name for arm in arms], log or no_log()
    turns = [(n, name) for n in range(1, len(workloads) + 1) for name in rotated(names, n)]
    found = {(n, name): old for n, name in turns if (old := kept.get(name, n)) is not None}
    missing = [turn for turn in turns if turn not in found]
    together = len(arms) <= MOST_ENGINES
    if not together:
        console.print(
            f"{len(arms)} arms are more than the {MOST_ENGINES} engines that are kept open: each "
            "run starts and ends its own",
            highlight=False,
        )
    with ExitStack() as stack:
        servers = {arm.name: serve(arm) for arm in arms}
        for server in servers.values():
            stack.callback(server.close)
        if together:
            for name in names:
                if any(arm == name for _, arm in missing):
                    _start(servers[name], console)
        titles = [f"repeat {repeat} {name}" for repeat, name in missing]
        programs = max(map(len, workloads), default=0)
        runs = {turn: run for turn, (run, _) in found.items()}
        infos = {name: info for (_, name), (_, info) in found.items()}
        with RunProgress(console, titles, programs) as progress:
            for index, (repeat, name) in enumerate(missing):
                server, place = servers[name], (repeat, rotated(names, repeat).index(name) + 1)
                run = _run(server, workloads[repeat - 1], place, index, progress)
                runs[repeat, name] = run
                kept.add(run, server.info)
                if not together:
                    server.close()
        infos |= {name: servers[name].info for _, name in missing}
        return Comparison(
            tuple(names),
            tuple(runs[turn] for turn in turns),
            {name: infos.get(name, {}) for name in names},
            slo,
        )


def _start(server: ArmServer, console: Console) -> None:
    try:
        server.start()
    except ConfigError:
        raise
    except GrapeError as error:
        # Its runs try again, and say so where they fail too.
        text = f"the {server.arm.name} engine did not start: {error}"
        console.print(text, highlight=False, markup=False)


def _run(
    server: ArmServer,
    arrivals: Sequence[Arrival],
    place: tuple[int, int],
    index: int,
    progress: RunProgress,
) -> ArmRun:
    name, (repeat, position), offered = server.arm.name, place, len(arrivals)
    try:
        server.start()
        progress.begin(index)
        record, counters = server.run(
            arrivals, repeat, lambda done, live: progress.tick(index, done, live)
        )
    except ConfigError:
        raise
    except GrapeError as error:
        server.close()
        message = f"{type(error).__name__}: {error}"
        progress.fail(index, message)
        return ArmRun(name, repeat, position, None, {}, message, offered)
    progress.end(index)
    return ArmRun(name, repeat, position, record, counters, offered=offered)
