"""LangChain messages as the dictionaries that a chat template takes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from grape_lc.errors import EmptyPromptError, UnsupportedRequestError

# Parts of an assistant message that repeat what stands in its ``tool_calls``, or was no call.
_TOOL_CALL_BLOCKS = frozenset(
    {"tool_call", "tool_use", "function_call", "tool_call_chunk", "invalid_tool_call"}
)


def to_chat(messages: Sequence[BaseMessage]) -> tuple[dict[str, Any], ...]:
    """The messages with ``role`` and ``content``, in OpenAI's form, ready for a chat template.

    A content of text blocks stays a list of blocks: whether these are joined is up to the chat
    template.

    Raises EmptyPromptError when there is no message, UnsupportedRequestError for a message or
    a content block that is not text.
    """
    if not messages:
        raise EmptyPromptError("the call has no messages")
    return tuple(_message(index, message) for index, message in enumerate(messages))


def _message(index: int, message: BaseMessage) -> dict[str, Any]:
    chat: dict[str, Any] = {
        "role": _role(index, message),
        "content": _content(index, message),
    }
    if message.name is not None:
        chat["name"] = message.name
    if isinstance(message, ToolMessage):
        chat["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage) and message.tool_calls:
        chat["tool_calls"] = [
            {
                "id": call["id"],
                "type": "function",
                "function": {
                    "name": call["name"],
                    "arguments": json.dumps(call["args"], ensure_ascii=False),
                },
            }
            for call in message.tool_calls
        ]
    return chat


def _role(index: int, message: BaseMessage) -> str:
    match message:
        case SystemMessage():
            return "system"
        case HumanMessage():
            return "user"
        case AIMessage():
            return "assistant"
        case ToolMessage():
            return "tool"
        case ChatMessage():
            return message.role
    raise UnsupportedRequestError(
        f"message {index} is a {type(message).__name__}; known: SystemMessage, HumanMessage, "
        "AIMessage, ToolMessage, ChatMessage"
    )


def _content(index: int, message: BaseMessage) -> str | list[dict[str, str]]:
    if isinstance(message.content, str):
        return message.content
    blocks: list[dict[str, str]] = []
    for block in message.content:
        if isinstance(block, str):
            blocks.append({"type": "text", "text": block})
            continue
        kind = block.get("type")
        if kind == "text" and isinstance(block.get("text"), str):
            # Other keys (annotations, ids, indices) are not part of the prompt.
            blocks.append({"type": "text", "text": block["text"]})
        elif not (kind in _TOOL_CALL_BLOCKS and isinstance(message, AIMessage)):
            raise UnsupportedRequestError(
                f"message {index} ({type(message).__name__}) has a content block of type "
                f"{kind!r}; the engine takes text only"
            )
    return blocks
