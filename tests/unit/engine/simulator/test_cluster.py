from __future__ import annotations

import pytest

from grape_lc.engine.simulator.arrivals import Closed, Given, Renewal
from grape_lc.engine.simulator.cluster import Cluster
from grape_lc.engine.simulator.programs import Program
from grape_lc.engine.simulator.runs import Engine, Run
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PolicyConfig
from tests.unit.engine.simulator.scenes import Scene, chain

SHORT = chain(2, answer=4, spread=0.0)


class Watched(Cluster):
    """Notes where programs go, and how many run at a time."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.placed: list[int] = []
        self.most = 0
        begin = self._host.begin

        def watched(program: Program, engine: Engine, now: float) -> Run:
            run = begin(program, engine, now)
            self.placed.append(engine.number)
            self.most = max(self.most, sum(self._programs))
            return run

        self._host.begin = watched  # type: ignore[method-assign]


def run(scene: Scene) -> Watched:
    outcome = scene.simulate(make=Watched)
    assert isinstance(outcome.cluster, Watched)
    return outcome.cluster


def test_a_program_goes_where_the_fewest_are_and_stays_there():
    together = Given((0.0,) * 5)
    scene = Scene(SHORT, PolicyConfig(), together, programs=5, replicas=3)
    outcome = scene.simulate(make=Watched)
    assert isinstance(outcome.cluster, Watched)
    assert outcome.cluster.placed == [0, 1, 2, 0, 1]
    # Its open prompts are there: every later call takes one over.
    assert sum(outcome.statistics.outcomes.values()) == 5
    assert outcome.statistics.outcomes["adopted"] > 0


def test_programs_that_ended_make_room_for_others():
    scene = Scene(SHORT, PolicyConfig(), Given((0.0, 0.0, 60.0, 60.0)), programs=4, replicas=2)
    assert run(scene).placed == [0, 1, 0, 1]


def test_a_closed_loop_keeps_its_population():
    cluster = run(Scene(SHORT, PolicyConfig(), Closed(3), programs=11))
    assert cluster.most == 3
    assert len(cluster.placed) == 11


def test_nothing_is_kept_of_programs_that_ended():
    cluster = run(Scene(SHORT, PolicyConfig(), Renewal(3.0), programs=40, replicas=2))
    assert cluster._events == []
    assert cluster._programs == [0, 0]
    for engine in cluster.engines:
        assert list(engine.queues.all()) == []
        assert engine.controller.waiting == {}
        assert engine.controller.opens == {}


def test_counts_must_be_positive():
    with pytest.raises(ConfigError, match="at least one replica, not 0"):
        Scene(SHORT, PolicyConfig(), replicas=0).simulate()
    with pytest.raises(ConfigError, match="at least one program, not 0"):
        Scene(SHORT, PolicyConfig(), programs=0).simulate()
