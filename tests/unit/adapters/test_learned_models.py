"""Which models' prompts are learned, and which engine a graph is taken to use."""

from __future__ import annotations

import itertools
from typing import Any, TypedDict

import pytest
from langchain_core.language_models import FakeListChatModel, FakeListLLM
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph

from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.adapters.llm import GrapeLLM
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.runtime.client import GrapeEngine
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock


class Pair(TypedDict, total=False):
    problem: str
    plan: str
    code: str


PROBLEMS = [f"problem number {n}" for n in range(6)]


def writer() -> ScriptedEngine:
    """Never gives the same answer twice."""
    number = itertools.count()
    return ScriptedEngine(lambda request: f" answer no. {next(number)}\n", clock=VirtualClock())


def handler_of(graph: Any) -> ProgramHandler:
    return next(h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler))


def pair_graph(plan: Any, code: Any) -> Any:
    builder = StateGraph(Pair)
    builder.add_node("plan", lambda state: {"plan": plan(state)})
    builder.add_node("code", lambda state: {"code": code(state)})
    return builder.add_edge(START, "plan").add_edge("plan", "code").compile()


def learned(graph: Any, runs: int = 3) -> TaskFlow | None:
    attached = attach(graph)
    for problem in PROBLEMS[:runs]:
        attached.invoke({"problem": problem})
    return handler_of(attached).flow


def test_prompts_that_are_no_chat() -> None:
    engine = writer()
    llm = GrapeLLM(engine=engine)
    flow = learned(
        pair_graph(
            lambda s: llm.invoke(f"# plan {{for}} {s['problem']}"),
            lambda s: llm.invoke(f"# code for\n{s['plan'].strip()}\ndef"),
        )
    )
    assert flow is not None
    assert flow.upstream("code") == ("plan",)
    program = engine.programs[-1]
    values = dict(program.inputs)
    for call in engine.calls[-2:]:
        assert (call.request.program, call.request.text) == (program.program_id, call.prompt)
        task = flow.task(str(call.request.task))
        assert task.prompt.render_text(values) == call.prompt
        values[task.output] = call.text


def test_a_text_that_always_differs_is_not_known() -> None:
    engine = writer()
    number = itertools.count(100)
    llm = GrapeLLM(engine=engine)
    flow = learned(pair_graph(lambda s: llm.invoke(f"{next(number)}"), lambda s: "nothing"))
    assert flow is not None
    assert flow.task("plan").prompt.text == "10{opaque_1}"


@pytest.mark.parametrize(
    "other", [FakeListChatModel(responses=["a b c d"]), FakeListLLM(responses=["a b c d"])]
)
def test_calls_of_other_models_do_not_count(other: Any) -> None:
    engine = writer()
    llm = ChatGrape(engine=engine)

    def ask_both(state: Pair) -> str:
        other.invoke("Something else")
        return str(llm.invoke(f"Plan {state['problem']}").content)

    flow = learned(pair_graph(ask_both, lambda s: str(llm.invoke(f"Code {s['plan']}").content)))
    assert flow is not None
    assert [task.name for task in flow.tasks] == ["plan", "code"]
    assert [call.request.task for call in engine.calls[-2:]] == ["plan", "code"]


def test_answers_of_other_models_end_what_is_known() -> None:
    other = FakeListChatModel(responses=[f"another answer {n}" for n in range(9)])
    llm = ChatGrape(engine=writer())
    flow = learned(
        pair_graph(
            lambda s: str(other.invoke("Plan").content),
            lambda s: str(llm.invoke(f"Code {s['plan']} for {s['problem']}").content),
        )
    )
    assert flow is not None
    (task,) = flow.tasks
    assert [m.content for m in task.prompt.messages or ()] == ["Code {opaque_1} for {problem}"]


@tool
def look_up(word: str) -> str:
    """Finds a word."""
    return word


def test_the_tools_that_a_model_is_shown_are_learned() -> None:
    engine = writer()
    llm = ChatGrape(engine=engine).bind_tools([look_up])
    flow = learned(
        pair_graph(
            lambda s: str(llm.invoke(f"Plan {s['problem']}").content),
            lambda s: str(llm.invoke(f"Code {s['plan']}").content),
        )
    )
    assert flow is not None
    for call in engine.calls[-2:]:
        assert call.request.tools
        assert flow.task(str(call.request.task)).prompt.tools == call.request.tools


# ------------------------------------------------------------------ the engine


class Sleeping(ScriptedEngine):
    """An engine that is open from its first use on, as GrapeEngine is."""

    started = False

    @property
    def is_open(self) -> bool:
        return self.started

    def start(self) -> None:
        self.started = True


def test_a_model_names_its_engine_without_starting_it(
    monkeypatch: pytest.MonkeyPatch, make_team: Any, team_flow: TaskFlow
) -> None:
    engines: list[Sleeping] = []

    def shared(model: str | None = None, **engine_args: Any) -> Sleeping:
        assert (model, engine_args) == ("org/model", {"dtype": "float32"})
        if not engines:
            engines.append(Sleeping("ok"))
        return engines[0]

    monkeypatch.setattr(GrapeEngine, "shared", shared)
    llm = ChatGrape("org/model", dtype="float32")
    attached = attach(make_team(llm), team_flow, model=llm)
    assert engines == []
    attached.invoke({"problem": "p"})
    first = engines[0]
    assert first.started
    attached.invoke({"problem": "p"})
    assert len(first.programs) == 2
    assert first.open_programs == ()

    # Closed and made anew, the engine of the model is another one.
    engines.clear()
    attached.invoke({"problem": "p"})
    assert engines[0] is not first
    assert len(engines[0].programs) == 1
    assert len(first.programs) == 2


def test_any_model_of_ours_names_an_engine(make_team: Any, team_flow: TaskFlow) -> None:
    engine, seen = ScriptedEngine("ok"), []

    def prepare(state: Pair) -> Pair:
        seen.append(engine.open_programs)
        return {}

    builder = StateGraph(Pair).add_node("prd", prepare).add_edge(START, "prd")
    for name in ("design", "risks", "code"):
        builder.add_node(name, lambda state: {})
    for model in (GrapeLLM(engine=engine), ChatGrape(engine=engine), engine):
        attach(builder.compile(), team_flow, model=model).invoke({"problem": "p"})
    assert seen == [("program-1",), ("program-2",), ("program-3",)]
