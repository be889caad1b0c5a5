"""grape trace: from a module to a file, and from the file to an attached graph."""

import importlib
import logging
import sys
import textwrap
from pathlib import Path

import pytest
from langgraph.func import entrypoint, task

from grape_lc import ChatGrape, InputVar, OutputVar, ScriptedEngine, TaskFlow, attach
from grape_lc.adapters.flow_file import FlowFile, load_flow_file, save_flow_file
from grape_lc.adapters.sandbox import _offline_prefix
from grape_lc.errors import ConfigError, FlowError
from tests.unit.test_cli import run

APP = """
import os, socket
from pathlib import Path
from typing import TypedDict
from langgraph.graph import START, StateGraph
from grape_lc import ChatGrape

llm = ChatGrape(engine=None)
SYSTEM = Path("prompts/system.txt").read_text()
print("interfaces:", [name for _, name in socket.if_nameindex()])

class State(TypedDict, total=False):
    problem: str
    style: str
    plan: str
    code: str

def plan(state):
    return {"plan": llm.invoke([("system", SYSTEM), ("user", "Plan: " + state["problem"])]).content}

def code(state):
    Path("/no/such/report.md").write_text(state["plan"])
    how = f"In the style {state['style']}." if "style" in state else ""
    return {"code": llm.invoke(f"{how}Code for this plan:\\n{state['plan'].strip()}").content}

def make():
    builder = StateGraph(State).add_node("plan", plan).add_node("code", code)
    return builder.add_edge(START, "plan").add_edge("plan", "code")

graph = make().compile()
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "system.txt").write_text("You are {careful} and brief.")
    (tmp_path / "traced_app.py").write_text(textwrap.dedent(APP))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("SOME_TOKEN", "not-to-be-seen")
    yield tmp_path
    sys.modules.pop("traced_app", None)


def test_a_graph_is_traced_to_a_file_that_attach_takes(app, caplog, monkeypatch):
    code, out, err = run("trace", "traced_app:graph", "-o", "flow.json", "--show-output")
    assert (code, err) == (0, "")
    for said in (
        "plan  -          problem  -        34 characters",
        "code  plan       style    -        34 characters",
        "node 'code': file: open /no/such/report.md (traced_app.py:",
        "SOME_TOKEN",
        "Written: flow.json",
    ):
        assert said in out
    interfaces = out.rpartition("interfaces: ")[2].splitlines()[0]
    if _offline_prefix():
        assert interfaces == "['lo']"
    assert "not-to-be-seen" not in out + Path("flow.json").read_text()
    file = load_flow_file("flow.json")
    assert file.graph == "traced_app:graph"
    plan, code_task = file.flow.order()
    assert plan.prompt.messages is not None
    assert plan.prompt.messages[0].content == "You are {{careful}} and brief."
    assert [str(slot) for slot in code_task.prompt.slots] == ["{style}", "{plan_text|strip}"]

    # The same code in this process: it is fresh, and its prompts are those of the file.
    module = importlib.import_module("traced_app")
    engine = ScriptedEngine({"plan": " 1. read \n", "code": "print()"})
    monkeypatch.setattr(module, "llm", ChatGrape(engine=engine))
    monkeypatch.setattr(Path, "write_text", lambda self, text: None)
    with caplog.at_level(logging.WARNING, logger="grape_lc"):
        graph = attach(module.graph, "flow.json", learn=False)
        assert graph.invoke({"problem": "p", "style": "s"})["code"] == "print()"
    assert caplog.text == ""
    (program,) = engine.programs
    for call in engine.calls:
        expected = program.flow.task(call.request.task or "")
        values = {"problem": "p", "style": "s", "plan_text": " 1. read \n"}
        rendered = expected.prompt.render_messages(values)
        assert [m["content"] for m in rendered] == [
            m["content"] for m in call.request.messages or ()
        ]


def test_changed_code_is_warned_of(app, caplog):
    assert run("trace", "traced_app.py:make", "-o", "flow.json")[0] == 0
    source = Path("traced_app.py").read_text()
    Path("traced_app.py").write_text(source.replace("Code for", "Write code for"))
    module = importlib.import_module("traced_app")
    with caplog.at_level(logging.WARNING, logger="grape_lc"):
        attach(module.graph, "flow.json", learn=False)
    assert "grape trace traced_app.py:make -o flow.json" in caplog.text


def test_an_example_shows_the_path_that_it_takes(app):
    (app / "example.json").write_text('{"problem": "x"}')
    code, out, err = run("trace", "traced_app:graph", "--example", "@example.json")
    assert (code, err) == (0, "")
    assert "code  plan       -        -        20 characters" in out
    assert "Not written: -o FILE keeps the flow" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["traced_app:nothing"], "graphs in it: graph"),
        (["traced_app"], "module:graph"),
        (["traced_app:graph", "-o", "no/such/folder.json"], "no folder"),
        (["traced_app:graph", "--example", "{"], "no JSON"),
        (["traced_app:graph", "--example", "@none.json"], "none.json"),
        (["traced_app:graph", "--allow", "all"], "kinds: "),
        (["traced_app:graph", "--timeout", "0"], "more than 0"),
        (["traced_app:graph", "--timeout", "inf"], "at most 86400"),
        (["traced_app:graph", "--example", "[" * 50_000 + "]" * 50_000], "nested too deeply"),
    ],
)
def test_what_is_wrong_is_one_line(app, arguments, says):
    code, out, err = run("trace", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("grape: ")
    assert says in err
    assert err.count("\n") == 1


ATTACHED = (
    APP
    + """
from grape_lc import attach
app = attach(graph, "flow.json", learned="memory")
"""
)


def tasks_of(attached):
    (handler,) = attached.config["callbacks"]
    return [one.name for one in handler.flow.tasks]


@pytest.mark.parametrize("content", [None, "{", "of another graph"])
def test_a_module_that_attaches_to_the_file_can_be_traced_without_it(app, content):
    Path("traced_app.py").write_text(ATTACHED)
    if content == "of another graph":
        flow = a_flow_of("elsewhere")
        content = FlowFile(graph="other:graph", source_hash="0", flow=flow).to_json()
    if content is not None:
        Path("flow.json").write_text(content)
    code, out, err = run("trace", "traced_app:app", "-o", "flow.json")
    assert (code, err) == (0, "")
    assert "Warnings" not in out
    first = Path("flow.json").read_text()
    # With the file there, it comes out the same.
    assert run("trace", "traced_app:app", "-o", "flow.json")[0] == 0
    assert Path("flow.json").read_text() == first
    module = importlib.import_module("traced_app")
    assert tasks_of(module.app) == ["plan", "code"]


def test_outside_of_a_trace_a_missing_file_says_how_it_is_made(app):
    Path("traced_app.py").write_text(ATTACHED)
    with pytest.raises(ConfigError, match=r"grape trace MODULE:GRAPH -o flow\.json"):
        importlib.import_module("traced_app")


def a_flow_of(task):
    flow = TaskFlow(name="f")
    flow.add_variable(InputVar("x"))
    flow.add_task([("user", "Say {x}")], flow.add_variable(OutputVar("y")), name=task)
    return flow


def test_the_file_of_another_graph_is_refused_and_named(app):
    module = importlib.import_module("traced_app")
    file = FlowFile(graph="other:graph", source_hash="0", flow=a_flow_of("elsewhere"))
    save_flow_file(file, "flow.json")
    with pytest.raises(FlowError, match=r"flow of other:graph.*elsewhere.*plan, code.*grape trace"):
        attach(module.graph, "flow.json", learn=False)


def test_of_the_functional_api_the_tasks_are_no_strangers(app, caplog):
    llm = ChatGrape(engine=ScriptedEngine("ok"))

    @task
    def ask(topic: str) -> str:
        return str(llm.invoke(f"Say {topic}").content)

    @entrypoint()
    def talk(topic: str) -> str:
        return ask(topic).result()

    save_flow_file(FlowFile(graph="a:b", source_hash="0", flow=a_flow_of("ask")), "flow.json")
    with caplog.at_level(logging.WARNING, logger="grape_lc"):
        attached = attach(talk, "flow.json", learn=False)
    assert "grape trace a:b" in caplog.text
    assert tasks_of(attached) == ["ask"]
