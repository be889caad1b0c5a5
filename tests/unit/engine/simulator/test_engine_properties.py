from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from grape_lc.engine.simulator.arrivals import Closed
from grape_lc.scheduler.record import differences
from grape_lc.scheduler.settings import PolicyConfig, Rule
from tests.unit.engine.simulator.scenes import Outcome, Scene, chain, scenes

slow = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def check_all_ended(scene: Scene, outcome: Outcome) -> None:
    """Every call ended with all its tokens, and every block is back."""
    assert len(outcome.runs) == scene.programs
    expected = sum(task.output for run, _ in outcome.runs for task in run.program.tasks)
    assert outcome.statistics.output_tokens == expected
    assert outcome.statistics.calls == sum(len(run.program.tasks) for run, _ in outcome.runs)
    counted = outcome.statistics
    assert 0 <= counted.accepted_tokens <= counted.drafted_tokens
    if scene.drafting is None:
        assert counted.drafted_tokens == 0
    for engine in outcome.cluster.engines:
        assert list(engine.queues.all()) == []
        assert engine.kv.free == scene.blocks
        engine.validate()


@slow
@given(scenes)
def test_every_task_ends_and_all_blocks_come_back(scene):
    # After every step the engine itself checks blocks, budget, rows, that no open prompt
    # sampled, and that nothing was planned and preempted at once.
    check_all_ended(scene, scene.simulate())


@slow
@given(scenes)
def test_every_plan_can_be_made_anew_from_its_record(scene):
    outcome = scene.simulate()
    config = outcome.cluster.engines[0].config
    for record in outcome.records:
        assert differences(record, config) == []


@settings(slow, max_examples=20)
@given(scenes)
def test_the_same_scene_takes_the_same_steps(scene):
    one, other = scene.simulate(), scene.simulate()
    assert [r.to_json() for r in one.records] == [r.to_json() for r in other.records]
    assert one.statistics.figures() == other.statistics.figures()


def overtaken(outcome: Outcome, bound_s: float) -> list[tuple[str, str]]:
    """Calls that wait while one starts whose program arrived more than the bound after them."""
    found = []
    for record in outcome.records:
        views = {view["id"]: view for view in record.snapshot["views"]}
        waiting = [views[key] for key in record.snapshot["waiting"]]
        left = [view for view in waiting if view["id"] not in record.ran]
        for started in waiting:
            if started["id"] in record.ran:
                found += [
                    (view["id"], started["id"])
                    for view in left
                    if started["program_arrived"] > view["arrived"] + bound_s
                ]
    return found


def test_no_call_waits_while_programs_start_that_came_much_later():
    config = PolicyConfig(rule=Rule.DEADLINE, ttft_s=0.4, in_flight_s=0.2, root_s=0.4)
    scene = Scene(chain(), config, Closed(24), programs=72, rows=3, blocks=70, ahead=False)
    outcome = scene.simulate()
    check_all_ended(scene, outcome)
    assert outcome.statistics.waiting.max > 1.0, "calls do have to wait"
    # The bound that ``priority.rank`` states: the largest of the three targets.
    assert overtaken(outcome, 0.5) == []
