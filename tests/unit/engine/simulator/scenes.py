"""Small simulations, and strategies that draw any of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hypothesis import strategies as st

from grape_lc.engine.simulator.arrivals import Arrivals, Closed, Renewal
from grape_lc.engine.simulator.cluster import Cluster, Fleet
from grape_lc.engine.simulator.drafting import Drafting
from grape_lc.engine.simulator.host import HostSettings
from grape_lc.engine.simulator.programs import (
    Answer,
    Input,
    Length,
    Shape,
    Static,
    Targets,
    TaskShape,
    Workload,
)
from grape_lc.engine.simulator.runs import Run
from grape_lc.engine.simulator.settings import EngineSettings
from grape_lc.engine.simulator.statistics import Statistics
from grape_lc.scheduler.controller import Costs, KnownCost
from grape_lc.scheduler.cost import LinearCost
from grape_lc.scheduler.record import StepRecord
from grape_lc.scheduler.refresh import CostTracker
from grape_lc.scheduler.settings import PLAIN, Constraint, Eviction, PolicyConfig, Rule

BLOCK = 4
CPU = LinearCost(0.016, 0.0005, 0.0006, 2e-6, 5e-7)
GPU = LinearCost(0.012, 1e-5, 1e-7, 1e-8, 0.0, ((40, 5e-4),))


def chain(
    tasks: int = 3, *, static: int = 30, own: int = 12, answer: int = 10, spread: float = 0.4
) -> Shape:
    """Each task reads the program's input and the answer before it: at most 203 tokens."""
    shapes = []
    for number in range(tasks):
        parts: list[Static | Input | Answer] = [
            Static(f"role {number}", static),
            Input("problem", Length(own, spread, 60)),
        ]
        if number:
            parts.append(Answer(f"task_{number - 1}"))
        shapes.append(
            TaskShape(f"task_{number}", (*parts, Static("end", 3)), Length(answer, spread, 40))
        )
    return Shape("chain", (tuple(shapes),), Targets(ttft_s=0.5, tbt_s=0.05))


def fan(width: int = 3, *, answer: int = 8, spread: float = 0.4) -> Shape:
    """One task, ``width`` that read it, one that reads all of these."""
    length = Length(answer, spread, 30)
    plan = TaskShape("plan", (Static("plan", 20), Input("ask", Length(9))), length)
    workers = tuple(
        TaskShape(f"work_{n}", (Static("work", 17), Answer("plan")), length, tool_s=0.1)
        for n in range(width)
    )
    reads = tuple(Answer(worker.name) for worker in workers)
    late = Input("found", Length(7), late=True)
    report = TaskShape("report", (Static("report", 11), *reads, late), Length(5))
    return Shape("fan", ((plan, *workers, report),))


@dataclass(frozen=True)
class Scene:
    """All that a small simulation needs; ``simulate`` runs it with all checks on.

    costs: what the policy knows of F: all, nothing, or what it learns.
    """

    shape: Shape
    config: PolicyConfig
    arrivals: Arrivals = field(default_factory=lambda: Renewal(2.0))
    programs: int = 6
    seed: int = 0
    max_tokens: int = 64
    rows: int = 8
    blocks: int = 400
    by_priority: bool = False
    ahead: bool = True
    differ: float = 0.0
    noise: float = 0.0
    drafting: Drafting | None = None
    replicas: int = 1
    cost: LinearCost = CPU
    costs: Literal["known", "none", "learned"] = "known"
    block_size: int = BLOCK

    def _costs(self) -> Costs:
        if self.costs == "learned":
            return CostTracker()
        return KnownCost(self.cost if self.costs == "known" else None)

    def simulate(self, *, keep: bool = False, make: type[Cluster] = Cluster) -> Outcome:
        """Run to the end; a broken invariant raises AssertionError."""
        fleet = Fleet(
            self.replicas,
            EngineSettings(
                max_tokens=self.max_tokens,
                rows=self.rows,
                by_priority=self.by_priority,
                noise=self.noise,
                drafting=self.drafting,
                validate=True,
            ),
            self.config,
            self.cost,
            self._costs,
            self.blocks,
            self.block_size,
        )
        records: list[StepRecord] = []
        runs: list[tuple[Run, float]] = []
        cluster = make(
            fleet,
            HostSettings(ahead=self.ahead),
            seed=self.seed,
            keep=keep,
            record=lambda number, record: records.append(record),
            ended=lambda run, now: runs.append((run, now)),
        )
        work = Workload(self.shape, self.seed, differ=self.differ)
        return Outcome(cluster.run(work, self.arrivals, self.programs), records, runs, cluster)


@dataclass(frozen=True)
class Outcome:
    """What came of a scene."""

    statistics: Statistics
    records: list[StepRecord]
    runs: list[tuple[Run, float]]
    cluster: Cluster


def plain(**changes: Any) -> PolicyConfig:
    """vLLM's own behaviour, with changes."""
    return PolicyConfig.from_mapping({**PLAIN, **changes})


configs = st.builds(
    PolicyConfig,
    incremental=st.booleans(),
    static=st.booleans(),
    rule=st.sampled_from(Rule),
    constraint=st.sampled_from(Constraint),
    two_phase=st.booleans(),
    eviction=st.sampled_from(Eviction),
    admission=st.booleans(),
    governor=st.booleans(),
    handover=st.booleans(),
    chunk=st.integers(1, 12),
    lump=st.integers(1, 40),
    prefill_cap=st.none() | st.integers(1, 40),
    open_cap=st.integers(1, 64),
    stretch=st.floats(1.0, 4.0),
    tbt_s=st.none() | st.just(0.03),
    horizon=st.integers(0, 20),
    margin=st.floats(0.0, 0.1),
    wide_margin=st.floats(0.1, 0.5),
)

scenes = st.builds(
    Scene,
    shape=st.one_of(
        st.builds(
            chain,
            st.integers(1, 4),
            static=st.integers(1, 60),
            own=st.integers(1, 50),
            answer=st.integers(1, 40),
        ),
        st.builds(fan, st.integers(1, 4)),
    ),
    config=configs,
    arrivals=st.one_of(
        st.builds(Renewal, st.floats(0.3, 50.0), st.sampled_from((1.0, 3.0))),
        st.builds(Closed, st.integers(1, 8)),
    ),
    programs=st.integers(1, 8),
    seed=st.integers(0, 1000),
    max_tokens=st.integers(8, 96),
    rows=st.integers(2, 8),
    # The largest call has room alone; a few fill the pool.
    blocks=st.integers(52, 90),
    by_priority=st.booleans(),
    ahead=st.booleans(),
    differ=st.sampled_from((0.0, 0.5)),
    noise=st.sampled_from((0.0, 0.1)),
    drafting=st.none()
    | st.builds(
        Drafting,
        st.integers(1, 6),
        copy_rate=st.sampled_from((0.0, 0.3, 0.8, 1.0)),
        run=st.sampled_from((1.0, 5.0, 12.0)),
        accident=st.sampled_from((0.0, 0.1, 1.0)),
    ),
    replicas=st.sampled_from((1, 1, 2)),
    cost=st.sampled_from((CPU, GPU)),
    costs=st.sampled_from(("known", "none", "learned")),
)
