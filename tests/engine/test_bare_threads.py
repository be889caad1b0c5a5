"""Calls from threads without context on a real engine: found by their prompts, same answers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from grape_lc import ChatGrape, GrapeEngine, attach, to_taskflow
from tests.engine.runs import prefilled

TOPICS = ("bees", "a word counter", "parsing dates", "old maps", "a calendar", "chess")
"""One after the other until each call was prefilled: how far that gets is up to the machine."""


class State(TypedDict, total=False):
    topic: str
    plan: str
    views: list[str]
    result: str


def make_graph(engine: GrapeEngine, seen: list[dict[str, Any]]) -> Any:
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=24, ignore_eos=True)

    def ask(prompt: str) -> str:
        answer = llm.invoke(
            [("system", "You write short texts for busy people."), ("user", prompt)]
        )
        seen.append(answer.response_metadata["grape"])
        return str(answer.content)

    def plan(state: State) -> State:
        return {"plan": ask(f"Make a plan for a text about {state['topic']}, in one line.")}

    def views(state: State) -> State:
        prompts = [f"Name {word} of this plan: {state['plan']}" for word in ("merits", "flaws")]
        with ThreadPoolExecutor() as pool:
            return {"views": [*pool.map(ask, prompts)]}

    def result(state: State) -> State:
        merits, flaws = state["views"]
        return {"result": ask(f"Weigh these merits: {merits}\nand these flaws: {flaws}")}

    builder = StateGraph(State).add_node("plan", plan).add_node("views", views)
    builder.add_node("result", result).add_edge(START, "plan")
    return builder.add_edge("plan", "views").add_edge("views", "result").compile()


def test_calls_from_bare_threads_take_over_their_prompts(
    engine: GrapeEngine, quiet: object
) -> None:
    seen: list[dict[str, Any]] = []
    graph = make_graph(engine, seen)
    app = attach(graph, to_taskflow(graph), model=engine)
    seen.clear()  # of the trace
    done = set[int]()
    for topic in TOPICS:
        engine.reset_prefix_cache()
        plain = graph.invoke({"topic": topic})
        assert [call["found_by"] for call in seen] == ["none"] * 4
        seen.clear()
        engine.reset_prefix_cache()
        assert app.invoke({"topic": topic}) == plain
        assert [call["found_by"] for call in seen] == ["name", "content", "content", "name"]
        done |= {number for number, call in enumerate(seen) if prefilled(call)}
        seen.clear()
        if done == {1, 2, 3}:
            return
    raise AssertionError(f"only {done} prefilled in {len(TOPICS)} runs: {engine.stats()}")
