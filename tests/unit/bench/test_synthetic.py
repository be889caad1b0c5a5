"""The synthetic workflow's TaskFlow, what tracing finds of it, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach, to_taskflow
from grape_lc.bench.examples import Example
from grape_lc.bench.released import ReleasedProgram
from grape_lc.bench.synthetic import (
    count_tool_calls,
    synthetic_axes,
    synthetic_flow,
    synthetic_past,
    synthetic_tools,
)
from grape_lc.engine.base import CallRequest
from grape_lc.errors import ConfigError
from grape_lc.flow import TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock
from grape_lc.workflow_package import load_workflow

synthetic: Any = load_workflow("synthetic")
STATE = {"task": "Write {this}."}

AXES: list[dict[str, Any]] = [
    {},
    {"depth": 1},
    {"depth": 2, "variable": "first"},
    {"depth": 5, "fan_out": 3, "shared": 0.5},
    {"depth": 4, "fan_out": 2, "tool_ms": 0.01, "tool_failure": 0.3},
    {"depth": 3, "fan_out": 2, "tool_failure": 0.5, "variable": "first", "output": 5},
    {"depth": 32},
]
SHORT: dict[str, Any] = {"static": 60}


def answer(request: CallRequest) -> str:
    """Each prompt has an answer of its own, with what a template could stumble on."""
    said = "".join(str(message["content"]) for message in request.messages or ())
    return f" {{answer}} to {len(said)} characters, {sum(map(ord, said))}:\n- 100%\n\n"


def scripted() -> ScriptedEngine:
    return ScriptedEngine(answer, clock=VirtualClock())


def graph_of(engine: ScriptedEngine, axes: dict[str, Any], max_tokens: int | None = None) -> Any:
    llm = ChatGrape(engine=engine, temperature=0)
    return synthetic.build(llm, max_tokens=max_tokens, **SHORT, **axes)


def sent(engine: ScriptedEngine) -> dict[str | None, tuple[Any, Any]]:
    return {
        call.request.task: (call.request.messages, call.request.sampling.max_tokens)
        for call in engine.calls
    }


def texts_of(flow: TaskFlow, task: str) -> list[str]:
    return [message.content for message in flow.task(task).prompt.messages or ()]


def inputs_of(state: dict[str, Any]) -> dict[str, str]:
    """What a flow without its graph is given: the task, and what the tools found."""
    found = {f"found_{stage}": text for stage, text in state.get("found", {}).items()}
    return {"task": state["task"], **found}


@pytest.mark.parametrize("max_tokens", [None, 50])
@pytest.mark.parametrize("axes", AXES, ids=str)
def test_the_twin_makes_the_prompts_of_the_graph(axes: dict[str, Any], max_tokens: int | None):
    flow = synthetic_flow(max_tokens=max_tokens, **SHORT, **axes)
    engine, alone = scripted(), scripted()
    state = attach(graph_of(engine, axes, max_tokens), flow, model=engine).invoke(dict(STATE))
    outputs = flow.run_sync(alone, inputs_of(state)).outputs
    assert len(engine.calls) == len(alone.calls) == len(flow.tasks)
    assert sent(engine) == sent(alone)
    assert set(sent(engine)) == {task.name for task in flow.tasks}
    assert outputs == {"answer": state["answer"]}


@pytest.mark.parametrize("axes", AXES, ids=str)
def test_tracing_finds_the_twin(axes: dict[str, Any]):
    """Up to what the tools find, which neither knows."""
    flow = synthetic_flow(**SHORT, **axes)
    traced = to_taskflow(graph_of(scripted(), axes))
    assert {task.name for task in traced.tasks} == {task.name for task in flow.tasks}
    names = {task.output: traced.task(task.name).output for task in flow.tasks}
    for task in flow.tasks:
        expected = texts_of(flow, task.name)
        assert _known(texts_of(traced, task.name), {}) == _known(expected, names)
        first = axes.get("variable") == "first" and task.name != "stage_1"
        assert expected[0].startswith("Notes") == first


def _known(texts: list[str], names: dict[str, str]) -> list[str]:
    """The texts up to what a tool found, with the variables of a trace."""
    for ours in sorted(names, key=len, reverse=True):
        texts = [text.replace(f"{{{ours}}}", f"{{{names[ours]}}}") for text in texts]
    return [text.partition("Looked up:\n\n")[0] for text in texts]


def test_branches_are_merged_to_what_both_ways_have_in_common():
    axes: dict[str, Any] = {"depth": 4, "branch": 0.5}
    traced = to_taskflow(graph_of(scripted(), axes))
    assert [task.name for task in traced.tasks] == [f"stage_{n}" for n in (1, 2, 3, 4)]
    for past in ((), (2,)):
        flow = synthetic_flow(past=past, **SHORT, **axes)
        head = texts_of(flow, "stage_3")[1].partition("{stage_")[0]
        found = texts_of(traced, "stage_3")[1]
        assert found.startswith(head)
        # The whole template, with whichever answer came last.
        assert found.endswith("}\n\nWrite your note.")


@pytest.mark.parametrize("task", ["a", "b", "c", "d"])
def test_the_twin_of_a_program_that_goes_past_stages(task: str):
    axes: dict[str, Any] = {"depth": 7, "branch": 0.5, "fan_out": 2, "tool_failure": 0.2}
    past = synthetic_past(task, axes)
    assert past == tuple(stage for stage in (2, 4, 6) if synthetic.skips(task, stage, 0.5))
    flow = synthetic_flow(past=past, **SHORT, **axes)
    engine, alone = scripted(), scripted()
    app = attach(graph_of(engine, axes), flow, model=engine)
    state = app.invoke({"task": task})
    flow.run_sync(alone, inputs_of(state))
    assert sent(engine) == sent(alone)


@pytest.mark.parametrize(
    "axes",
    [
        {"depth": 4, "fan_out": 2, "tool_failure": 0.5, "output": 7},
        {"depth": 5, "branch": 0.6, "fan_out": 2, "tool_ms": 0.01, "variable": "first"},
        {"depth": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("task", ["a", "b", "c"])
def test_programs_that_the_driver_releases_make_the_calls_of_the_graph(
    axes: dict[str, Any], task: str
):
    engine, alone = scripted(), scripted()
    state = {"task": task}
    reference = graph_of(engine, axes, max_tokens=9).invoke(dict(state))
    example = Example("synthetic:some", (), {}, {**SHORT, **axes})
    found = ReleasedProgram(alone, example, 9, fixed_lengths=False).invoke(state)
    calls = [
        {str(call.request.messages): call.request.sampling.max_tokens for call in each.calls}
        for each in (engine, alone)
    ]
    assert calls[0] == calls[1]
    assert found["answer"] == reference["answer"]


def test_a_tool_waits_for_the_answers_before_its_stage():
    axes: dict[str, Any] = {"depth": 5, "fan_out": 2, "tool_ms": 1, "branch": 0.5}
    flow = synthetic_flow(past=[4], **axes)
    steps = {step.writes: set(step.reads) for step in synthetic_tools(flow, axes)}
    assert steps == {
        "found_2": {"task", "stage_1_note"},
        "found_3": {"task", "stage_2_1_note", "stage_2_2_note"},
        "found_5": {"task", "stage_3_note"},
    }


@pytest.mark.parametrize("axes", [*AXES[:-1], {"depth": 5, "branch": 0.5}], ids=str)
def test_attached_answers_are_those_of_the_bare_graph(axes: dict[str, Any]):
    bare, engine = scripted(), scripted()
    plain = graph_of(bare, axes).invoke(dict(STATE))
    graph = graph_of(engine, axes)
    flow: TaskFlow = to_taskflow(graph)
    attached = attach(graph, flow, learn=False, learned="memory").invoke(dict(STATE))
    assert attached == plain
    # The engine knew of every call whose prompt the trace has found.
    assert all(call.request.program for call in engine.calls[1:])


def test_axes_are_read_and_checked():
    assert synthetic_axes("depth=8,variable=first") == {"depth": 8, "variable": "first"}
    for text, said in (("width=3", "no axis 'width'"), ("depth=0", "depth=0")):
        with pytest.raises(ValueError, match=said):
            synthetic_axes(text)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"depth": 0}, "depth=0"), ({"past": [3]}, "past=3"), ({"past": [4]}, "past=4")],
)
def test_a_twin_that_cannot_be_is_refused(wrong: dict[str, Any], said: str):
    with pytest.raises(ConfigError, match=said):
        synthetic_flow(**wrong)


def test_tool_calls_are_counted_by_program():
    def call(query: str, *, failed: bool = False) -> dict[str, Any]:
        return {"tool": "look_up", "query": query, "failed": failed}

    retried = [call("x", failed=True), call("x", failed=True), call("x")]
    twice = [call("x"), call("x"), call("y"), call("x", failed=True)]
    states = {"a": {"tool_calls": retried}, "b": {"tool_calls": twice}, "c": {}}
    assert count_tool_calls(states) == {
        "tool_calls": 7,
        "tool_failures": 3,
        "tool_duplicates": 2,
    }
    assert count_tool_calls({"c": {}, "d": {"tool_calls": []}}) == count_tool_calls({}) == {}
