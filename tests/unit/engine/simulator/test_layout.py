from __future__ import annotations

import pytest

from grape_lc.engine.simulator.arrivals import Renewal
from grape_lc.engine.simulator.layout import HEAD, history_first
from grape_lc.engine.simulator.programs import Answer, Input, Shape, Static, Workload
from grape_lc.engine.simulator.shapes import SHAPES
from tests.unit.engine.simulator.scenes import Scene, chain, fan, plain


def told(shape: Shape, variant: int = 0) -> dict[str, list[str]]:
    """What each prompt consists of, by task."""
    return {
        task.name: [part.task if isinstance(part, Answer) else part.name for part in task.parts]
        for task in shape.variants[variant]
    }


def test_history_stands_first_in_the_order_of_creation_and_the_role_last():
    assert told(history_first(chain(3))) == {
        "task_0": [HEAD.name, "problem", "role 0", "end"],
        "task_1": [HEAD.name, "problem", "task_0", "role 1", "end"],
        "task_2": [HEAD.name, "problem", "task_0", "task_1", "role 2", "end"],
    }


def test_nothing_of_calls_that_run_beside_it_is_read():
    found = told(history_first(fan(2)))
    assert found["work_0"] == [HEAD.name, "ask", "plan", "work"]
    assert found["work_1"] == [HEAD.name, "ask", "plan", "work"]
    assert found["report"] == [HEAD.name, "ask", "plan", "work_0", "work_1", "found", "report"]


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_answers_inputs_and_dependencies_stay_as_they_are(name):
    shape = SHAPES[name]
    mine, theirs = Workload(history_first(shape), 3), Workload(shape, 3)
    for number in range(4):
        ours, other = mine.program(number), theirs.program(number)
        assert [(t.name, t.output, t.tool_s) for t in ours.tasks] == [
            (t.name, t.output, t.tool_s) for t in other.tasks
        ]
        assert ours.graph.depth == other.graph.depth
        for one, two in zip(ours.tasks, other.tasks, strict=True):
            read = {part for part in two.parts if part.source > 1000}
            assert read <= set(one.parts)
    for reordered, tasks in zip(history_first(shape).variants, shape.variants, strict=True):
        for new, old in zip(reordered, tasks, strict=True):
            statics = [part for part in new.parts if isinstance(part, Static)]
            assert statics == [HEAD, *(part for part in old.parts if isinstance(part, Static))]
            assert not any(isinstance(part, Input) for part in new.parts[-1:])


def test_plain_vllm_finds_the_history_in_its_cache():
    shape = chain(4, static=20, own=40, answer=24)
    shared = [
        Scene(s, plain(), Renewal(1.0), ahead=False).simulate().statistics.cached_tokens
        for s in (shape, history_first(shape))
    ]
    assert shared[1] > 1.5 * shared[0]
