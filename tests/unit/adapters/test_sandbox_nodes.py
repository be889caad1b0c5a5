"""Contained nodes: nothing else is traced of a graph, until something is denied in it."""

import asyncio
from typing import TypedDict

import pytest
from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph
from langgraph.types import Send

from grape_lc import ChatGrape, ScriptedEngine, to_taskflow
from grape_lc.adapters.flow_file import Effect
from grape_lc.adapters.sandbox_guard import Denied
from grape_lc.adapters.sandbox_nodes import Hung, contained, denied_in
from grape_lc.errors import TraceError
from tests.shapes import SHAPES, Shape

FOLDER = "/"


def flow_of(graph, example):
    try:
        return to_taskflow(graph, example=example)
    except TraceError as error:
        return str(error)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_graph_of_any_shape_is_traced_as_without(shape: Shape):
    # Each anew, for some remember earlier runs.
    plain, bare = (shape.build(ChatGrape(engine=ScriptedEngine(""))) for _ in range(2))
    expected = flow_of(plain, shape.example)
    assert flow_of(contained(bare, Hung(30), FOLDER), shape.example) == expected


class State(TypedDict, total=False):
    text: str


llm = ChatGrape()


def denial() -> Denied:
    return Denied(Effect(node="n", kind="file", event="open", what="/x", where="x.py:1"))


def asks(name, denied=False):
    def ask(state):
        llm.invoke(f"{name}: {state['text']}")
        if denied:
            raise denial()
        return {}

    return ask


def tasks_of(graph) -> set[str]:
    flow = to_taskflow(contained(graph, Hung(5), FOLDER))
    return {task.name for task in flow.tasks}


def line(*nodes):
    builder = StateGraph(State)
    before = START
    for name, function in nodes:
        builder.add_node(name, function)
        builder.add_edge(before, name)
        before = name
    return builder.compile()


def test_in_a_subgraph_only_the_inner_node_ends():
    inner = line(("denied", asks("denied", True)), ("next", asks("next")))
    graph = line(("outer", inner), ("last", asks("last")))
    assert tasks_of(graph) == {"outer/denied", "outer/next", "last"}


def test_in_a_graph_that_a_function_calls_the_function_ends():
    inner = line(("denied", asks("denied", True)), ("next", asks("next")))

    def calls(state):
        inner.invoke(state)
        llm.invoke(f"After: {state['text']}")

    graph = line(("outer", calls), ("last", asks("last")))
    assert tasks_of(graph) == {"outer/denied", "last"}


def test_each_send_ends_by_itself():
    builder = StateGraph(State)
    builder.add_conditional_edges(
        START, lambda state: [Send("work", {**state, "number": n}) for n in (0, 1)], ["work"]
    )

    def work(state):
        llm.invoke(f"{state['number']}: {state['text']}")
        if state["number"] == 0:
            raise denial()
        llm.invoke(f"again {state['number']}: {state['text']}")

    builder.add_node("work", work)
    builder.add_node("join", asks("join"))
    builder.add_edge("work", "join")
    assert tasks_of(builder.compile()) == {"work[0]", "work[1]", "work[1]#2", "join"}


def test_in_the_functional_api_the_calls_up_to_there_are_seen():
    @task
    def first(text):
        return llm.invoke(f"First: {text}").content

    @task
    def second(text):
        llm.invoke(f"Second: {text}")
        raise denial()

    @entrypoint()
    def program(text: str) -> str:
        second(first(text).result()).result()
        return str(llm.invoke("Third").content)

    flow = to_taskflow(contained(program, Hung(5), FOLDER), example="x")
    assert {task.name for task in flow.tasks} == {"program/first", "program/second"}


async def test_a_node_that_hangs_is_left_once_and_not_begun_again():
    begun = []

    async def hangs(state):
        begun.append(1)
        await asyncio.Event().wait()

    hung = Hung(0.1)
    graph = contained(line(("hangs", hangs), ("last", asks("last"))), hung, FOLDER)
    # Within a loop, as in a notebook.
    first, second = to_taskflow(graph), to_taskflow(graph)
    assert first == second
    assert [task.name for task in first.tasks] == ["last"]
    assert len(begun) == 1
    (warning,) = hung.warnings()
    assert warning.startswith("node 'hangs' did not end within 0.1 s")


async def test_a_node_s_own_time_limit_is_its_own():
    async def limited(state):
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            await llm.ainvoke(f"Too slow: {state['text']}")
        raise TimeoutError("another one")

    hung = Hung(30)
    flow = to_taskflow(contained(line(("limited", limited)), hung, FOLDER))
    assert [task.name for task in flow.tasks] == ["limited"]
    assert hung.warnings() == ()


def caught(raising):
    try:
        raising()
    except BaseException as error:  # noqa: BLE001 - that is what it is for
        return error


def denied():
    raise denial()


def test_what_was_raised_because_of_a_denial_is_one():
    def instead():
        try:
            denied()
        except BaseException as error:
            raise RuntimeError("no service") from error

    def meanwhile():
        try:
            denied()
        finally:
            raise KeyError("key")

    def among_others():
        raise BaseExceptionGroup("several", [ValueError(), caught(denied)])

    for raising in (denied, instead, meanwhile, among_others):
        assert denied_in(caught(raising)) is not None, raising
    assert denied_in(None) is None
    assert denied_in(ValueError()) is None
    assert denied_in(ExceptionGroup("several", [ValueError()])) is None


def test_any_other_error_is_the_nodes_own(caplog):
    def fails(state):
        llm.invoke(f"Once: {state['text']}")
        raise KeyError("missing")

    assert tasks_of(line(("fails", fails), ("last", asks("last")))) == {"fails"}
    assert "'fails' failed" in caplog.text
