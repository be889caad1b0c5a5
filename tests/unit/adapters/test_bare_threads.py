"""Calls from threads that got no context: found by what they send, and part of the run again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock

ANSWERS = {
    "Plan": " 1. land on the flower ",
    "Pros": "honey for everybody",
    "Cons": "stings for some",
    "Sum up": "worth it",
}


class State(TypedDict, total=False):
    topic: str
    plan: str
    views: list[str]
    result: str


def make_engine() -> ScriptedEngine:
    return ScriptedEngine(ANSWERS, clock=VirtualClock())


def make_graph(llm: ChatGrape, work: Callable[[ChatGrape, list[str]], Any]) -> Any:
    """plan, then two calls at once in threads of ``work``'s own, then the sum of both."""

    def plan(state: State) -> State:
        return {"plan": str(llm.invoke(f"Plan of {state['topic']}").content)}

    def views(state: State) -> State:
        prompts = [f"{word}: {state['plan'].strip()}" for word in ("Pros", "Cons")]
        return {"views": work(llm, prompts)}

    async def aviews(state: State) -> State:
        prompts = [f"{word}: {state['plan'].strip()}" for word in ("Pros", "Cons")]
        return {"views": await work(llm, prompts)}

    def result(state: State) -> State:
        return {"result": str(llm.invoke("Sum up " + "; ".join(state["views"])).content)}

    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("views", aviews if asyncio.iscoroutinefunction(work) else views)
    builder.add_node("result", result)
    builder.add_edge(START, "plan").add_edge("plan", "views").add_edge("views", "result")
    return builder.compile()


def make_flow() -> TaskFlow:
    flow = TaskFlow(name="views")
    flow.add_variable(InputVar("topic"))
    for name in ("plan", "pros", "cons"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("result"))
    flow.add_task([("user", "Plan of {topic}")], "plan", name="plan")
    flow.add_task([("user", "Pros: {plan|strip}")], "pros", name="views")
    flow.add_task([("user", "Cons: {plan|strip}")], "cons", name="views#2")
    flow.add_task([("user", "Sum up {pros}; {cons}")], "result", name="result")
    return flow


def in_a_pool(llm: ChatGrape, prompts: list[str]) -> list[str]:
    with ThreadPoolExecutor() as pool:
        return [str(message.content) for message in pool.map(llm.invoke, prompts)]


async def in_an_executor(llm: ChatGrape, prompts: list[str]) -> list[str]:
    loop = asyncio.get_running_loop()
    calls = [loop.run_in_executor(None, llm.invoke, prompt) for prompt in prompts]
    return [str(message.content) for message in await asyncio.gather(*calls)]


async def run(graph: Any, **given: Any) -> Any:
    return await graph.ainvoke({"topic": "bees", **given})


@pytest.mark.parametrize("work", [in_a_pool, in_an_executor])
async def test_calls_from_bare_threads_are_tasks_of_their_run(work: Any) -> None:
    engine = make_engine()
    graph = make_graph(ChatGrape(engine=engine), work)
    app = attach(graph, make_flow(), model=engine)
    assert await run(app) == await run(graph)
    attached, plain = engine.calls[:4], engine.calls[4:]
    assert {call.request.task for call in attached} == {"plan", None, "result"}
    assert {(call.task, call.found_by) for call in attached} == {
        ("plan", "name"),
        ("views", "content"),
        ("views#2", "content"),
        ("result", "name"),
    }
    (program,) = engine.programs
    assert {call.program for call in attached} == {program.program_id}
    assert "".join(program.fed["views"]) == ANSWERS["Pros"]
    assert "".join(program.fed["views#2"]) == ANSWERS["Cons"]
    assert {call.found_by for call in plain} == {"none"}
    assert engine.open_programs == ()


@pytest.mark.parametrize("work", [in_a_pool, in_an_executor])
async def test_a_traced_flow_has_them_too(work: Any) -> None:
    engine = make_engine()
    app = attach(make_graph(ChatGrape(engine=engine), work), trace=True, model=engine)
    await run(app)
    assert {(call.task, call.found_by) for call in engine.calls} == {
        ("plan", "name"),
        ("views", "content"),
        ("views#2", "content"),
        ("result", "name"),
    }


async def test_runs_side_by_side_keep_their_calls_apart() -> None:
    engine = make_engine()
    llm = ChatGrape(engine=engine, temperature=1)

    def plan_of(request: Any) -> str:
        text = str(request.messages[-1]["content"])
        return f"{text}, land and fly away" if text.startswith("Plan") else f"re {text}"

    engine._script = plan_of
    app = attach(make_graph(llm, in_an_executor), make_flow(), model=engine)
    topics = [f"bee {number}" for number in range(8)]
    results = await asyncio.gather(*(run(app, topic=topic) for topic in topics))
    assert [result["plan"] for result in results] == [
        f"Plan of {topic}, land and fly away" for topic in topics
    ]
    for program in engine.programs:
        topic = program.inputs["topic"]
        assert f"Pros: Plan of {topic}, land" in "".join(program.fed["views"])
        assert f"Cons: Plan of {topic}, land" in "".join(program.fed["views#2"])
    assert sum(call.found_by == "content" for call in engine.calls) == 2 * len(topics)


def test_the_answer_says_how_its_call_was_found() -> None:
    engine = make_engine()
    llm = ChatGrape(engine=engine)
    program = engine.open_program(make_flow(), {"topic": "bees"})

    def found_by(prompt: str) -> str:
        return str(llm.invoke(prompt).response_metadata["grape"]["found_by"])

    assert [found_by("Plan of bees") for _ in range(2)] == ["content", "none"]
    assert found_by("Plan of wasps") == "none"
    engine.close_program(program)
    assert found_by("Pros: 1. land on the flower") == "none"


def test_a_call_that_fails_may_be_made_again() -> None:
    engine = ScriptedEngine(
        [OSError("the line broke"), "a plan to land on it"], clock=VirtualClock()
    )
    llm = ChatGrape(engine=engine)
    engine.open_program(make_flow(), {"topic": "bees"})
    with pytest.raises(OSError, match="broke"):
        llm.invoke("Plan of bees")
    llm.invoke("Plan of bees")
    assert [call.task for call in engine.calls] == ["plan", "plan"]


def test_a_named_call_takes_the_task_from_a_guessed_one() -> None:
    engine = make_engine()
    llm = ChatGrape(engine=engine)
    program = engine.open_program(make_flow(), {"topic": "bees"})
    guessed = llm.stream("Plan of bees")
    next(guessed)
    (call,) = engine.calls
    real = call.request.model_copy(update={"program": program, "task": "plan"})
    assert "".join(delta.text for delta in engine.stream(real)) == ANSWERS["Plan"]
    list(guessed)
    assert (call.program, call.task) == (None, None)
    fed = "".join(engine.programs[0].fed["plan"])
    assert fed.count("flower") == 1


def test_further_answers_of_one_call_are_no_calls_of_another_run() -> None:
    engine = make_engine()
    llm = ChatGrape(engine=engine, temperature=0.5)

    def plan(state: State) -> State:
        result = llm.generate([[HumanMessage(f"Plan of {state['topic']}")]], n=3)
        return {"plan": result.generations[0][0].text}

    flow = TaskFlow(name="one")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(OutputVar("plan"))
    flow.add_task([("user", "Plan of {topic}")], "plan", name="plan")
    graph = StateGraph(State).add_node("plan", plan).add_edge(START, "plan").compile()
    alike = engine.open_program(make_flow(), {"topic": "bees"})
    attach(graph, flow, model=engine).invoke({"topic": "bees"})
    assert [call.found_by for call in engine.calls] == ["name", "none", "none"]
    assert {call.program for call in engine.calls}.isdisjoint({alike})
