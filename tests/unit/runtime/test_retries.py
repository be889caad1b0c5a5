"""Calls made again when their engine died: by ChatGrape, LangChain and LangGraph.

A host really dies, once; the model is a small engine that answers with the prompt's words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from langgraph.graph import START, StateGraph
from langgraph.types import RetryPolicy
from typing_extensions import TypedDict

import grape_lc
from grape_lc import ChatGrape, GrapeEngine
from grape_lc.errors import EngineDiedError
from grape_lc.runtime import client

HERE = Path(__file__).parent / "hosted"
DEADLY = "dieonce one two"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GrapeEngine]:
    """Its first host dies of DEADLY."""
    monkeypatch.setattr(client, "_VLLM", "word_engine:WordEngine")
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    with GrapeEngine("someone/words", progress=False, died=str(tmp_path / "died")) as engine:
        yield engine


def test_without_retries_it_fails_and_the_next_call_works(engine: GrapeEngine) -> None:
    """By default nothing is made twice."""
    llm = ChatGrape(engine=engine)
    with pytest.raises(EngineDiedError):
        llm.invoke(DEADLY)
    assert llm.invoke(DEADLY).content == "dieonce one two "


@pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream", "batch"])
def test_max_retries_makes_it_again(engine: GrapeEngine, how: str) -> None:
    """Whole calls, and streams that gave nothing yet."""
    llm = ChatGrape(engine=engine, max_retries=1)

    async def collected() -> str:
        return "".join([str(chunk.content) async for chunk in llm.astream(DEADLY)])

    answer = {
        "invoke": lambda: llm.invoke(DEADLY).content,
        "ainvoke": lambda: asyncio.run(llm.ainvoke(DEADLY)).content,
        "stream": lambda: "".join(str(chunk.content) for chunk in llm.stream(DEADLY)),
        "astream": lambda: asyncio.run(collected()),
        "batch": lambda: llm.batch([DEADLY])[0].content,
    }[how]()
    assert answer == "dieonce one two "


def test_a_stream_that_gave_text_ends_with_the_error(engine: GrapeEngine) -> None:
    """What was shown is never shown again."""
    stream = ChatGrape(engine=engine, max_retries=3).stream("one dieonce two")
    assert next(stream).content == "one "
    with pytest.raises(EngineDiedError):
        next(stream)


def test_a_call_that_kills_every_engine_gives_up(engine: GrapeEngine) -> None:
    """After as many times as it was asked to try."""
    with pytest.raises(EngineDiedError):
        ChatGrape(engine=engine, max_retries=2).invoke("die")


def test_langchain_tries_again(engine: GrapeEngine) -> None:
    """``with_retry``, told of our error or of connections in general."""
    llm = ChatGrape(engine=engine)
    for kind in (EngineDiedError, ConnectionError):
        retrying = llm.with_retry(retry_if_exception_type=(kind,), wait_exponential_jitter=False)
        Path(str(engine._shared.settings["args"]["died"])).unlink(missing_ok=True)
        assert retrying.invoke(DEADLY).content == "dieonce one two "


def test_langgraph_tries_again_unless_told_otherwise(engine: GrapeEngine) -> None:
    """Its policy as it comes takes our error for a lost connection."""

    class State(TypedDict, total=False):
        answer: str

    def node(state: State) -> State:
        del state
        return {"answer": str(ChatGrape(engine=engine).invoke(DEADLY).content)}

    builder = StateGraph(State)
    builder.add_node("node", node, retry_policy=RetryPolicy(initial_interval=0.01))
    graph = grape_lc.attach(builder.add_edge(START, "node").compile())
    assert graph.invoke({}) == {"answer": "dieonce one two "}


def test_many_calls_that_are_made_again_share_one_new_engine(engine: GrapeEngine) -> None:
    """Each gets its own answer."""
    llm = ChatGrape(engine=engine, max_retries=1)
    first = engine.pid
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: llm.invoke(f"{DEADLY} {n}").content, range(8)))
    assert answers == [f"dieonce one two {n} " for n in range(8)]
    assert engine.pid != first
