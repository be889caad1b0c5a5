"""Calls: requests, chat messages and options, calls of tools in answers, control messages."""

from __future__ import annotations

import asyncio
import json
from typing import Any, TypedDict

from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.graph import START, StateGraph
from pydantic import ValidationError

from grape_lc import ChatGrape, ScriptedEngine, attach
from grape_lc.adapters.callsite import call_site
from grape_lc.adapters.chat_calls import ForcedReader, TaggedReader
from grape_lc.adapters.messages import to_chat
from grape_lc.engine import vllm_messages
from grape_lc.engine.base import CallPiece, CallRequest
from grape_lc.engine.call_limits import check_call
from grape_lc.flow import Sampling
from tests.fuzz.hostile import anything, cut, damaged, mutated, texts, value_or_ours, values

REQUEST = {
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "sampling": {"max_tokens": 3, "stop": ["x"], "extra": {"min_p": 0.5}},
    "program": "p",
    "task": "t",
    "tenant": "x",
    "ttft_s": 1.0,
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
}


@settings(max_examples=60)
@given(mutated(REQUEST), anything)
def test_requests(raw, extra):
    try:
        request = CallRequest.model_validate(raw)
        odd = CallRequest(text="x", sampling=Sampling(extra={"bad_words": extra, "x": extra}))
    except ValidationError:  # what pydantic says of its own constructor's arguments
        return
    value_or_ours(lambda: check_call(request))
    value_or_ours(lambda: check_call(odd))
    value_or_ours(lambda: list(ScriptedEngine("answer").stream(request)))


CONTENT = texts | st.lists(
    texts
    | st.fixed_dictionaries(
        {"type": st.sampled_from(("text", "image_url", "tool_use"))},
        optional={
            "text": anything,
            "image_url": anything,
            "id": texts,
        },
    ),
    max_size=3,
)
ARGS = st.dictionaries(texts, values, max_size=3)
CALLS = st.lists(
    st.builds(lambda name, args, id_: {"name": name, "args": args, "id": id_}, texts, ARGS, texts),
    max_size=2,
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(HumanMessage, CONTENT),
        st.builds(SystemMessage, CONTENT),
        st.builds(lambda content, calls: AIMessage(content, tool_calls=calls), CONTENT, CALLS),
        st.builds(lambda content, id_: ToolMessage(content, tool_call_id=id_), CONTENT, texts),
        st.builds(lambda content, role: ChatMessage(content=content, role=role), CONTENT, texts),
    ),
    max_size=4,
)


@settings(max_examples=60)
@given(MESSAGES)
def test_chat_messages(messages):
    chat = value_or_ours(lambda: to_chat(messages))
    value_or_ours(lambda: ChatGrape(engine=ScriptedEngine("answer")).invoke(messages))
    assert chat is None or len(chat) == len(messages)


SCHEMA = {
    "type": "object",
    "properties": {"x": {"$ref": "#/$defs/a"}, "y": {"type": "array", "items": {"type": "string"}}},
    "required": ["x"],
    "$defs": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/a"}]}},
}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}}
FORMS = {
    "tools": TOOLS,
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": FORMAT,
    "structured_outputs": {"json": SCHEMA},
    "logit_bias": {"5": 1.0},
    "stop": ["a", "b"],
    "extra": {"bad_words": ["a"], "min_p": 0.5},
}
PLAIN = (
    *("temperature", "max_tokens", "seed", "n", "model", "tenant", "timeout", "ttft_s", "top_k"),
    *("logprobs", "top_logprobs", "bad_words", "detokenize", "parallel_tool_calls"),
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(PLAIN, anything)
    | {name: mutated(form) | anything for name, form in FORMS.items()},
)


@settings(max_examples=80)
@given(OPTIONS)
@example({"extra": 5})
@example({"tools": [{"type": [1]}]})
@example({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]})
@example({"response_format": {"type": "json_schema", "json_schema": [1]}})
@example({"stop": 5})
@example({"extra": {"detokenize": False}})
@example({"bad_words": "abc"})
def test_options_of_a_call(options):
    llm = ChatGrape(engine=ScriptedEngine("answer"))
    value_or_ours(lambda: llm.invoke("hi", **options))


ANSWER = 'Text <tool_call>{"name": "f", "arguments": {"x": [1, "\\u00e4"]}}</tool_call> end'
FORCED = '[{"name": "f", "arguments": {"x": 1}}, {"name": "g", "parameters": "{}"}]'


def read(reader, pieces):
    """Text of an answer, and name and arguments of each call."""
    found = [piece for text in pieces for piece in reader.feed(text)] + list(reader.finish())
    text = "".join(piece for piece in found if isinstance(piece, str))
    calls: dict[int, tuple[str | None, str]] = {}
    for piece in found:
        if isinstance(piece, CallPiece):
            name, args = calls.get(piece.call, (None, ""))
            calls[piece.call] = (piece.name or name, args + piece.args)
    return text, calls


@settings(max_examples=150)
@given(st.data())
@example(None)
def test_calls_of_tools_in_what_a_model_writes(data):
    if data is None:
        cases = [(TaggedReader, "<tool_call>" + "[" * 20_000, 97), (ForcedReader, "[" * 20_000, 97)]
        cases += [(TaggedReader, '<tool_call>{"name": "\\q", "arguments": {"a": 1}}', 3)]
        cases += [(ForcedReader, '{"name": "f", "arguments": ' + '{"a":' * 9_999, 97)]
        cases += [(ForcedReader, '[]{"name": "f", "arguments": {"x": 1}}', 2)]
        for reader, text, step in cases:
            pieces = [text[at : at + step] for at in range(0, len(text), step)]
            assert read(reader(), pieces) == read(reader(), [text])
        return
    reader, seed = data.draw(
        st.sampled_from(((TaggedReader, ANSWER), (ForcedReader, FORCED), (ForcedReader, ANSWER)))
    )
    text = data.draw(damaged(seed, most=4))
    assert read(reader(), data.draw(cut(text))) == read(reader(), [text])


HINTED = {
    "v": 1,
    "op": "call",
    "adopt": None,
    "feeds": False,
    "program": "p",
    "task": "t",
    "hint": {"flow": "f", "depth": 1, "after": ["a"], "source": "s", "ttft_s": 1.0},
}
CONTROL = (
    HINTED,
    {**HINTED, "op": "open", "hops": 1},
    {"v": 1, "op": "append", "key": "k", "hops": 1, "source": "t", "final": True},
)


@settings(max_examples=120)
@given(st.one_of(*map(mutated, CONTROL)))
@example({"v": 10**5000})
@example({"v": 1, "op": "call", "hint": {10**5000: 1, "tenant": "x" * 10**6, "after": ["y"] * 999}})
def test_control_messages(message):
    """Nothing raises: that would end the engine for everybody."""
    parsed = vllm_messages.parse(message)
    if isinstance(parsed, vllm_messages.Malformed):
        assert len(parsed.why) < 500
    elif not isinstance(parsed, vllm_messages.Append):
        assert sum(map(len, parsed.bad)) < 100_000
        assert len(parsed.hint.tenant) < 10_000
        assert len(parsed.hint.after) < 1000
        json.dumps(vllm_messages.call(None, parsed.hint))


METADATA = {
    "langgraph_node": "n",
    "langgraph_path": ["__pregel_push", 0],
    "langgraph_checkpoint_ns": "outer:1|n:2",
    "langgraph_step": 1,
}


@settings(max_examples=60)
@given(mutated(METADATA))
def test_metadata_of_a_run(metadata):
    site = call_site(metadata if isinstance(metadata, dict) else {}, (), None)
    assert site is None or isinstance(site.name(), str)


class Said(TypedDict):
    """State of the graph below."""

    text: str


def saying(llm: ChatGrape) -> Any:
    """A graph of one node that asks the model."""
    builder = StateGraph(Said)
    builder.add_node("n", lambda state: {"text": llm.invoke(state["text"]).content})
    builder.add_edge(START, "n")
    return builder.compile(name="saying")


@settings(max_examples=30)
@given(mutated(METADATA), texts)
@example({"langgraph_node": "n", "langgraph_path": True}, "x")
@example({"langgraph_node": "n", "langgraph_path": {"a": 1, "b": 2}}, "x")
def test_metadata_in_a_config(metadata, text):
    """Whatever is in it, a run gives what it gives without."""
    config: Any = {"metadata": metadata if isinstance(metadata, dict) else {"x": metadata}}
    llm = ChatGrape(engine=ScriptedEngine("answer"))
    assert asyncio.run(llm.ainvoke("hi", config)).content == "answer"
    assert attach(saying(llm), learn=False).invoke({"text": text}, config) == {"text": "answer"}
