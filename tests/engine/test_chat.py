"""Tools, schemas and options of ChatGrape on a real engine."""

from __future__ import annotations

import asyncio
from typing import Any, Literal, TypedDict

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, Field

from grape_lc import (
    ChatGrape,
    GrapeEngine,
    GrapeLLM,
    InputVar,
    IntermediateVar,
    OutputVar,
    TaskFlow,
    attach,
)
from grape_lc.engine.base import CallRequest
from grape_lc.errors import CallTimeoutError, RequestError
from tests.engine.runs import prefilled


class Weather(BaseModel):
    """The weather at a place."""

    place: str = Field(max_length=20)
    sky: Literal["clear", "cloudy"]
    degrees: int = Field(ge=-50, le=50)


def get_weather(place: str) -> str:
    """Ask for the weather at a place."""
    return f"clear at {place}"


def wait(seconds: int) -> str:
    """Wait some seconds."""
    return f"{seconds} s later"


@pytest.fixture
def llm(engine: GrapeEngine) -> ChatGrape:
    return ChatGrape(engine=engine, temperature=0, max_tokens=64)


def prompt_of(engine: GrapeEngine, **request: Any) -> str:
    """The prompt as the engine would serve it, as text."""
    from transformers import AutoTokenizer

    ids = engine.prompt_token_ids(CallRequest(**request))
    return str(AutoTokenizer.from_pretrained(engine.model_name).decode(ids))


def test_a_schema_binds_the_answer(llm: ChatGrape, quiet: object) -> None:
    chain = llm.with_structured_output(Weather)
    weather = chain.invoke("What is the weather in Paris, as place, sky and degrees?")
    assert isinstance(weather, Weather)
    *_, streamed = chain.stream("What is the weather in Paris, as place, sky and degrees?")
    assert streamed == weather


class Report(TypedDict, total=False):
    place: str
    report: str
    weather: str


def test_an_object_is_the_same_with_and_without_work_ahead(
    llm: ChatGrape, engine: GrapeEngine, quiet: object
) -> None:
    """A schema leaves the prompt as it is: what was prefilled ahead is all used."""
    seen: list[dict[str, Any]] = []
    chain = llm.with_structured_output(Weather, include_raw=True, max_tokens=24)

    async def report(state: Report) -> Report:
        prompt = f"Describe the weather at {state['place']}."
        answer = await llm.ainvoke(prompt, max_tokens=24, ignore_eos=True)
        return {"report": answer.text}

    async def weather(state: Report) -> Report:
        prompt = f"Report:\n{state['report']}\nSay place, sky and degrees."
        answer = await chain.ainvoke(prompt)
        seen.append(answer["raw"].response_metadata["grape"])
        return {"weather": answer["raw"].text}

    builder = StateGraph(Report)
    builder.add_node("report", report)
    builder.add_node("weather", weather)
    builder.add_edge(START, "report").add_edge("report", "weather")
    graph = builder.compile()

    flow = TaskFlow()
    flow.add_variable(InputVar("place"))
    flow.add_variable(IntermediateVar("report"))
    flow.add_variable(OutputVar("weather"))
    flow.add_task([("user", "Describe the weather at {place}.")], "report")
    flow.add_task([("user", "Report:\n{report}\nSay place, sky and degrees.")], "weather")

    attached = attach(graph, flow, model=engine)
    # How far a prompt gets ahead is up to the machine's load: some runs to get there.
    last: dict[str, Any] = {}
    for place in ("Paris", "Oslo", "Cairo", "Lima", "Delhi", "Quito"):
        engine.reset_prefix_cache()
        plain = asyncio.run(graph.ainvoke({"place": place}))
        assert seen.pop()["ahead_tokens"] == 0
        engine.reset_prefix_cache()
        ahead = asyncio.run(attached.ainvoke({"place": place}))
        assert ahead == plain
        assert ahead["weather"].startswith("{")
        last = seen.pop()
        if prefilled(last):
            return
    pytest.fail(f"no prompt was prefilled; the last: {last}")


def test_a_named_tool_is_called_and_streamed_alike(llm: ChatGrape, quiet: object) -> None:
    bound = llm.bind_tools([get_weather, wait], tool_choice="wait")
    message = bound.invoke("Hello")
    (call,) = message.tool_calls
    assert call["name"] == "wait"
    assert isinstance(call["args"]["seconds"], int)
    total: AIMessageChunk | None = None
    count = 0
    for chunk in bound.stream("Hello"):
        assert isinstance(chunk, AIMessageChunk)
        count += bool(chunk.tool_call_chunks)
        total = chunk if total is None else total + chunk
    assert total is not None
    assert [(c["name"], c["args"]) for c in total.tool_calls] == [("wait", call["args"])]
    assert total.content == message.content == ""
    assert count > 1


def test_several_calls_can_be_forced(llm: ChatGrape, quiet: object) -> None:
    bound = llm.bind_tools([wait], tool_choice="any", parallel_tool_calls=True)
    message = bound.invoke("Wait 3 seconds, then 4 seconds.", max_tokens=200)
    assert message.tool_calls
    assert all(call["name"] == "wait" for call in message.tool_calls)


def test_tools_and_a_schema_together(llm: ChatGrape, quiet: object) -> None:
    chain = llm.with_structured_output(Weather, tools=[get_weather], include_raw=True)
    answer = chain.invoke("What is the weather in Paris?")
    assert bool(answer["raw"].tool_calls) != isinstance(answer["parsed"], Weather), answer


def test_tools_are_in_the_prompt_of_a_template_that_knows_none(engine: GrapeEngine) -> None:
    tool = {"type": "function", "function": {"name": "wait", "description": "Wait."}}
    messages: tuple[dict[str, Any], ...] = ({"role": "user", "content": "hi"},)
    plain = prompt_of(engine, messages=messages)
    shown = prompt_of(engine, messages=messages, tools=(tool,))
    assert "<tools>" not in plain
    assert '{"type": "function", "function": {"name": "wait", "description": "Wait."}}' in shown
    assert shown.count("<|im_start|>system") == 1
    assert shown.endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_calls_and_results_are_in_the_prompt(llm: ChatGrape, engine: GrapeEngine) -> None:
    call = {"name": "wait", "args": {"seconds": 3}, "id": "c1", "type": "tool_call"}
    history = [
        HumanMessage("Wait 3 s."),
        AIMessage("", tool_calls=[call]),
        ToolMessage("done", tool_call_id="c1"),
    ]
    from grape_lc.adapters.messages import to_chat

    prompt = prompt_of(engine, messages=to_chat(history))
    assert '<tool_call>\n{"name": "wait", "arguments": {"seconds": 3}}\n</tool_call>' in prompt
    assert "<|im_start|>user\n<tool_response>\ndone\n</tool_response><|im_end|>" in prompt
    assert llm.bind_tools([wait]).invoke(history, max_tokens=4).content


@pytest.mark.parametrize("parser", ["pythonic", "xlam"])
def test_vllms_parsers_read_answers(llm: ChatGrape, parser: str, quiet: object) -> None:
    plain = llm.bind_tools([wait]).invoke("Say hello.", max_tokens=12)
    other = ChatGrape(engine=llm.engine, temperature=0, tool_parser=parser)
    message = other.bind_tools([wait]).invoke("Say hello.", max_tokens=12)
    assert message.text == plain.text
    # The answer is forced to be a call in that form, and read by the parser.
    form = {
        "pythonic": r"\[wait\(seconds=3\)\]",
        "xlam": r'\[\{"name": "wait", "arguments": \{"seconds": 3\}\}\]',
    }
    rules = {"regex": form[parser]}
    called = other.bind_tools([wait]).invoke("Wait.", structured_outputs=rules)
    assert [(c["name"], c["args"]) for c in called.tool_calls] == [("wait", {"seconds": 3})]
    total: AIMessageChunk | None = None
    for chunk in other.bind_tools([wait]).stream("Wait.", structured_outputs=rules):
        assert isinstance(chunk, AIMessageChunk)
        total = chunk if total is None else total + chunk
    assert total is not None
    assert [(c["name"], c["args"]) for c in total.tool_calls] == [("wait", {"seconds": 3})]


def test_bad_schemas_and_parsers_are_refused(llm: ChatGrape, quiet: object) -> None:
    with pytest.raises(RequestError, match="bad sampling parameters"):
        llm.invoke("hi", structured_outputs={"regex": "("})
    with pytest.raises(RequestError, match=r"tool_parser='nobody'; this vLLM knows: .*hermes"):
        ChatGrape(engine=llm.engine, tool_parser="nobody").bind_tools([wait]).invoke("hi")
    with pytest.raises(RequestError, match="'llama3_json' does not work with this model"):
        ChatGrape(engine=llm.engine, tool_parser="llama3_json").bind_tools([wait]).invoke("hi")


def test_several_answers_and_log_probabilities(llm: ChatGrape, quiet: object) -> None:
    result = llm.generate(
        [[HumanMessage("Name a colour.")]], n=3, temperature=1, seed=5, max_tokens=8
    )
    texts = [generation.text for generation in result.generations[0]]
    assert len(texts) == 3
    assert len(set(texts)) > 1
    message = llm.invoke("Name a colour.", top_logprobs=2, max_tokens=4)
    content = message.response_metadata["logprobs"]["content"]
    assert "".join(item["token"] for item in content) == message.content
    for item in content:
        first, second = item["top_logprobs"]
        assert (item["token"], item["logprob"]) == (first["token"], first["logprob"])
        assert 0 >= first["logprob"] >= second["logprob"]


def test_a_time_limit_ends_the_call_in_the_engine(
    llm: ChatGrape, engine: GrapeEngine, quiet: dict[str, Any]
) -> None:
    with pytest.raises(CallTimeoutError, match=r"1\.0 s that it was given"):
        llm.invoke("Tell a long story.", max_tokens=1000, ignore_eos=True, timeout=1)
    # ``quiet`` sees that nothing of it is left. Steps are counted: each makes one token at most.
    assert engine.stats()["steps"] - quiet["steps"] < 1000


def test_the_profile_knows_the_engine(llm: ChatGrape) -> None:
    assert llm.profile is not None
    assert llm.profile["max_input_tokens"] == 2048


async def test_completions(engine: GrapeEngine, quiet: object) -> None:
    llm = GrapeLLM(engine=engine, temperature=0, max_tokens=6)
    whole = llm.invoke("One, two, three,")
    assert "four" in whole
    assert "".join([text async for text in llm.astream("One, two, three,")]) == whole
    both = await asyncio.gather(*(llm.ainvoke("One, two, three,") for _ in range(2)))
    assert both == [whole, whole]
