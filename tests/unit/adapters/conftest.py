"""Graphs and engines that several tests of the adapters use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock

ANSWERS = {
    "prd": "  the product\nin two lines \n",
    "design": "the design",
    "risks": "the risks",
    "code": "def solve(): pass",
}


class TeamState(TypedDict, total=False):
    problem: str
    prd: str
    design: str
    risks: str
    code: str


class HoldingClock(VirtualClock):
    """Holds a coroutine for ever before one piece; counts pieces from 0."""

    def __init__(self, hold_at: int) -> None:
        super().__init__()
        self.reached = asyncio.Event()
        self._left = hold_at

    async def asleep(self, seconds: float) -> None:
        self._left -= 1
        if self._left == -1:
            self.reached.set()
            await asyncio.Event().wait()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(ANSWERS, clock=VirtualClock())


@pytest.fixture
def holding_engine() -> Callable[[int], ScriptedEngine]:
    """An engine that holds for ever before piece ``hold_at``, in asynchronous calls."""

    def make(hold_at: int) -> ScriptedEngine:
        return ScriptedEngine(ANSWERS, clock=HoldingClock(hold_at))

    return make


def team_graph(llm: Any, *, use_async: bool = False, **compile_args: Any) -> Any:
    """prd -> (design, risks) -> code: a fan-out and a fan-in, one call each."""

    def node(name: str, prompt: Callable[[TeamState], str]) -> Callable[..., Any]:
        def run(state: TeamState) -> TeamState:
            return {name: llm.invoke(prompt(state)).content}  # type: ignore[misc]

        async def arun(state: TeamState) -> TeamState:
            return {name: (await llm.ainvoke(prompt(state))).content}  # type: ignore[misc]

        return arun if use_async else run

    graph = StateGraph(TeamState)
    graph.add_node("prd", node("prd", lambda s: f"Requirements of {s['problem']}."))
    graph.add_node("design", node("design", lambda s: f"Design this:\n{s['prd'].strip()}"))
    graph.add_node("risks", node("risks", lambda s: f"Risks of {s['problem']}: {s['prd']}"))
    graph.add_node("code", node("code", lambda s: f"Code: {s['design']}; mind {s['risks']}."))
    graph.add_edge(START, "prd")
    graph.add_edge("prd", "design")
    graph.add_edge("prd", "risks")
    graph.add_edge(["design", "risks"], "code")
    graph.add_edge("code", END)
    return graph.compile(**compile_args)


@pytest.fixture
def make_team() -> Callable[..., Any]:
    return team_graph


@pytest.fixture
def team(engine: ScriptedEngine) -> Any:
    return team_graph(ChatGrape(engine=engine))


def make_team_flow() -> TaskFlow:
    flow = TaskFlow(name="team")
    flow.add_variable(InputVar("problem"))
    for name in ("prd", "design", "risks"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("code"))
    flow.add_task([("user", "Requirements of {problem}.")], "prd")
    flow.add_task([("user", "Design this:\n{prd|strip}")], "design")
    flow.add_task([("user", "Risks of {problem}: {prd}")], "risks")
    flow.add_task([("user", "Code: {design}; mind {risks}.")], "code")
    flow.validate_flow()
    return flow


@pytest.fixture
def team_flow() -> TaskFlow:
    return make_team_flow()
