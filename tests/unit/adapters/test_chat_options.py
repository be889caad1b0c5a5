"""Options of calls and of models that go beyond sampling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessageChunk, HumanMessage
from langchain_core.rate_limiters import BaseRateLimiter
from pydantic import ValidationError

from grape_lc import ChatGrape, GrapeEngine, ScriptedEngine
from grape_lc.adapters.chat_serving import Call
from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.errors import (
    CallFailedError,
    CallTimeoutError,
    EngineDiedError,
    RequestError,
    UnsupportedRequestError,
)
from grape_lc.flow import Sampling
from grape_lc.runtime import client, wire
from grape_lc.runtime.scripted import VirtualClock


def engine_of(llm: ChatGrape) -> ScriptedEngine:
    assert isinstance(llm.engine, ScriptedEngine)
    return llm.engine


def streamed(llm: Any, **options: Any) -> AIMessageChunk:
    total: AIMessageChunk | None = None
    for chunk in llm.stream("hi", **options):
        total = chunk if total is None else total + chunk
    assert total is not None
    return total


# -- several answers --------------------------------------------------------------------------


def test_n_gives_as_many_generations() -> None:
    llm = ChatGrape(engine=ScriptedEngine(["one", "two words", "three"]), n=3, seed=7)
    result = llm.generate([[HumanMessage("hi")]])
    assert [g.text for g in result.generations[0]] == ["one", "two words", "three"]
    seeds = [call.request.sampling.seed for call in engine_of(llm).calls]
    assert seeds == [7, 8, 9]


async def test_n_of_one_call() -> None:
    llm = ChatGrape(engine=ScriptedEngine(lambda _: "a b"))
    result = await llm._agenerate([HumanMessage("hi")], n=2)
    assert [g.text for g in result.generations] == ["a b", "a b"]
    assert result.llm_output == {
        "token_usage": {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8},
        "model_name": "scripted",
    }
    assert llm.invoke("hi", n=2).content == "a b"


def test_only_the_first_answer_takes_over_an_open_prompt() -> None:
    request = CallRequest(text="x", program="p", task="t", label="node", sampling=Sampling(seed=1))
    first, second = (call.request for call in Call(request).several(2))
    assert first is request
    assert (second.program, second.task, second.label) == ("p", None, "node")
    assert second.sampling.seed == 2


async def test_a_stream_has_one_answer() -> None:
    llm = ChatGrape(engine=ScriptedEngine("a"), n=2)
    with pytest.raises(UnsupportedRequestError, match="n=2: a stream has one answer"):
        list(llm.stream("hi"))
    with pytest.raises(UnsupportedRequestError, match="n=2"):
        [_ async for _ in llm.astream("hi")]
    assert streamed(llm, n=1).content == "a"
    with pytest.raises(RequestError, match="n=0"):
        llm.invoke("hi", n=0)
    with pytest.raises(ValidationError, match="n=2 with streaming=True"):
        ChatGrape(n=2, streaming=True)


# -- log probabilities ------------------------------------------------------------------------


def entry(token: str, **more: Any) -> dict[str, Any]:
    return {"token": token, "logprob": 0.0, "bytes": list(token.encode()), **more}


def test_log_probabilities_have_openais_form() -> None:
    llm = ChatGrape(engine=ScriptedEngine("né é"), logprobs=True, top_logprobs=1)
    expected = {
        "content": [
            entry("né", top_logprobs=[entry("né")]),
            entry(" é", top_logprobs=[entry(" é")]),
        ]
    }
    assert llm.invoke("hi").response_metadata["logprobs"] == expected
    assert streamed(llm).response_metadata["logprobs"] == expected
    assert [call.request.sampling.logprobs for call in engine_of(llm).calls] == [1, 1]
    assert "logprobs" not in llm.invoke("hi", logprobs=False, top_logprobs=None).response_metadata


def test_those_of_tokens_without_text_are_not_lost() -> None:
    llm = ChatGrape(engine=ScriptedEngine(lambda _: ["", "é", "<tool_", "x"]))
    bound = llm.bind(logprobs=True, tools=[_tool])
    found = streamed(bound).response_metadata["logprobs"]["content"]
    assert [item["token"] for item in found] == ["", "é", "<tool_", "x"]
    assert found == bound.invoke("hi").response_metadata["logprobs"]["content"]


def _tool(x: int) -> int:
    """A tool."""
    return x


def test_bad_log_probability_options() -> None:
    llm = ChatGrape(engine=ScriptedEngine("a"))
    with pytest.raises(RequestError, match="logprobs=5"):
        llm.invoke("hi", logprobs=5)
    with pytest.raises(RequestError, match="top_logprobs=-1"):
        llm.invoke("hi", top_logprobs=-1)
    with pytest.raises(RequestError, match="top_logprobs=2 with logprobs=False"):
        llm.invoke("hi", logprobs=False, top_logprobs=2)
    llm.invoke("hi", top_logprobs=2)
    assert engine_of(llm).calls[0].request.sampling.logprobs == 2


def test_log_probabilities_cross_the_wire() -> None:
    (delta,) = ScriptedEngine("a").stream(CallRequest(text="x", sampling=Sampling(logprobs=1)))
    assert delta.logprobs
    line = wire.encode(wire.delta_message(1, delta))
    assert wire.delta_of(wire.decode(line)) == delta


# -- time limits ------------------------------------------------------------------------------


async def test_a_call_that_takes_too_long_is_ended() -> None:
    engine = ScriptedEngine("a b c", delay=1.0, clock=VirtualClock())
    llm = ChatGrape(engine=engine, timeout=2.5)
    with pytest.raises(CallTimeoutError, match=r"longer than the 2\.5 s"):
        llm.invoke("hi")
    with pytest.raises(TimeoutError):
        await llm.ainvoke("hi")
    assert llm.invoke("hi", timeout=4).content == "a b c"
    assert llm.invoke("hi", timeout=None).content == "a b c"
    assert [call.outcome for call in engine.calls] == ["failed", "failed", "finished", "finished"]
    with pytest.raises(RequestError, match=r"timeout_s=-1.*greater than 0"):
        llm.invoke("hi", timeout=-1)


@pytest.fixture
def word_engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrapeEngine]:
    """An engine in a process of its own, with one that repeats its prompt in the place of vLLM."""
    monkeypatch.setattr(client, "_VLLM", "word_engine:WordEngine")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "runtime" / "hosted"))
    with GrapeEngine("someone/words", progress=False) as engine:
        yield engine


async def test_the_limit_ends_the_call_in_the_engines_host(word_engine: GrapeEngine) -> None:
    llm = ChatGrape(engine=word_engine, timeout=1.5)
    with pytest.raises(CallTimeoutError, match=r"1\.5 s that it was given"):
        llm.invoke("one slow two")
    with pytest.raises(CallTimeoutError):
        [_ async for _ in llm.astream("one slow two")]
    assert llm.invoke("one two", timeout=None).content == "one two "
    stats = word_engine.stats()
    assert (stats["running"], stats["aborted"]) == (0, 2)


# -- trying again -----------------------------------------------------------------------------


class DyingEngine(ScriptedEngine):
    """Dies in its first calls, after ``pieces`` pieces, and starts anew at its next use."""

    def __init__(self, deaths: int, pieces: int = 0, error: Exception | None = None) -> None:
        super().__init__("one two")
        self._left = deaths
        self._pieces = pieces
        self._error = error or EngineDiedError("the engine died")

    def start(self) -> None:
        """An engine that can be started can be started anew."""

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        dies, self._left = self._left > 0, self._left - 1
        for number, delta in enumerate(super().stream(request)):
            if dies and number == self._pieces:
                raise self._error
            yield delta

    async def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        for delta in self.stream(request):
            yield delta


@pytest.mark.parametrize("pieces", [0, 1])
async def test_a_call_is_made_again_when_its_engine_died(pieces: int) -> None:
    def llm(deaths: int) -> ChatGrape:
        return ChatGrape(engine=DyingEngine(deaths, pieces), max_retries=2)

    assert llm(2).invoke("hi").content == "one two"
    assert (await llm(2).ainvoke("hi")).content == "one two"
    with pytest.raises(EngineDiedError):
        llm(3).invoke("hi")
    with pytest.raises(EngineDiedError):
        await llm(3).ainvoke("hi")


async def test_a_stream_is_made_again_only_before_its_first_piece() -> None:
    def llm(pieces: int) -> ChatGrape:
        return ChatGrape(engine=DyingEngine(1, pieces), max_retries=1)

    assert streamed(llm(0)).content == "one two"
    assert [c.content async for c in llm(0).astream("hi")] == ["one", " two"]
    with pytest.raises(EngineDiedError):
        streamed(llm(1))
    with pytest.raises(EngineDiedError):
        [_ async for _ in llm(1).astream("hi")]


def test_what_no_retry_cures_is_not_tried_again() -> None:
    failing = DyingEngine(1, error=CallFailedError("no"))
    with pytest.raises(CallFailedError):
        ChatGrape(engine=failing, max_retries=2).invoke("hi")
    with pytest.raises(EngineDiedError):
        ChatGrape(engine=DyingEngine(1)).invoke("hi")
    gone = ScriptedEngine([EngineDiedError("it cannot be started")] * 2)
    with pytest.raises(EngineDiedError):
        ChatGrape(engine=gone, max_retries=1).invoke("hi")
    assert len(gone.calls) == 1


# -- another model ----------------------------------------------------------------------------


def test_a_call_may_name_another_loaded_model(monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = ScriptedEngine("own", model_name="own"), ScriptedEngine("else", model_name="other")
    loaded: list[ScriptedEngine] = [other]
    monkeypatch.setattr(GrapeEngine, "loaded", lambda: tuple(loaded))
    llm = ChatGrape(engine=own)
    message = llm.invoke("hi", model="other")
    assert (message.content, message.response_metadata["model_name"]) == ("else", "other")
    assert asyncio.run(llm.ainvoke("hi", model="other")).content == "else"
    assert streamed(llm, model="own").content == "own"
    with pytest.raises(UnsupportedRequestError, match=r"'third'; this process has 'other', 'own'"):
        llm.invoke("hi", model="third")
    loaded.append(ScriptedEngine("again", model_name="other"))
    with pytest.raises(UnsupportedRequestError, match=r"2 engines.*give the one that is meant"):
        llm.invoke("hi", model="other")


def test_the_loaded_engines_are_those_that_run(word_engine: GrapeEngine) -> None:
    shared = GrapeEngine.shared("someone/words", progress=False, dtype="float32")
    try:
        assert shared not in GrapeEngine.loaded()
        shared.start()
        assert GrapeEngine.loaded() == (shared,)
        assert ChatGrape("someone/words", progress=False).invoke("hi there", model="someone/words")
    finally:
        shared.close()
        GrapeEngine.shared("someone/words", progress=False).close()
    assert GrapeEngine.loaded() == ()


# -- what LangChain brings --------------------------------------------------------------------


def test_the_cache_keeps_calls_with_and_without_tools_apart() -> None:
    call = '<tool_call>{"name": "_tool", "arguments": {"x": 1}}</tool_call>'
    engine = ScriptedEngine([call, call, "never"])
    llm = ChatGrape(engine=engine, cache=InMemoryCache())
    bound = llm.bind_tools([_tool])
    first = bound.invoke("hi")
    assert bound.invoke("hi").tool_calls == first.tool_calls
    assert llm.invoke("hi").tool_calls == []
    assert len(engine.calls) == 2


class Counter(BaseRateLimiter):
    def __init__(self) -> None:
        self.count = 0

    def acquire(self, *, blocking: bool = True) -> bool:
        self.count += 1
        return blocking

    async def aacquire(self, *, blocking: bool = True) -> bool:
        return self.acquire(blocking=blocking)


async def test_a_rate_limiter_is_asked_before_every_call() -> None:
    limiter = Counter()
    llm = ChatGrape(engine=ScriptedEngine("a"), rate_limiter=limiter)
    llm.invoke("hi")
    streamed(llm)
    await llm.ainvoke("hi")
    assert limiter.count == 3


def test_the_profile_says_what_the_model_can_do() -> None:
    llm = ChatGrape("org/model", max_model_len=512)
    assert llm.profile is not None
    assert (llm.profile["tool_calling"], llm.profile["structured_output"]) == (True, True)
    assert (llm.profile["max_input_tokens"], llm.profile["max_output_tokens"]) == (512, 512)
    assert ChatGrape(profile={"max_input_tokens": 9}).profile == {"max_input_tokens": 9}


class InformedEngine(ScriptedEngine):
    def info(self) -> dict[str, Any]:
        return {"max_model_len": 777}


def test_the_profile_learns_the_size_of_a_running_engine() -> None:
    llm = ChatGrape(engine=InformedEngine("a"))
    assert llm.profile is not None
    assert llm.profile["max_input_tokens"] == 777
    late = ChatGrape("org/model")
    assert late.profile is not None
    assert "max_input_tokens" not in late.profile
    late.engine = InformedEngine("a")
    late.invoke("hi")
    assert late.profile["max_input_tokens"] == 777


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_a_model_can_be_written_down_and_read_again() -> None:
    llm = ChatGrape("org/model", temperature=0, n=2, min_p=0.1, dtype="float32", api_key="secret")
    text = dumps(llm)
    assert "secret" not in text
    again = loads(text, valid_namespaces=["grape_lc"], allowed_objects=[ChatGrape])
    assert isinstance(again, ChatGrape)
    assert again.asdict() == llm.asdict()
    assert (again.engine_args, again.sampling_extra) == ({"dtype": "float32"}, {"min_p": 0.1})


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_a_given_engine_is_written_down_as_its_model() -> None:
    llm = ChatGrape(engine=ScriptedEngine(model_name="some/model"), max_tokens=3)
    again = loads(dumps(llm), valid_namespaces=["grape_lc"], allowed_objects=[ChatGrape])
    assert (again.model, again.engine, again.max_tokens) == ("some/model", None, 3)
