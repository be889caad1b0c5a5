"""Tools of a call: how they are described, chosen and forced."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from pydantic import BaseModel

from grape_lc import ChatGrape, ScriptedEngine
from grape_lc.adapters.chat_tools import call_schema, choose, describe_tools
from grape_lc.engine.base import CallDelta, CallPiece, CallRequest, Usage
from grape_lc.errors import RequestError


@tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a thing"


class Add(BaseModel):
    """Add two numbers."""

    a: int
    b: int = 0


class Wait(TypedDict):
    """Wait a little."""

    seconds: float


LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    },
}
CALL = '<tool_call>\n{"name": "look_up", "arguments": {"word": "cat"}}\n</tool_call>'


def engine_of(llm: ChatGrape) -> ScriptedEngine:
    assert isinstance(llm.engine, ScriptedEngine)
    return llm.engine


def last(llm: ChatGrape) -> CallRequest:
    return engine_of(llm).calls[-1].request


@pytest.fixture
def llm() -> ChatGrape:
    return ChatGrape(engine=ScriptedEngine(CALL))


# -- what the engine is told ------------------------------------------------------------------


def test_every_kind_of_tool_is_described() -> None:
    def shout(text: str) -> str:
        """Shout."""
        return text

    schema = {"title": "note", "type": "object", "properties": {"x": {"type": "string"}}}
    described = describe_tools([look_up, Add, Wait, shout, schema, LOOK_UP])
    assert described[0] == described[-1] == LOOK_UP
    names = [item["function"]["name"] for item in described]
    assert names == ["look_up", "Add", "Wait", "shout", "note", "look_up"]


def test_voluntary_tools_reach_the_engine_and_leave_the_sampling_free(llm: ChatGrape) -> None:
    for choice in (None, "auto", False):
        message = llm.bind_tools([look_up], tool_choice=choice).invoke("hi")
        assert message.tool_calls[0]["args"] == {"word": "cat"}
        assert last(llm).tools == (LOOK_UP,)
        assert last(llm).sampling.structured_outputs is None
        # The tags are special tokens of some models.
        assert last(llm).sampling.extra == {"skip_special_tokens": False}


@pytest.mark.parametrize("choice", ["any", "required", True])
def test_a_call_can_be_required(llm: ChatGrape, choice: Any) -> None:
    bound = llm.bind_tools([look_up, Add], tool_choice=choice)
    engine_of(llm)._script = '{"name": "Add", "arguments": {"a": 1}}'
    assert bound.invoke("hi").tool_calls[0]["name"] == "Add"
    rules = last(llm).sampling.structured_outputs
    assert rules is not None
    assert [form["properties"]["name"] for form in rules["json"]["anyOf"]] == [
        {"const": "look_up"},
        {"const": "Add"},
    ]
    assert last(llm).sampling.extra == {}


@pytest.mark.parametrize("choice", ["Add", {"type": "function", "function": {"name": "Add"}}])
def test_a_tool_can_be_named(llm: ChatGrape, choice: Any) -> None:
    llm.bind_tools([look_up, Add], tool_choice=choice).invoke("hi")
    assert len(last(llm).tools) == 2
    rules = last(llm).sampling.structured_outputs
    assert rules is not None
    assert rules["json"]["properties"]["name"] == {"const": "Add"}
    assert rules["json"]["properties"]["arguments"]["required"] == ["a"]


def test_none_forbids_calls_and_shows_no_tools(llm: ChatGrape) -> None:
    message = llm.bind_tools([look_up], tool_choice="none").invoke("hi")
    assert (message.content, message.tool_calls, last(llm).tools) == (CALL, [], ())


def test_several_calls_can_be_forced(llm: ChatGrape) -> None:
    bound = llm.bind_tools([Add], tool_choice="any", parallel_tool_calls=True)
    engine_of(
        llm
    )._script = '[{"name": "Add", "arguments": {"a": 1}}, {"name": "Add", "arguments": {"a": 2}}]'
    assert [c["args"] for c in bound.invoke("hi").tool_calls] == [{"a": 1}, {"a": 2}]
    rules = last(llm).sampling.structured_outputs
    assert rules is not None
    assert (rules["json"]["type"], rules["json"]["minItems"]) == ("array", 1)


def test_a_call_can_say_otherwise(llm: ChatGrape) -> None:
    bound = llm.bind_tools([look_up], tool_choice="any")
    assert bound.invoke("hi", tool_choice="none").content == CALL
    assert llm.invoke("hi", tools=[look_up]).tool_calls
    assert llm.invoke("hi", tools=[]).content == CALL


def test_references_in_parameters_stay_inside_their_call() -> None:
    def tool_with(kind: str) -> dict[str, Any]:
        leaf = {"type": kind}
        parameters = {
            "type": "object",
            "properties": {"x": {"type": "array", "items": {"$ref": "#/$defs/Leaf"}}},
            "$defs": {"Leaf": leaf},
        }
        return {"type": "function", "function": {"name": kind, "parameters": parameters}}

    schema = call_schema([tool_with("string"), tool_with("integer")], parallel=False)
    assert schema["$defs"] == {"0.Leaf": {"type": "string"}, "1.Leaf": {"type": "integer"}}
    arguments = [form["properties"]["arguments"] for form in schema["anyOf"]]
    assert [a["properties"]["x"]["items"]["$ref"] for a in arguments] == [
        "#/$defs/0.Leaf",
        "#/$defs/1.Leaf",
    ]
    assert all("$defs" not in a for a in arguments)


def test_a_tool_without_parameters_takes_no_arguments() -> None:
    bare = {"type": "function", "function": {"name": "now"}}
    arguments = call_schema([bare], parallel=False)["properties"]["arguments"]
    assert arguments == {"type": "object", "properties": {}, "additionalProperties": False}


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["lookup", 3, {"type": "tool", "name": "look_up"}, {}])
def test_an_unknown_choice_names_the_known_ones(llm: ChatGrape, choice: Any) -> None:
    with pytest.raises(RequestError, match=r"tool_choice=.*known: 'auto', 'any'.*tools: look_up"):
        llm.bind_tools([look_up], tool_choice=choice)


def test_bad_tools_are_refused(llm: ChatGrape) -> None:
    with pytest.raises(RequestError, match=r"tool 1 \(3\) cannot be described"):
        llm.bind_tools([look_up, 3])
    with pytest.raises(RequestError, match="tool 0 is of type 'web_search'"):
        llm.bind_tools([{"type": "web_search"}])
    with pytest.raises(RequestError, match="same name: look_up"):
        llm.bind_tools([look_up, LOOK_UP]).invoke("hi")
    with pytest.raises(RequestError, match="tool_choice='any' without tools"):
        choose("any", [])
    assert engine_of(llm).calls == ()


# -- conversations ----------------------------------------------------------------------------


def test_calls_and_their_results_go_back_to_the_model(llm: ChatGrape) -> None:
    bound = llm.bind_tools([look_up])
    question = HumanMessage("what is a cat?")
    answer = bound.invoke([question])
    result = look_up.invoke(answer.tool_calls[0])
    assert isinstance(result, ToolMessage)
    bound.invoke([question, answer, result])
    _, asked, told = last(llm).messages or ()
    assert asked["tool_calls"][0]["function"] == {
        "name": "look_up",
        "arguments": '{"word": "cat"}',
    }
    assert told["role"] == "tool"
    assert told["tool_call_id"] == asked["tool_calls"][0]["id"] == answer.tool_calls[0]["id"]


def test_an_agent_runs_to_its_end() -> None:
    engine = ScriptedEngine([f"Let me see.\n{CALL}", "A cat is a thing."])
    llm = ChatGrape(engine=engine).bind_tools([look_up])
    graph = StateGraph(MessagesState)
    graph.add_node("agent", lambda state: {"messages": [llm.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([look_up]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    messages = graph.compile().invoke({"messages": [HumanMessage("cat?")]})["messages"]
    assert [message.text for message in messages] == [
        "cat?",
        "Let me see.\n",
        "cat: a thing",
        "A cat is a thing.",
    ]


# -- vLLM's parsers ---------------------------------------------------------------------------


class ParsingEngine(ScriptedEngine):
    """Reads calls as vLLM's parsers in the engine's host do: they are not in the text."""

    def _deltas(self, call: Any) -> list[CallDelta]:
        assert call.request.tool_parser == "pythonic"
        return [
            CallDelta("Well", (1,), 0.0),
            CallDelta("", (2,), 0.0, calls=(CallPiece(0, '{"word":', "look_up", "c1"),)),
            CallDelta("", (3,), 0.0, "stop", Usage(1, 3), calls=(CallPiece(0, ' "cat"}'),)),
        ]


def test_vllms_parsers_can_read_the_calls() -> None:
    engine = ParsingEngine()
    bound = ChatGrape(engine=engine, tool_parser="pythonic").bind_tools([look_up])
    expected = [{"name": "look_up", "args": {"word": "cat"}, "id": "c1", "type": "tool_call"}]
    message = bound.invoke("hi")
    assert (message.content, message.tool_calls) == ("Well", expected)
    total: AIMessageChunk | None = None
    for chunk in bound.stream("hi"):
        assert isinstance(chunk, AIMessageChunk)
        total = chunk if total is None else total + chunk
    assert isinstance(total, AIMessage)
    assert (total.content, total.tool_calls) == ("Well", expected)


def test_forced_calls_and_plain_answers_need_no_parser() -> None:
    engine = ScriptedEngine('{"name": "look_up", "arguments": {"word": "cat"}}')
    llm = ChatGrape(engine=engine, tool_parser="pythonic")
    assert llm.bind_tools([look_up], tool_choice="any").invoke("hi").tool_calls
    llm.invoke("hi")
    assert [call.request.tool_parser for call in engine.calls] == [None, None]
