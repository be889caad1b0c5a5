"""What is believed of a graph's prompts, and what no longer."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grape_lc.adapters.flow_file import FlowFile, save_flow_file
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.adapters.learning import Learner, SeenCall
from grape_lc.adapters.merging import Layer
from grape_lc.adapters.source_hash import source_hash
from grape_lc.adapters.templates import Templates
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock, prompt_text

MakeTeam = Callable[..., Any]


def handler_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def flow_of(text: str, name: str = "mine") -> TaskFlow:
    flow = TaskFlow(name=name)
    flow.add_variable(InputVar("topic"))
    flow.add_variable(OutputVar("poem"))
    flow.add_task([("user", text)], "poem", name="write")
    return flow


def call(text: str, answer: str = "an answer") -> SeenCall:
    return SeenCall("write", ({"role": "user", "content": text},), answer)


def prompt_of(templates: Templates) -> str:
    assert templates.flow is not None
    return str((templates.flow.task("write").prompt.messages or ())[0].content)


TOPICS = [f"topic number {n}" for n in range(20)]


def test_a_template_that_is_wrong_three_times_in_a_row_is_set_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "A long poem about {topic}, that nobody may see in a log."
    layer = Layer.of("declared", flow_of(secret))
    templates = Templates("mine", [layer], Learner("mine"))
    for topic in TOPICS[:2]:
        templates.watch({"topic": topic}, [call(f"A song on {topic}.")])
        assert prompt_of(templates) == secret
    templates.watch({"topic": TOPICS[2]}, [call(f"A song on {TOPICS[2]}.")])
    assert prompt_of(templates) == "A song on {topic}."
    assert templates.sources == {"write": "learned"}
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "declared prompt of task 'write'" in record.getMessage()
    assert "message 1, character 3 on" in record.getMessage()
    assert "poem" not in record.getMessage()
    assert "song" not in record.getMessage()
    for topic in TOPICS[3:8]:
        templates.watch({"topic": topic}, [call(f"Something else: {topic}!")])
    assert len(caplog.records) == 1


@pytest.mark.parametrize("misses", [1, 2])
def test_a_run_that_is_right_starts_the_count_anew(misses: int) -> None:
    templates = Templates("mine", [Layer.of("traced", flow_of("On {topic}."))], Learner("mine"))
    for topic in TOPICS[:9]:
        right = TOPICS.index(topic) % (misses + 1) == misses
        templates.watch({"topic": topic}, [call(f"On {topic}." if right else "Different!")])
    assert templates.sources == {"write": "traced"}


@pytest.mark.parametrize(
    ("template", "sent"),
    [
        # A quarter is right.
        ("Write something about {topic} today.", "Write something else."),
        # Little is known, and none of it is wrong.
        ("{other} On {topic}.", "Some long text that no run gives. On it."),
    ],
)
def test_what_is_right_so_far_stays(template: str, sent: str) -> None:
    flow = TaskFlow(name="mine")
    for name in ("topic", "other"):
        if f"{{{name}}}" in template:
            flow.add_variable(InputVar(name))
    flow.add_variable(OutputVar("poem"))
    flow.add_task([("user", template)], "poem", name="write")
    templates = Templates("mine", [Layer.of("declared", flow)], Learner("mine"))
    for topic in TOPICS[:6]:
        templates.watch({"topic": topic}, [call(sent)])
    assert templates.sources == {"write": "declared"}


def test_the_next_source_takes_its_place() -> None:
    layers = [
        Layer.of("declared", flow_of("Wrong: {topic}")),
        Layer.of("traced", flow_of("On {topic}.")),
    ]
    templates = Templates("mine", layers, Learner("mine"))
    for topic in TOPICS[:3]:
        templates.watch({"topic": topic}, [call(f"On {topic}.")])
    assert templates.sources == {"write": "traced"}
    assert prompt_of(templates) == "On {topic}."


def test_without_a_learner_nothing_is_set_aside() -> None:
    templates = Templates("mine", [Layer.of("declared", flow_of("Wrong: {topic}"))])
    for topic in TOPICS[:6]:
        templates.watch({"topic": topic}, [call(f"On {topic}.")])
    assert templates.sources == {"write": "declared"}


def test_answers_are_judged_by_too() -> None:
    flow = TaskFlow(name="mine")
    flow.add_variable(IntermediateVar("draft"))
    flow.add_variable(OutputVar("final"))
    flow.add_task([("user", "Draft")], "draft", name="draft")
    flow.add_task([("user", "{draft|strip}!")], "final", name="write")
    templates = Templates("mine", [Layer.of("declared", flow)], Learner("mine"))
    for number in range(6):
        answer = f" draft number {number} \n"
        draft = SeenCall("draft", ({"role": "user", "content": "Draft"},), answer)
        templates.watch({}, [draft, call(f"{answer.strip()}!")])
    assert templates.sources == {"draft": "declared", "write": "declared"}


# ------------------------------------------------------------------ attached


def writer() -> ScriptedEngine:
    number = itertools.count()
    return ScriptedEngine(lambda request: f" answer no. {next(number)}\n", clock=VirtualClock())


def test_what_a_flow_does_not_say_is_traced_or_learned(make_team: MakeTeam) -> None:
    flow = TaskFlow(name="part")
    flow.add_variable(InputVar("problem"))
    flow.add_variable(OutputVar("prd"))
    flow.add_task([("user", "Requirements of {problem}.")], "prd")
    engine = writer()
    graph = make_team(ChatGrape(engine=engine))
    others = ("design", "risks", "code")

    traced = handler_of(attach(graph, flow, trace=True, learned="memory"))
    assert traced.sources == {"prd": "declared", **dict.fromkeys(others, "traced")}
    assert traced.flow is not None
    assert set(traced.flow.upstream("risks")) == {"prd"}

    attached = attach(graph, flow, learned="memory")
    learning = handler_of(attached)
    for n in range(2):
        assert learning.sources == {"prd": "declared"}
        attached.invoke({"problem": TOPICS[n]})
    assert learning.sources == {"prd": "declared", **dict.fromkeys(others, "learned")}
    attached.invoke({"problem": TOPICS[2]})
    program = engine.programs[-1]
    assert program.flow is learning.flow
    assert program.flow.upstream("design") == ("prd",)
    texts = {c.request.task: c for c in engine.calls if c.request.program == program.program_id}
    values = {**program.inputs}
    for task in program.flow.order():
        prompt = task.prompt.render_messages(values)
        assert list(texts[task.name].request.messages or ()) == prompt
        values[task.output] = texts[task.name].text


def test_a_flow_may_be_a_file(make_team: MakeTeam, team_flow: TaskFlow, tmp_path: Path) -> None:
    path = tmp_path / "flow.json"
    path.write_text(team_flow.to_json())
    graph = make_team(ChatGrape(engine=writer()))
    handler = handler_of(attach(graph, str(path)))
    assert handler.flow == team_flow
    assert set(handler.sources.values()) == {"declared"}


def test_a_traced_file_counts_as_traced(
    make_team: MakeTeam, team_flow: TaskFlow, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "flow.json"
    graph = make_team(ChatGrape(engine=writer()))
    traced = FlowFile(graph="app:graph", source_hash=source_hash(graph), flow=team_flow)
    save_flow_file(traced, path)
    assert set(handler_of(attach(graph, path)).sources.values()) == {"traced"}
    assert caplog.text == ""

    # Of other code, with a node that is no more: said, and used for the others.
    tasks = [t.model_copy(update={"name": t.name.replace("risks", "r")}) for t in team_flow.tasks]
    other = team_flow.model_copy(update={"tasks": tuple(tasks)})
    stale = traced.model_copy(update={"source_hash": "0" * 64, "flow": other})
    save_flow_file(stale, path)
    handler = handler_of(attach(graph, path))
    assert handler.sources == dict.fromkeys(("prd", "design", "code"), "traced")
    assert "another state of the code" in caplog.text
    graph.invoke({"problem": "p"})


def test_learning_can_be_left_out(make_team: MakeTeam, team_flow: TaskFlow) -> None:
    engine = ScriptedEngine(prompt_text)
    attached = attach(make_team(ChatGrape(engine=engine)), team_flow, learn=False)
    for topic in TOPICS[:4]:
        attached.invoke({"problem": topic})
    handler = handler_of(attached)
    assert handler.flow is team_flow
    assert set(handler.sources.values()) == {"declared"}


def test_a_wrong_flow_gives_way_and_changes_no_result(make_team: MakeTeam) -> None:
    flow = TaskFlow(name="wrong")
    flow.add_variable(InputVar("problem"))
    flow.add_variable(OutputVar("prd"))
    flow.add_task([("user", "Never sent: {problem}")], "prd")

    def results(attached: bool) -> tuple[list[Any], Any]:
        engine = ScriptedEngine(lambda r: f"<{prompt_text(r)[:40]}>", clock=VirtualClock())
        graph = make_team(ChatGrape(engine=engine))
        graph = attach(graph, flow) if attached else graph
        return [graph.invoke({"problem": topic}) for topic in TOPICS[:5]], graph

    with_flow, graph = results(True)
    assert with_flow == results(False)[0]
    assert set(handler_of(graph).sources.values()) == {"learned"}
