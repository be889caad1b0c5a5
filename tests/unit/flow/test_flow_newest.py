"""NewestVar: one of several texts, whichever came last."""

from __future__ import annotations

import pytest

from grape_lc.errors import (
    CycleError,
    FlowFormatError,
    NeverReadError,
    UnknownVariableError,
    WrittenTwiceError,
)
from grape_lc.flow import InputVar, IntermediateVar, NewestVar, OutputVar, TaskFlow
from grape_lc.flow.lowering import lower
from grape_lc.runtime.scripted import ScriptedEngine


def branches() -> TaskFlow:
    """One of two branches is taken; their join reads the text of either."""
    flow = TaskFlow(name="branches")
    flow.add_variable(InputVar("topic"))
    for name in ("kind", "poem", "joke"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("title"))
    flow.add_variable(NewestVar("text", of=("poem", "joke")))
    flow.add_task([("user", "Which kind is {topic}?")], "kind")
    flow.add_task([("user", "A poem on {topic}, as {kind}")], "poem")
    flow.add_task([("user", "A joke on {topic}")], "joke")
    flow.add_task([("user", "A title for {text|strip}!")], "title")
    flow.validate_flow()
    return flow


def test_who_waits_for_whom() -> None:
    flow = branches()
    assert flow.upstream("title") == ("poem", "joke")
    assert flow.needs("title") == (("poem", "joke"),)
    assert flow.needs("poem") == (("kind",),)
    assert flow.downstream("joke") == ("title",)
    assert flow.depth("title") == 2
    assert flow.written_by(flow.task("joke")) == ("joke", "text")
    assert flow.written_by(flow.task("kind")) == ("kind",)


def test_json_keeps_it() -> None:
    flow = branches()
    assert TaskFlow.from_json(flow.to_json()) == flow


def test_micro_tasks_have_an_edge_from_each() -> None:
    edges = lower(branches()).edges
    partial = [edge.src for edge in edges if edge.kind == "partial" and "title" in edge.dst]
    assert partial == ["poem/decode", "joke/decode"]


def test_micro_tasks_of_several_writers_are_valid() -> None:
    lower(branches()).validate()


def test_micro_tasks_of_inputs_only_are_static() -> None:
    flow = TaskFlow()
    flow.add_variable(InputVar("draft"))
    flow.add_variable(InputVar("notes"))
    flow.add_variable(OutputVar("end"))
    flow.add_variable(NewestVar("text", of=("draft", "notes")))
    flow.add_task([("user", "Use {text}, {draft} and {notes}")], "end")
    graph = lower(flow)
    graph.validate()
    assert [(node.kind, node.nature) for node in graph.nodes] == [
        ("prefill", "static"),
        ("decode", "dynamic"),
    ]


def test_explain_shows_it() -> None:
    text = str(branches().explain({"topic": "rain"}))
    assert "{text|strip} from 'poem' or 'joke', no limit" in text


def test_explain_says_the_highest_limit_of_several() -> None:
    flow = TaskFlow()
    for name in ("poem", "joke"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("title"))
    flow.add_variable(NewestVar("text", of=("poem", "joke")))
    flow.add_task("A poem", "poem", max_tokens=80)
    flow.add_task("A joke", "joke", max_tokens=20)
    flow.add_task("A title for {text}", "title")
    assert "{text} from 'poem' or 'joke', at most 80" in str(flow.explain())


def test_explain_names_few_of_many() -> None:
    flow = TaskFlow()
    names = tuple(f"round{number}" for number in range(9))
    for name in names:
        flow.add_variable(IntermediateVar(name))
        flow.add_task("A poem", name)
    flow.add_variable(OutputVar("title"))
    flow.add_variable(NewestVar("text", of=names))
    flow.add_task("A title for {text}", "title")
    assert "{text} from 'round0' ... or 'round8', no limit" in str(flow.explain())


def test_a_flow_that_runs_makes_all_of_its_calls() -> None:
    engine = ScriptedEngine({"poem": " a poem ", "joke": " a joke ", "kind": "k", "title": "t"})
    result = branches().run_sync(engine, {"topic": "rain"})
    assert result.outputs == {"title": "t"}
    assert engine.calls[-1].prompt in ("user: A title for a poem!", "user: A title for a joke!")


def test_one_of_the_inputs_until_it_is_written() -> None:
    flow = TaskFlow()
    flow.add_variable(InputVar("draft"))
    flow.add_variable(IntermediateVar("better"))
    flow.add_variable(OutputVar("end"))
    flow.add_variable(NewestVar("text", of=("draft", "better")))
    flow.add_task([("user", "Mend {draft}")], "better")
    flow.add_task([("user", "Use {text}")], "end")
    engine = ScriptedEngine({"better": "B", "end": "E"})
    flow.run_sync(engine, {"draft": "D"})
    assert [call.prompt for call in engine.calls] == ["user: Mend D", "user: Use B"]


def test_what_is_refused() -> None:
    flow = branches()
    with pytest.raises(UnknownVariableError, match="names 'text', which is no input"):
        flow.add_variable(NewestVar("other", of=("text", "poem")))
    with pytest.raises(UnknownVariableError, match="names 'nothing'"):
        flow.add_variable(NewestVar("other", of=("nothing", "poem")))
    with pytest.raises(FlowFormatError, match="two or more"):
        NewestVar("other", of=("poem",))
    with pytest.raises(FlowFormatError, match="each once"):
        NewestVar("other", of=("poem", "poem"))
    with pytest.raises(WrittenTwiceError, match="one of several others"):
        flow.add_task([("user", "x")], "text", name="x")
    flow.add_variable(NewestVar("unread", of=("poem", "joke")))
    with pytest.raises(NeverReadError, match="unread"):
        flow.validate_flow()


def test_a_circle_through_it_is_found() -> None:
    flow = TaskFlow()
    for name in ("a", "b"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(NewestVar("either", of=("a", "b")))
    with pytest.raises(CycleError):
        flow.add_task([("user", "{either}")], "a")
    flow.add_task([("user", "{b}")], "a")
    with pytest.raises(CycleError):
        flow.add_task([("user", "{either}")], "b")
