"""GrapeLLM as a LangChain model for text."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.load import dumps, loads
from langchain_core.prompts import PromptTemplate
from pydantic import ValidationError

from grape_lc import GrapeLLM, ScriptedEngine
from grape_lc.engine.base import CallRequest
from grape_lc.errors import EmptyPromptError, EngineDiedError, UnsupportedRequestError


def repeat(request: CallRequest) -> str:
    return f"re {request.text}"


@pytest.fixture
def llm() -> GrapeLLM:
    return GrapeLLM(engine=ScriptedEngine(repeat, model_name="some/model"), temperature=0)


def requests(llm: GrapeLLM) -> list[CallRequest]:
    assert isinstance(llm.engine, ScriptedEngine)
    return [call.request for call in llm.engine.calls]


async def test_every_way_to_call_it(llm: GrapeLLM) -> None:
    assert llm.invoke("a b") == await llm.ainvoke("a b") == "re a b"
    assert list(llm.stream("a b")) == ["re", " a", " b"]
    assert [text async for text in llm.astream("a b")] == ["re", " a", " b"]
    assert llm.batch(["x", "y"]) == ["re x", "re y"]
    assert (PromptTemplate.from_template("{q}!") | llm).invoke({"q": "why"}) == "re why!"
    assert all(request.messages is None for request in requests(llm))


def test_an_answer_carries_its_usage(llm: GrapeLLM) -> None:
    result = llm.generate(["a b", "c"])
    info = result.generations[0][0].generation_info
    assert info is not None
    assert (info["finish_reason"], info["model_name"]) == ("stop", "some/model")
    assert info["usage_metadata"]["output_tokens"] == 3
    assert info["grape"]["ahead_outcome"] == "none"
    assert result.llm_output is not None
    assert result.llm_output["token_usage"]["completion_tokens"] == 5
    *_, last = llm._stream("a")
    assert last.generation_info is not None
    assert last.generation_info.keys() == info.keys()


def test_n_gives_as_many_answers_for_each_prompt(llm: GrapeLLM) -> None:
    result = llm.generate(["a", "b"], n=2)
    texts = [[generation.text for generation in prompt] for prompt in result.generations]
    assert texts == [["re a", "re a"], ["re b", "re b"]]
    with pytest.raises(UnsupportedRequestError, match="n=2: a stream has one answer"):
        list(llm.stream("a", n=2))


def test_options_and_refusals(llm: GrapeLLM) -> None:
    assert llm.invoke("a b", stop=["b"], max_tokens=9) == "re a "
    assert requests(llm)[0].sampling.max_tokens == 9
    with pytest.raises(UnsupportedRequestError, match="GrapeLLM has no call option 'tools'"):
        llm.invoke("a", tools=[])
    with pytest.raises(EmptyPromptError):
        llm.invoke("")
    with pytest.raises(ValidationError, match="GrapeLLM has no field 'temprature'"):
        GrapeLLM(temprature=0)


def test_failures_come_through() -> None:
    failing = GrapeLLM(engine=ScriptedEngine([EngineDiedError("gone")]))
    with pytest.raises(EngineDiedError):
        failing.invoke("a")


async def test_cancelling_the_task_ends_the_call(holding_engine: Any) -> None:
    engine = holding_engine(1)
    task = asyncio.create_task(GrapeLLM(engine=engine).ainvoke("code"))
    await engine.clock.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.calls[0].outcome == "cancelled"


def test_closing_the_stream_ends_the_call(llm: GrapeLLM) -> None:
    stream = llm.stream("a b")
    assert next(stream) == "re"
    stream.close()  # type: ignore[attr-defined]
    assert isinstance(llm.engine, ScriptedEngine)
    assert llm.engine.calls[0].outcome == "cancelled"


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_identity(llm: GrapeLLM) -> None:
    assert llm._llm_type == "grape-llm"
    params = llm._get_ls_params(model="other", stop=["x"])
    assert (params["ls_provider"], params["ls_model_name"]) == ("grape", "other")
    assert (params["ls_model_type"], params["ls_stop"]) == ("llm", ["x"])
    assert llm.get_num_tokens("three little words") == 3
    cached = GrapeLLM(engine=ScriptedEngine(["one", "two"]), cache=InMemoryCache())
    assert [cached.invoke("a"), cached.invoke("a"), cached.invoke("b")] == ["one", "one", "two"]
    again = loads(dumps(llm), valid_namespaces=["grape_lc"], allowed_objects=[GrapeLLM])
    assert (again.model, again.temperature) == ("some/model", 0)
