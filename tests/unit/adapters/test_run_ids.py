"""Ids of runs that callers give themselves."""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypedDict

import pytest
from langgraph.graph import START, StateGraph

from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach
from grape_lc.runtime.scripted import ScriptedEngine


class Pair(TypedDict, total=False):
    topic: str
    plan: str
    code: str


class Twice:
    """A graph of two calls that waits in front of the second where it is told to."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(lambda request: "an answer of some words")
        self.meeting: threading.Barrier | None = None
        llm = ChatGrape(engine=self.engine)

        def plan(state: Pair) -> Pair:
            return {"plan": str(llm.invoke(f"Plan this: {state['topic']}").content)}

        def code(state: Pair) -> Pair:
            if self.meeting is not None:
                self.meeting.wait(60)
            return {"code": str(llm.invoke(f"Code this: {state['plan']}").content)}

        builder = StateGraph(Pair).add_node("plan", plan).add_node("code", code)
        builder.add_edge(START, "plan").add_edge("plan", "code")
        self.graph: Any = attach(builder.compile(), learned="memory", model=self.engine)
        for number in range(2):
            self.graph.invoke({"topic": f"the topic {number}"})

    @property
    def handler(self) -> ProgramHandler:
        (handler,) = self.graph.config["callbacks"]
        assert isinstance(handler, ProgramHandler)
        return handler


def test_two_runs_at_once_with_one_id_leave_no_program_open() -> None:
    twice = Twice()
    twice.meeting = threading.Barrier(4)
    config = {"run_id": uuid.uuid4()}
    with ThreadPoolExecutor(4) as threads:
        done = list(
            threads.map(lambda _: twice.graph.invoke({"topic": "the topic"}, config), range(4))
        )
    assert [state["code"] for state in done] == ["an answer of some words"] * 4
    assert len(twice.engine.programs) >= 1
    assert twice.engine.open_programs == ()
    assert twice.handler.running == 0


@pytest.mark.parametrize("run_id", [str(uuid.UUID(int=7)), "job 7"])
def test_an_id_that_is_a_text_costs_the_program_and_no_warning(
    run_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    twice = Twice()
    before = len(twice.engine.programs)
    with caplog.at_level(logging.DEBUG, logger="grape_lc.adapters.handler"):
        state = twice.graph.invoke({"topic": "the topic"}, {"run_id": run_id})
    assert state["code"] == "an answer of some words"
    assert caplog.messages == []
    assert len(twice.engine.programs) == before
    assert twice.handler.running == 0
    twice.graph.invoke({"topic": "the topic"})
    assert len(twice.engine.programs) == before + 1
    assert twice.engine.open_programs == ()
