"""The texts in a graph's input, under the names that a flow's input variables have."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from langchain_core.messages import BaseMessage, convert_to_messages
from pydantic import BaseModel

WHOLE = "input"
"""Name of an input that is one text instead of a state with keys."""

_DEEPEST = 4  # levels of lists and mappings in an input in which texts are looked for
_MOST = 64  # items of a list that are looked at


def input_items(graph_input: object) -> Iterator[tuple[str, Any]]:
    """Keys and values of a state, whichever form it has; a bare text is called ``input``.

    Yields nothing for what is not a state: ``None`` or a ``Command``, with which LangGraph
    resumes a run.
    """
    if isinstance(graph_input, str):
        yield WHOLE, graph_input
    elif not is_command(graph_input):
        yield from _fields(graph_input)


def is_command(graph_input: object) -> bool:
    """Whether this resumes a run instead of starting one."""
    from langgraph.types import Command

    return graph_input is None or isinstance(graph_input, Command)


def identifier(text: str) -> str:
    """``text`` as the name of a variable: what is no letter, digit or _ becomes _."""
    name = re.sub(r"\W+", "_", text).strip("_") or "_"
    return name if name.isidentifier() else f"_{name}"


def inner_name(outer: str, key: str | int) -> str:
    """Name of a text under ``key``, or at an index, of what is called ``outer``."""
    return identifier(f"{outer}_{key}")


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

    A text under ``key`` is called ``key``, made an identifier if it is none; the n-th text of a
    list, and the text of the n-th message of a list of messages, ``key_n``, from 0; one in a
    mapping or an object ``key_field``, and so on for 4 levels. Of two with one name the first
    counts. Of a list the first 64 items are looked at.
    """
    texts: dict[str, str] = {}
    for key, value in input_items(graph_input):
        for name, text in _texts(value, identifier(key), _DEEPEST):
            texts.setdefault(name, text)
    return texts


def _texts(value: Any, name: str, levels: int) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    elif levels and (messages := messages_of(value)) is not None:
        for index, message in enumerate(messages):
            if isinstance(message.content, str):
                yield inner_name(name, index), message.content
    elif levels and isinstance(value, list | tuple):
        for index, item in enumerate(islice(value, _MOST)):
            yield from _texts(item, inner_name(name, index), levels - 1)
    elif levels and not isinstance(value, BaseMessage):
        for key, item in _fields(value):
            yield from _texts(item, inner_name(name, key), levels - 1)


def with_texts(
    value: Any,
    name: str,
    change: Callable[[str], str],
    resize: Callable[[list[Any]], list[Any]],
    levels: int = _DEEPEST,
) -> Any:
    """A copy of a part of an input with ``change(name)`` in the place of each text.

    The names are those of ``input_texts``; empty messages stay. resize: what a list of other
    things than messages is made of first.
    """
    if isinstance(value, str):
        return change(name)
    if not levels:
        return value
    if (messages := messages_of(value)) is not None:
        return [
            m.model_copy(update={"content": change(inner_name(name, index))})
            if isinstance(m.content, str) and m.content
            else m
            for index, m in enumerate(messages)
        ]
    if isinstance(value, list | tuple):
        items = [
            with_texts(item, inner_name(name, index), change, resize, levels - 1)
            if index < _MOST
            else item
            for index, item in enumerate(resize([*value]))
        ]
        # A tuple of names (a NamedTuple) is made of its items one by one.
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, BaseMessage):
        return value
    changed = {
        key: with_texts(item, inner_name(name, key), change, resize, levels - 1)
        for key, item in _fields(value)
    }
    return replaced(value, changed)


def replaced(value: Any, changed: Mapping[str, Any]) -> Any:
    """A copy of a state or a part of one with other values; what has no fields as it is."""
    if isinstance(value, Mapping):
        return {**value, **changed}
    if isinstance(value, BaseModel):
        return value.model_copy(update=dict(changed))
    if changed and dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **changed)
    return value


def _fields(value: object) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((key, item) for key, item in value.items() if isinstance(key, str))
    elif isinstance(value, BaseModel):
        yield from ((name, getattr(value, name)) for name in type(value).model_fields)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (
            (item.name, getattr(value, item.name))
            for item in dataclasses.fields(value)
            if item.init
        )
