from __future__ import annotations

import pytest

from grape_lc.bench.synthetic import parse_axes, synthetic_flow
from grape_lc.bench.synthetic_shape import workload_shape
from grape_lc.engine.simulator.programs import Answer, Static, Workload
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.errors import ConfigError


def test_a_known_name_is_that_shape():
    assert workload_shape("code") is SHAPES["code"]


@pytest.mark.parametrize("axes", ["", "depth=5,fan_out=3", "depth=3,variable=first,tool_ms=200"])
def test_calls_and_what_they_read_are_those_of_the_workflow(axes):
    shape = workload_shape(f"synthetic:{axes}")
    (tasks,) = shape.variants
    flow = synthetic_flow(**parse_axes(axes))
    assert [task.name for task in tasks] == [task.name for task in flow.tasks]
    for ours, theirs in zip(tasks, flow.tasks, strict=True):
        read = {part.task for part in ours.parts if isinstance(part, Answer)}
        assert read == set(flow.upstream(theirs))
        assert bool(ours.tool_s) == any(
            name.startswith("found_") for name in theirs.prompt.variables
        )
    program = Workload(shape, 1).program(0)
    assert program.graph.depth[-1] == parse_axes(axes).get("depth", 4) - 1


def test_static_text_is_shared_and_answers_stand_where_they_are_asked_for():
    axes = "depth=2,static=100,shared=0.3,variable=first,output=9"
    (tasks,) = workload_shape(f"synthetic:{axes}").variants
    assert tasks[1].parts[:3] == (
        Answer("stage_1"),
        Static("shared", 30),
        Static("stage_2", 70),
    )
    assert tasks[0].parts[0] == Static("shared", 30)
    assert [task.output.mean for task in tasks] == [9, 9]


def test_a_tool_that_fails_is_called_again():
    sure, unsure = (
        workload_shape(f"synthetic:tool_ms=100,tool_failure={failure}").variants[0][1].tool_s
        for failure in (0, 0.5)
    )
    assert unsure == pytest.approx(2 * sure)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("chess", "unknown workload 'chess'; known: code"),
        ("synthetic:width=3", "no axis 'width'"),
        ("synthetic:depth", "sets no axis"),
        ("synthetic:depth=0", "depth"),
        ("synthetic:branch=0.5", "go past stages are not simulated"),
    ],
)
def test_what_is_not_simulated_is_told(text, words):
    with pytest.raises(ConfigError, match=words):
        workload_shape(text)
