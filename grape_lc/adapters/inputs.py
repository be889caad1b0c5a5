"""The texts in a graph's input, under the names that a flow's input variables have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages
from pydantic import BaseModel

WHOLE = "input"
"""Name of an input that is one text instead of a state with keys."""


def input_items(graph_input: object) -> Iterator[tuple[str, Any]]:
    """Keys and values of a state, whichever form it has; a bare text is called ``input``.

    Yields nothing for what is not a state: ``None`` or a ``Command``, with which LangGraph
    resumes a run.
    """
    if isinstance(graph_input, str):
        yield WHOLE, graph_input
    elif isinstance(graph_input, Mapping):
        yield from ((str(key), value) for key, value in graph_input.items())
    elif isinstance(graph_input, BaseModel):
        yield from ((name, getattr(graph_input, name)) for name in type(graph_input).model_fields)
    elif dataclasses.is_dataclass(graph_input) and not is_command(graph_input):
        yield from (
            (item.name, getattr(graph_input, item.name)) for item in dataclasses.fields(graph_input)
        )


def is_command(graph_input: object) -> bool:
    """Whether this resumes a run instead of starting one."""
    from langgraph.types import Command

    return graph_input is None or isinstance(graph_input, Command)


def identifier(text: str) -> str:
    """``text`` as the name of a variable: what is no letter, digit or _ becomes _."""
    name = re.sub(r"\W+", "_", text).strip("_") or "_"
    return name if name.isidentifier() else f"_{name}"


def message_name(key: str, index: int) -> str:
    """Name of the text of the ``index``-th message under ``key``."""
    return identifier(f"{key}_{index}")


def messages_of(value: object) -> list[BaseMessage] | None:
    """The messages in a state's value, in any form that LangChain takes; else ``None``."""
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(item, BaseMessage | tuple | Mapping) for item in value):
        return None
    try:
        return convert_to_messages(value)
    except (ValueError, NotImplementedError, KeyError, TypeError):
        return None


def input_texts(graph_input: object) -> dict[str, str]:
    """Every text of the input that a flow can name.

    A text under ``key`` is called ``key``, made an identifier if it is none; the text of the n-th
    message of a list of messages ``key_n``, from 0.
    """
    texts: dict[str, str] = {}
    for key, value in input_items(graph_input):
        if isinstance(value, str):
            texts[identifier(key)] = value
        for index, message in enumerate(messages_of(value) or ()):
            if isinstance(message.content, str):
                texts[message_name(key, index)] = message.content
    return texts
