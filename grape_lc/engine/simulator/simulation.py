"""``simulate``: one arm, one workload, one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from grape_lc.engine.simulator.arrivals import Arrivals, Closed
from grape_lc.engine.simulator.cluster import Cluster, Fleet, Programs
from grape_lc.engine.simulator.hardware import Machine
from grape_lc.engine.simulator.host import HostSettings
from grape_lc.engine.simulator.programs import Head
from grape_lc.engine.simulator.runs import Run
from grape_lc.engine.simulator.settings import EngineSettings
from grape_lc.engine.simulator.statistics import Statistics
from grape_lc.scheduler.controller import Costs, KnownCost
from grape_lc.scheduler.cost import StepCost
from grape_lc.scheduler.record import StepRecord
from grape_lc.scheduler.refresh import CostTracker
from grape_lc.scheduler.settings import PLAIN, PolicyConfig


@dataclass(frozen=True)
class ArmConfig:
    """One way to serve programs.

    config: the policy's settings. engine: what engines are started with. ahead: open prompts are
    kept. learned: the policy learns F from steps, as an engine without a profile does; otherwise
    it knows the true one.
    """

    name: str
    config: PolicyConfig
    engine: EngineSettings = field(default_factory=EngineSettings)
    ahead: bool = True
    learned: bool = False


def stock(name: str = "vllm", *, max_tokens: int = 2048, deepest_first: bool = False) -> ArmConfig:
    """vLLM as it comes; ``deepest_first``: with its priority policy, later stages first."""
    return ArmConfig(
        name,
        PolicyConfig.from_mapping(PLAIN),
        EngineSettings(max_tokens=max_tokens, by_priority=deepest_first),
        ahead=False,
    )


def simulate(
    arm: ArmConfig,
    machine: Machine,
    programs: Programs,
    arrivals: Arrivals,
    count: int,
    *,
    seed: int = 0,
    replicas: int = 1,
    host: HostSettings | None = None,
    cost: StepCost | None = None,
    keep: bool = False,
    record: Callable[[int, StepRecord], None] | None = None,
    ended: Callable[[Run, float], None] | None = None,
    heads: Sequence[Head] = (),
) -> Statistics:
    """Run ``count`` programs to their ends; the same arguments give the same result.

    machine: what each replica runs on. cost: takes the place of the machine's F. host: delays of
    the front end; whether open prompts are kept is the arm's. seed: of arrivals and noise; that
    of the programs is theirs. keep, record, ended, heads: as in ``Cluster``.
    """
    true = cost if cost is not None else machine.cost
    fleet = Fleet(
        replicas,
        arm.engine,
        arm.config,
        true,
        _learner if arm.learned else lambda: KnownCost(true),
        machine.blocks,
        machine.block_size,
    )
    settings = replace(host if host is not None else HostSettings(), ahead=arm.ahead)
    cluster = Cluster(
        fleet, settings, seed=seed, keep=keep, record=record, ended=ended, heads=heads
    )
    return cluster.run(programs, arrivals, count)


def _learner() -> Costs:
    return CostTracker()


def saturated_rate(
    arm: ArmConfig,
    machine: Machine,
    programs: Programs,
    *,
    count: int = 320,
    population: int = 128,
    replicas: int = 1,
    host: HostSettings | None = None,
) -> float:
    """Programs a second that an arm ends while there is always work: rho = 1.

    ``population`` programs on each replica run at any time, ``count`` in all; the first and the
    last quarter of the ends are not counted. With fewer at a time than the KV holds an engine ends
    fewer a second: batches are smaller.
    """
    ends: list[float] = []
    simulate(
        arm,
        machine,
        programs,
        Closed(population * replicas),
        count * replicas,
        replicas=replicas,
        host=host,
        ended=lambda run, now: ends.append(now),
    )
    return _middle_rate(ends)


def _middle_rate(ends: Iterable[float]) -> float:
    times = sorted(ends)
    first, last = len(times) // 4, len(times) - 1 - len(times) // 4
    span = times[last] - times[first]
    return (last - first) / span if span > 0 else float("inf")
