"""Unrolled flows, fitted to the lists of a run."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach, to_taskflow
from grape_lc.adapters.lists import fitted
from grape_lc.flow import TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine


class Files(TypedDict, total=False):
    question: str
    files: list[str]
    notes: Annotated[list[str], operator.add]


def reading(llm: Any) -> Any:
    """Each file is read, each note mended, and all are put together."""

    def read(state: Any) -> Files:
        note = str(llm.invoke(f"Read {state['file']}").content)
        return {"notes": [str(llm.invoke(f"Mend {note}").content)]}

    def sum_up(state: Files) -> Files:
        notes = "".join(f"\n{n}. {note.strip()}" for n, note in enumerate(state["notes"], 1))
        llm.invoke(
            [("system", "Be brief."), ("user", f"Notes:{notes}\nAsked: {state['question']}")]
        )
        return {}

    builder = StateGraph(Files).add_node("read", read).add_node("sum_up", sum_up)
    builder.add_conditional_edges(
        START, lambda state: [Send("read", {"file": file}) for file in state["files"]], ["read"]
    )
    return builder.add_edge("read", "sum_up").compile()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(lambda request: f" <{request.label}> ")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_run_has_the_tasks_and_prompts_of_its_items(count: int, engine: ScriptedEngine) -> None:
    graph = reading(ChatGrape(engine=engine))
    app = attach(graph, to_taskflow(graph), learn=False)
    app.invoke({"question": "Who?", "files": [f"file {n}" for n in range(count)]})
    (program,) = engine.programs
    values = dict(program.inputs)
    sent = {call.request.task: call for call in engine.calls}
    assert set(sent) == {task.name for task in program.flow.tasks}
    for task in program.flow.order():
        call = sent[task.name]
        assert [dict(m) for m in call.request.messages or ()] == task.prompt.render_messages(values)
        values[task.output] = call.text


def prompt(flow: TaskFlow, task: str) -> list[tuple[str, str]]:
    return [(m.role, m.content) for m in flow.task(task).prompt.messages or ()]


def test_all_items_in_one_prompt() -> None:
    def stuff(state: Files) -> Files:
        texts = "\n\n".join(state["files"])
        ChatGrape(engine=ScriptedEngine("x")).invoke(
            [("user", file) for file in state["files"]] + [("user", f"{texts}\nAnswer.")]
        )
        return {}

    graph = StateGraph(Files).add_node("stuff", stuff).add_edge(START, "stuff").compile()
    flow = to_taskflow(graph)
    assert prompt(fitted(flow, {"files_0": "a", "files_1": "b"}), "stuff") == [
        ("user", "{files_0}"),
        ("user", "{files_1}"),
        ("user", "{files_0}\n\n{files_1}\nAnswer."),
    ]


def test_a_flow_stays_as_it_is_when_nothing_is_missing(engine: ScriptedEngine) -> None:
    flow = to_taskflow(reading(ChatGrape(engine=engine)))
    given = {"question": "q", **{f"files_{n}": "x" for n in range(20)}}
    assert fitted(flow, given) is flow
    # A list that is not given at all may be one that nobody knows of.
    assert fitted(flow, {"question": "q"}) is flow


def test_messages_of_a_shorter_conversation(engine: ScriptedEngine) -> None:
    llm = ChatGrape(engine=engine)

    def answer(state: Any) -> Any:
        llm.invoke([("system", "s"), *state["messages"], ("user", "Go on.")])
        return {}

    class Chat(TypedDict, total=False):
        messages: list[Any]

    graph = StateGraph(Chat).add_node("answer", answer).add_edge(START, "answer").compile()
    flow = to_taskflow(graph, example={"messages": [("user", "a"), ("assistant", "b")]})
    fitting = fitted(flow, {"messages_0": "hello"})
    assert prompt(fitting, "answer") == [
        ("system", "s"),
        ("user", "{messages_0}"),
        ("user", "Go on."),
    ]
