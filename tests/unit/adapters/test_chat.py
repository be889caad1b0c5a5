"""ChatGrape as a LangChain chat model."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from pydantic import ValidationError

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.engine.base import CallDelta, CallRequest, Usage
from grape_lc.errors import (
    CallFailedError,
    EmptyPromptError,
    EngineClosedError,
    RequestError,
    UnsupportedRequestError,
)
from grape_lc.flow import Sampling
from grape_lc.runtime.client import GrapeEngine
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock


class AheadEngine(ScriptedEngine):
    """Says that part of every prompt had been prefilled ahead."""

    def _deliver(self, call: Any, delta: CallDelta) -> CallDelta:
        delta = super()._deliver(call, delta)
        return delta._replace(usage=Usage(10, 3, 7, 6, "adopted", "name")) if delta.usage else delta


@pytest.fixture
def llm() -> ChatGrape:
    return ChatGrape(engine=AheadEngine("one two three", model_name="some/model"))


EXPECTED_USAGE = {
    "input_tokens": 10,
    "output_tokens": 3,
    "total_tokens": 13,
    "input_token_details": {"cache_read": 7},
}
EXPECTED_RESPONSE = {
    "model_name": "some/model",
    "model_provider": "grape",
    "finish_reason": "stop",
    "grape": {
        "ahead_tokens": 6,
        "cached_tokens": 7,
        "ahead_outcome": "adopted",
        "found_by": "name",
    },
}


def requests(llm: ChatGrape) -> list[CallRequest]:
    assert isinstance(llm.engine, ScriptedEngine)
    return [call.request for call in llm.engine.calls]


# -- answers ----------------------------------------------------------------------------------


def check_answer(message: AIMessage) -> None:
    assert message.content == "one two three"
    assert message.usage_metadata == EXPECTED_USAGE
    assert message.response_metadata == EXPECTED_RESPONSE


def check_chunks(chunks: list[AIMessageChunk]) -> None:
    assert [chunk.content for chunk in chunks] == ["one", " two", " three"]
    assert [chunk.usage_metadata for chunk in chunks] == [None, None, EXPECTED_USAGE]
    assert [chunk.chunk_position for chunk in chunks] == [None, None, "last"]
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    check_answer(total)


def test_invoke(llm: ChatGrape) -> None:
    check_answer(llm.invoke("hi"))


async def test_ainvoke(llm: ChatGrape) -> None:
    check_answer(await llm.ainvoke("hi"))


def test_stream(llm: ChatGrape) -> None:
    check_chunks(list(llm.stream("hi")))


async def test_astream(llm: ChatGrape) -> None:
    check_chunks([chunk async for chunk in llm.astream("hi")])


def test_an_empty_answer_still_carries_its_usage() -> None:
    llm = ChatGrape(engine=ScriptedEngine(""))
    (chunk,) = llm.stream("hi")
    assert (chunk.content, chunk.chunk_position) == ("", "last")
    assert chunk.usage_metadata is not None
    assert llm.invoke("hi").content == ""


def test_deltas_without_text_make_no_chunk() -> None:
    llm = ChatGrape(engine=ScriptedEngine(lambda _: ["", "é", "", "!"]))
    assert [chunk.content for chunk in llm.stream("hi")] == ["é", "!"]


def test_batch_and_threads_keep_answers_apart() -> None:
    llm = ChatGrape(engine=ScriptedEngine(lambda r: f"re {r.messages[-1]['content']}"))  # type: ignore[index]
    questions = [f"q{n}" for n in range(40)]
    assert [m.content for m in llm.batch([*questions])] == [f"re {q}" for q in questions]


async def test_sync_calls_work_inside_a_running_loop(llm: ChatGrape) -> None:
    check_answer(llm.invoke("hi"))
    check_chunks(list(llm.stream("hi")))


def test_in_a_chain(llm: ChatGrape) -> None:
    chain = ChatPromptTemplate.from_messages([("system", "s"), ("user", "{x}")]) | llm
    assert (chain | StrOutputParser()).invoke({"x": "{braces}"}) == "one two three"
    assert requests(llm)[0].messages == (
        {"role": "system", "content": "s"},
        {"role": "user", "content": "{braces}"},
    )


# -- callbacks --------------------------------------------------------------------------------


class Tokens(BaseCallbackHandler):
    def __init__(self) -> None:
        self.tokens: list[Any] = []
        self.ends: list[Any] = []
        self.errors: list[BaseException] = []

    def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
        self.tokens.append(token)

    def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.ends.append(response.generations[0][0].message)

    def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.errors.append(error)


async def test_token_callbacks_come_once_a_chunk(llm: ChatGrape) -> None:
    for use_async in (False, True):
        handler = Tokens()
        if use_async:
            [_ async for _ in llm.astream("hi", {"callbacks": [handler]})]
        else:
            list(llm.stream("hi", {"callbacks": [handler]}))
        assert handler.tokens == ["one", " two", " three"]
        check_answer(handler.ends[0])


def test_streaming_makes_invoke_report_tokens(llm: ChatGrape) -> None:
    handler = Tokens()
    llm.invoke("hi", {"callbacks": [handler]})
    assert handler.tokens == []
    streaming = ChatGrape(engine=llm.engine, streaming=True)
    check_answer(streaming.invoke("hi", {"callbacks": [handler]}))
    assert handler.tokens == ["one", " two", " three"]


async def test_astream_events_report_tokens_of_invoke(llm: ChatGrape) -> None:
    events = [event async for event in llm.astream_events("hi", version="v2")]
    chunks = [e["data"]["chunk"] for e in events if e["event"] == "on_chat_model_stream"]
    assert [chunk.content for chunk in chunks] == ["one", " two", " three"]


# -- sampling ---------------------------------------------------------------------------------


def test_settings_and_overrides() -> None:
    llm = ChatGrape(
        engine=ScriptedEngine("a b c"),
        temperature=0.5,
        max_tokens=7,
        min_tokens=1,
        top_p=0.9,
        top_k=5,
        seed=3,
        stop=["END"],
        repetition_penalty=1.1,
        sampling_extra={"min_p": 0.1},
    )
    llm.invoke("hi")
    llm.invoke("hi", stop=["STOP"], temperature=0, seed=4, min_p=0.2, extra={"n": 1})
    llm.bind(max_tokens=2, stop=[]).invoke("hi", ignore_eos=True)
    first, second, third = (request.sampling for request in requests(llm))
    assert first == Sampling(
        temperature=0.5,
        max_tokens=7,
        min_tokens=1,
        top_p=0.9,
        top_k=5,
        seed=3,
        stop=("END",),
        extra={"repetition_penalty": 1.1, "min_p": 0.1},
    )
    assert second == first.model_copy(
        update={
            "stop": ("STOP",),
            "temperature": 0.0,
            "seed": 4,
            "extra": {"repetition_penalty": 1.1, "min_p": 0.2, "n": 1},
        }
    )
    assert third == first.model_copy(update={"max_tokens": 2, "stop": (), "ignore_eos": True})


def test_targets_and_the_tenant_come_from_the_model_or_the_call() -> None:
    llm = ChatGrape(engine=ScriptedEngine("one"), ttft_s=1.5, tbt_s=0.06, tenant="red")
    llm.invoke("hi")
    llm.bind(tenant="blue").invoke("hi", ttft_s=0.5, deadline_s=9)
    llm.invoke("hi", tbt_s=None)
    said = [(r.ttft_s, r.tbt_s, r.deadline_s, r.tenant) for r in requests(llm)]
    assert said == [(1.5, 0.06, None, "red"), (0.5, 0.06, 9.0, "blue"), (1.5, None, None, "red")]
    assert all(request.sampling == Sampling() for request in requests(llm))
    with pytest.raises(RequestError, match=r"call options: ttft_s=-1.*greater than 0"):
        llm.invoke("hi", ttft_s=-1)
    with pytest.raises(ValidationError, match="deadline_s"):
        ChatGrape(deadline_s=0)


def test_stop_ends_the_answer_on_every_path() -> None:
    llm = ChatGrape(engine=ScriptedEngine("one two three"), stop="two")
    assert llm.invoke("hi").content == "one "
    assert "".join(str(c.content) for c in llm.stream("hi", stop=["three"])) == "one two "
    assert asyncio.run(llm.ainvoke("hi", stop=["ne"])).content == "o"


def test_max_tokens_shows_as_finish_reason_length() -> None:
    answer = ChatGrape(engine=ScriptedEngine("one two three"), max_tokens=2).invoke("hi")
    assert answer.content == "one two"
    assert answer.response_metadata["finish_reason"] == "length"


def test_an_unknown_call_option_names_the_known_ones(llm: ChatGrape) -> None:
    with pytest.raises(UnsupportedRequestError, match=r"'temprature'; known: .*temperature"):
        llm.invoke("hi", temprature=0)
    with pytest.raises(UnsupportedRequestError, match="no call option 'best_of', 'echo'"):
        llm.invoke("hi", best_of=2, echo=True)


def test_bad_values_are_refused_at_once(llm: ChatGrape) -> None:
    with pytest.raises(RequestError, match=r"temperature=-1.*greater than or equal to 0"):
        llm.invoke("hi", temperature=-1)
    with pytest.raises(ValidationError, match="top_p=2"):
        ChatGrape(top_p=2)
    assert requests(llm) == []


def test_another_model_than_the_engine_serves_is_refused(llm: ChatGrape) -> None:
    assert llm.invoke("hi", model="some/model").content == "one two three"
    with pytest.raises(UnsupportedRequestError, match=r"'other'; this process has 'some/model'"):
        llm.invoke("hi", model="other")


# -- engine -----------------------------------------------------------------------------------


def test_other_keywords_are_engine_arguments() -> None:
    llm = ChatGrape("org/model", max_model_len=2048, dtype="float32", engine_args={"seed": 1})
    assert llm.model == "org/model"
    assert llm.engine_args == {"seed": 1, "max_model_len": 2048, "dtype": "float32"}
    assert llm.seed is None
    assert llm.engine is None


def test_engine_arguments_beside_an_engine_are_a_mistake() -> None:
    with pytest.raises(ValidationError, match=r"\['max_num_seqs'\] have no effect.*temperature"):
        ChatGrape(engine=ScriptedEngine(), max_num_seqs=0)


def test_errors_of_the_engine_come_through(llm: ChatGrape) -> None:
    failing = ChatGrape(engine=ScriptedEngine([]))
    handler = Tokens()
    with pytest.raises(CallFailedError):
        list(failing.stream("hi", {"callbacks": [handler]}))
    assert isinstance(handler.errors[0], CallFailedError)
    assert isinstance(llm.engine, ScriptedEngine)
    llm.engine.close()
    with pytest.raises(EngineClosedError):
        llm.invoke("hi")


def test_an_empty_prompt_is_refused_before_the_engine_is_asked(llm: ChatGrape) -> None:
    with pytest.raises(EmptyPromptError):
        llm.invoke([])
    assert requests(llm) == []


class LazyEngine(ScriptedEngine):
    """Opens when it is started, as an engine in a process of its own does."""

    def __init__(self) -> None:
        super().__init__("ok")
        self.starts = 0

    @property
    def is_open(self) -> bool:
        return self.starts > 0

    def start(self) -> None:
        self.starts += 1


async def test_the_engine_starts_at_the_first_call() -> None:
    engine = LazyEngine()
    llm = ChatGrape(engine=engine)
    assert engine.starts == 0
    assert (await llm.ainvoke("hi")).content == llm.invoke("hi").content == "ok"
    assert engine.starts == 1


def test_tokens_are_counted_by_the_engine(llm: ChatGrape) -> None:
    assert llm.get_num_tokens("three little words") == 3


# -- cancellation -----------------------------------------------------------------------------


def test_closing_the_stream_ends_the_call(llm: ChatGrape) -> None:
    assert isinstance(llm.engine, ScriptedEngine)
    stream = llm.stream("hi")
    assert next(stream).content == "one"
    stream.close()  # type: ignore[attr-defined]
    assert llm.engine.calls[0].outcome == "cancelled"


@pytest.mark.parametrize("method", ["ainvoke", "astream"])
async def test_cancelling_the_task_ends_the_call(
    method: str, holding_engine: Callable[[int], ScriptedEngine]
) -> None:
    engine = holding_engine(1)
    llm = ChatGrape(engine=engine)

    async def call() -> None:
        if method == "ainvoke":
            await llm.ainvoke("write code")
        else:
            [_ async for _ in llm.astream("write code")]

    task = asyncio.create_task(call())
    await engine.clock.reached.wait()  # type: ignore[attr-defined]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert engine.calls[0].outcome == "cancelled"


async def test_closing_the_async_stream_ends_the_call(llm: ChatGrape) -> None:
    assert isinstance(llm.engine, ScriptedEngine)
    stream = llm.astream("hi")
    assert (await anext(stream)).content == "one"
    await stream.aclose()  # type: ignore[attr-defined]
    # LangChain leaves the inner generator to the loop's finalizer.
    for _ in range(100):
        if llm.engine.calls[0].outcome != "running":
            break
        await asyncio.sleep(0.001)
    assert llm.engine.calls[0].outcome == "cancelled"


# -- identity ---------------------------------------------------------------------------------


def test_caches_tell_settings_apart() -> None:
    engine = ScriptedEngine(["first", "second", "third"])
    cache = InMemoryCache()
    cold = ChatGrape(engine=engine, temperature=0, cache=cache)
    warm = ChatGrape(engine=engine, temperature=1, cache=cache)
    assert [cold.invoke("hi").content, cold.invoke("hi").content] == ["first", "first"]
    assert warm.invoke("hi").content == "second"
    assert cold.invoke("hi", seed=1).content == "third"


def test_langsmith_params(llm: ChatGrape) -> None:
    llm = ChatGrape(engine=llm.engine, temperature=0.5, stop=["a"])
    assert llm._get_ls_params(max_tokens=9) == {
        "ls_provider": "grape",
        "ls_model_type": "chat",
        "ls_model_name": "some/model",
        "ls_temperature": 0.5,
        "ls_max_tokens": 9,
        "ls_stop": ["a"],
    }
    assert llm._get_ls_params(model="other")["ls_model_name"] == "other"
    assert llm._llm_type == "grape-chat"


def test_the_engine_is_no_part_of_the_description(llm: ChatGrape) -> None:
    assert "engine" not in llm.model_dump()
    assert "Engine" not in repr(llm)
    assert llm.model_copy().engine is llm.engine
    assert copy.copy(llm).engine is llm.engine


def test_model_names_without_an_engine() -> None:
    assert ChatGrape("org/model")._identifying_params["model"] == "org/model"
    assert ChatGrape(temperature=0).asdict()["temperature"] == 0.0


def test_a_slow_engine_streams_as_it_goes() -> None:
    clock = VirtualClock()
    llm = ChatGrape(engine=ScriptedEngine("a b c", delay=1.0, clock=clock))
    arrivals = [clock.now() for _ in llm.stream([HumanMessage("hi")])]
    assert arrivals == [1.0, 2.0, 3.0]


# -- the default engine -----------------------------------------------------------------------


def test_without_an_engine_the_shared_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, dict[str, Any]]] = []
    engine = LazyEngine()

    def shared(model: str | None = None, **engine_args: Any) -> ScriptedEngine:
        asked.append((model, engine_args))
        return engine

    monkeypatch.setattr(GrapeEngine, "shared", shared)
    llm = ChatGrape("org/model", dtype="float32", temperature=0)
    assert asked == []
    answers = [llm.invoke("hi").content, asyncio.run(llm.ainvoke("hi")).content]
    assert answers == ["ok", "ok"]
    assert asked == [("org/model", {"dtype": "float32"})] * 2
    assert engine.starts == 1


def test_a_misspelt_field_is_noticed_at_once():
    with pytest.raises(ValidationError, match="did you mean 'temperature'"):
        ChatGrape(temprature=0)
    assert ChatGrape(max_num_seqs=4).engine_args == {"max_num_seqs": 4}
