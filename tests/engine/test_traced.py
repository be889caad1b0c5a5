"""Traced prompts with tools in them, and prompts behind a branch, prefilled on a real engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

import pytest
from langchain_core.tools import tool
from langgraph.graph import START, StateGraph
from pydantic import BaseModel

from grape_lc import ChatGrape, GrapeEngine, attach
from tests.engine.runs import prefilled

TOPICS = ("bees", "rivers", "clocks", "bread", "maps", "snow")
"""One after the other until a run was prefilled: how far that gets is up to the machine's load."""

Seen = dict[str, dict[str, Any]]


class Trip(TypedDict, total=False):
    topic: str
    plan: str
    answer: str


@tool
def look_up(word: str) -> str:
    """Say what a word means."""
    return f"{word}: a word"


def with_tools(llm: ChatGrape, seen: Seen) -> Any:
    """A call that shows a tool to the model reads the answer of one that does not."""

    def plan(state: Trip) -> Trip:
        return {"plan": str(llm.invoke(f"Plan a lesson on {state['topic']}.").content)}

    def act(state: Trip) -> Trip:
        messages = [("system", "You teach."), ("user", f"Plan:\n{state['plan']}\nTeach it.")]
        answer = llm.bind_tools([look_up]).invoke(messages)
        seen["act"] = answer.response_metadata["grape"]
        return {"answer": str(answer.content)}

    builder = StateGraph(Trip).add_node("plan", plan).add_node("act", act)
    return builder.add_edge(START, "plan").add_edge("plan", "act").compile()


class Kind(BaseModel):
    """What to write."""

    kind: Literal["poem", "joke"]


class Writing(TypedDict, total=False):
    topic: str
    text: str
    check: str


def with_branches(llm: ChatGrape, seen: Seen) -> Any:
    """``check`` reads the answer of whichever branch was taken."""
    chooser = llm.model_copy(update={"ignore_eos": False, "max_tokens": 60})

    def choose(state: Writing) -> str:
        kind = chooser.with_structured_output(Kind).invoke(f"A poem or a joke on {state['topic']}?")
        assert isinstance(kind, Kind)
        return kind.kind

    def poem(state: Writing) -> Writing:
        return {"text": str(llm.invoke(f"Write a poem on {state['topic']}.").content)}

    def joke(state: Writing) -> Writing:
        return {"text": str(llm.invoke(f"Tell a joke on {state['topic']}.").content)}

    def check(state: Writing) -> Writing:
        prompt = f"A reader sent this, about {state['topic']}:\n{state['text']}\nIs it any good?"
        answer = llm.invoke(prompt)
        seen["check"] = answer.response_metadata["grape"]
        return {"check": str(answer.content)}

    builder = StateGraph(Writing).add_node("start", lambda state: {})
    builder.add_node("poem", poem).add_node("joke", joke).add_node("check", check)
    builder.add_edge(START, "start").add_conditional_edges("start", choose, ["poem", "joke"])
    return builder.add_edge("poem", "check").add_edge("joke", "check").compile()


@pytest.mark.parametrize(("build", "task"), [(with_tools, "act"), (with_branches, "check")])
def test_same_answers_and_prefilled(
    build: Callable[[ChatGrape, Seen], Any], task: str, engine: GrapeEngine, quiet: object
) -> None:
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=24, ignore_eos=True)
    seen: Seen = {}
    graph = build(llm, seen)
    attached = attach(graph, trace=True, learn=False)
    for topic in TOPICS:
        engine.reset_prefix_cache()
        plain = graph.invoke({"topic": topic})
        assert seen[task]["ahead_tokens"] == 0
        engine.reset_prefix_cache()
        assert attached.invoke({"topic": topic}) == plain
        if prefilled(seen[task]):
            return
    pytest.fail(f"no run was prefilled; the last: {seen}")
