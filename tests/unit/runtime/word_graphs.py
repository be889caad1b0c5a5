"""A host process with the word engine, and graphs and flows on it: an answer is its own prompt."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from grape_lc import ChatGrape, GrapeEngine
from grape_lc.engine.base import CallDelta
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime import client

HOSTED = Path(__file__).parent / "hosted"
MODEL = "someone/words"
LIMIT_S = 240.0

BASE = {"programs": 0, "running": 0, "open_prompts": 0, "calls": 0, "waiting": 0}
"""An idle host: its engine's own, calls of the host, calls that the client waits for."""


@contextmanager
def word_hosts(engine: str = "word_engine:WordEngine") -> Iterator[None]:
    """Hosts that start in here load a word engine instead of vLLM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "_VLLM", engine)
        patch.setenv("PYTHONPATH", str(HOSTED))
        yield


def until(true: Callable[[], bool], what: str = "it") -> None:
    """Wait until something holds; garbage is collected meanwhile."""
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, f"never: {what}"
        gc.collect()
        time.sleep(0.005)


def text_of(deltas: Iterable[CallDelta]) -> str:
    """The whole answer."""
    return "".join(delta.text for delta in deltas)


def left_in(engine: GrapeEngine) -> dict[str, int]:
    """What ``BASE`` names."""
    stats = engine.stats()
    found: dict[str, int] = {name: stats[name] for name in ("programs", "running", "open_prompts")}
    return {**found, "calls": stats["host"]["calls"], "waiting": stats["client"]["calls"]}


def until_idle(engine: GrapeEngine) -> None:
    """Wait until nothing of any call or run is left."""
    until(lambda: left_in(engine) == BASE, "an idle host")


def flow() -> TaskFlow:
    """plan -> (pro, contra) -> text."""
    flow = TaskFlow(name="words")
    flow.add_variable(InputVar("topic"))
    for name in ("plan", "pro", "contra"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("text"))
    flow.add_task([("user", "plan {topic}")], "plan")
    flow.add_task([("user", "for {plan|strip}")], "pro")
    flow.add_task([("user", "against {plan|strip}")], "contra")
    flow.add_task([("user", "weigh {pro|strip} and {contra|strip}")], "text")
    return flow


def two_tasks() -> TaskFlow:
    """plan -> text."""
    flow = TaskFlow(name="two")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("text"))
    flow.add_task("plan {topic} now", "plan")
    flow.add_task([("user", "write {plan|strip} out")], "text")
    return flow


class State(TypedDict, total=False):
    topic: str
    plan: str
    pro: str
    contra: str
    text: str


Hook = Callable[[str, str], None]
"""Called with the name of a node, and ``before`` or ``after`` its call."""


def graph(engine: GrapeEngine, *, use_async: bool, hook: Hook | None = None, **model: Any) -> Any:
    """The graph of ``flow``. model: settings of its ChatGrape."""
    llm = ChatGrape(engine=engine, **model)
    tell: Hook = hook if hook is not None else lambda name, when: None

    def node(name: str, prompt: Callable[[Any], str]) -> Any:
        def run(state: State) -> Any:
            tell(name, "before")
            answer = llm.invoke(prompt(state)).content
            tell(name, "after")
            return {name: answer}

        async def arun(state: State) -> Any:
            tell(name, "before")
            answer = (await llm.ainvoke(prompt(state))).content
            tell(name, "after")
            return {name: answer}

        return arun if use_async else run

    builder = StateGraph(State)
    builder.add_node("plan", node("plan", lambda s: f"plan {s['topic']}"))
    builder.add_node("pro", node("pro", lambda s: f"for {s['plan'].strip()}"))
    builder.add_node("contra", node("contra", lambda s: f"against {s['plan'].strip()}"))
    builder.add_node(
        "text", node("text", lambda s: f"weigh {s['pro'].strip()} and {s['contra'].strip()}")
    )
    builder.add_edge(START, "plan").add_edge("plan", "pro").add_edge("plan", "contra")
    builder.add_edge(["pro", "contra"], "text")
    return builder.compile()
