"""Chains outside of any graph: attach refuses them, and attached graphs leave them alone."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate

from grape_lc import ChatGrape, ScriptedEngine, attach, to_taskflow
from tests.shapes import SHAPES
from tests.shapes.answers import reply
from tests.shapes.coverage import play

TEXTS = ("why bridges hum", "  the price of {salt}\n", "数据")


def chain(engine: ScriptedEngine) -> Any:
    prompt = ChatPromptTemplate.from_messages([("system", "Be brief."), ("human", "Tell: {text}")])
    return prompt | ChatGrape(engine=engine) | StrOutputParser()


def test_attach_takes_graphs_only() -> None:
    with pytest.raises(TypeError, match="not a compiled LangGraph graph but RunnableSequence"):
        attach(chain(ScriptedEngine(reply)))


async def test_a_chain_beside_attached_graphs() -> None:
    """It answers the same as on an engine of its own, while runs of a graph go on."""
    alone = chain(ScriptedEngine(reply))
    inputs = [{"text": text} for text in TEXTS]
    expected = [alone.invoke(given) for given in inputs]
    assert len(set(expected)) == len(TEXTS)
    engine = ScriptedEngine(reply)
    beside = chain(engine)
    shape = SHAPES[0]
    graph = shape.build(ChatGrape(engine=engine))
    attached = attach(graph, to_taskflow(graph), model=engine)
    items = attached.astream(shape.runs[0].turns[0], stream_mode="messages")
    await anext(items)
    assert len(engine.open_programs) == 1
    assert [beside.invoke(given) for given in inputs] == expected
    assert await beside.abatch(inputs) == expected
    assert [[part async for part in beside.astream(given)] for given in inputs] == [
        [part async for part in alone.astream(given)] for given in inputs
    ]
    events = [event async for event in beside.astream_events(inputs[0], version="v2")]
    assert events[-1]["data"]["output"] == expected[0]
    async for _ in items:
        pass
    outside = [call for call in engine.calls if "Tell: " in call.prompt]
    assert len(outside) == 3 * len(TEXTS) + 1
    assert {(call.program, call.task) for call in outside} == {(None, None)}
    assert not engine.open_programs


def test_calls_that_the_flow_does_not_name() -> None:
    """Most of the graph's calls have no task in this flow, one has a prompt of another app."""
    shape = next(shape for shape in SHAPES if shape.name == "sequence")
    engine = ScriptedEngine(reply)
    graph = shape.build(ChatGrape(engine=engine))
    flow = to_taskflow(SHAPES[0].build(ChatGrape(engine=engine)))
    renamed = flow.model_copy(
        update={
            "tasks": tuple(
                task.model_copy(update={"name": name})
                for task, name in zip(flow.tasks, ("judge", "judge#2", "judge#3"), strict=True)
            )
        }
    )
    plain = play(graph, shape, shape.runs[0], thread="t")
    assert play(attach(graph, renamed), shape, shape.runs[0], thread="t") == plain
    assert not engine.open_programs
