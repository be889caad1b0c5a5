"""LangChain messages as a chat template takes them."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)

from grape_lc.adapters.messages import to_chat
from grape_lc.errors import EmptyPromptError, UnsupportedRequestError


def test_each_role() -> None:
    assert to_chat(
        [
            SystemMessage("be brief"),
            HumanMessage("hi"),
            AIMessage("hello"),
            AIMessageChunk(content="again"),
            ChatMessage(role="critic", content="hm"),
        ]
    ) == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "assistant", "content": "again"},
        {"role": "critic", "content": "hm"},
    )


def test_a_name_is_kept() -> None:
    assert to_chat([HumanMessage("hi", name="ann")]) == (
        {"role": "user", "content": "hi", "name": "ann"},
    )


def test_tool_calls_and_their_results() -> None:
    call = {"name": "look_up", "args": {"word": "café"}, "id": "c1", "type": "tool_call"}
    blocks: list[Any] = [{"type": "text", "text": "one moment"}, {"type": "tool_use", "id": "c1"}]
    assert to_chat(
        [AIMessage(blocks, tool_calls=[call]), ToolMessage("a place", tool_call_id="c1")]
    ) == (
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "one moment"}],
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look_up", "arguments": '{"word": "café"}'},
                }
            ],
        },
        {"role": "tool", "content": "a place", "tool_call_id": "c1"},
    )


def test_text_blocks_stay_blocks_without_what_is_not_prompt() -> None:
    content: list[str | dict[str, object]] = ["a", {"type": "text", "text": "b", "index": 3}]
    assert to_chat([HumanMessage(content)])[0]["content"] == [
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"},
        {"type": "tool_use", "id": "c1"},
    ],
)
def test_a_block_that_is_not_text_is_refused(block: dict[str, object]) -> None:
    messages = [SystemMessage("s"), HumanMessage([{"type": "text", "text": "see"}, block])]
    with pytest.raises(UnsupportedRequestError, match=f"message 1.*{block['type']!r}.*text only"):
        to_chat(messages)


@pytest.mark.parametrize(
    "message", [RemoveMessage(id="1"), FunctionMessage(content="x", name="f")], ids=str
)
def test_a_message_without_a_role_is_refused(message: BaseMessage) -> None:
    with pytest.raises(UnsupportedRequestError, match=f"message 0 is a {type(message).__name__}"):
        to_chat([message])


def test_no_messages() -> None:
    with pytest.raises(EmptyPromptError):
        to_chat([])
