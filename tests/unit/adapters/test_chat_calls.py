"""Calls of tools read out of text, however it is cut into pieces."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, AIMessageChunk

from grape_lc import ChatGrape, ScriptedEngine
from grape_lc.adapters.chat_calls import ForcedReader, PlainReader, Reader, TaggedReader
from grape_lc.engine.base import CallPiece


def read(reader: Reader, pieces: Sequence[str]) -> tuple[str, list[tuple[str | None, str]]]:
    """The text, and name and arguments of each call."""
    out = [*(piece for text in pieces for piece in reader.feed(text)), *reader.finish()]
    text = "".join(piece for piece in out if isinstance(piece, str))
    calls: dict[int, list[CallPiece]] = {}
    for piece in out:
        if isinstance(piece, CallPiece):
            calls.setdefault(piece.call, []).append(piece)
    assert list(calls) == list(range(len(calls)))
    for parts in calls.values():
        assert parts[0].id is not None
        assert all((part.name, part.id) == (None, None) for part in parts[1:])
    return text, [(parts[0].name, "".join(part.args for part in parts)) for parts in calls.values()]


def call(name: str, args: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': args})}\n</tool_call>"


FREE = [
    ("no call at all", ("no call at all", [])),
    ("", ("", [])),
    (" \n", (" \n", [])),
    ("a < b, <tool", ("a < b, <tool", [])),
    (call("f", {}), ("", [("f", "{}")])),
    (
        f"First this.\n{call('f', {'x': 1})}\n\n{call('g', {'y': [2, {'z': '}'}]})}\n",
        ("First this.\n", [("f", '{"x": 1}'), ("g", '{"y": [2, {"z": "}"}]}')]),
    ),
    (
        call("f", {"q": 'say "hi" \\'}) + " and so on",
        (" and so on", [("f", '{"q": "say \\"hi\\" \\\\"}')]),
    ),
    # The end tag is missing; the call is whole.
    ('<tool_call>{"name":"f","arguments":{"x":1}}', ("", [("f", '{"x":1}')])),
    # Other orders and names of the keys, and arguments as a text.
    ('<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', ("", [("f", '{"x": 1}')])),
    ('<tool_call>{"name": "f", "parameters": {"x": 1}}</tool_call>', ("", [("f", '{"x": 1}')])),
    (
        '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>',
        ("", [("f", '{"x": 1}')]),
    ),
    ('<tool_call>{"name": "f"}</tool_call>', ("", [("f", "{}")])),
    # Malformed.
    ("<tool_call>nonsense</tool_call>", ("", [(None, "<tool_call>nonsense")])),
    ('<tool_call>{"name": "f", "argu', ("", [(None, '<tool_call>{"name": "f", "argu')])),
    (
        '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
        ("", [(None, '<tool_call>{"name": 3, "arguments": {}}')]),
    ),
    # Cut short, or not JSON: a bracket that fits nothing keeps it from being taken for whole.
    ('<tool_call>{"name": "f", "arguments": {"path": "/ho', ("", [("f", '{"path": "/ho"]')])),
    ('<tool_call>{"name": "f", "arguments": {"x": [1, ', ("", [("f", '{"x": [1, }')])),
    ('<tool_call>{"name": "f", "arguments": {x: 1}}</tool_call>', ("", [("f", "{x: 1}]")])),
]

FORCED = [
    ('{"name": "f", "arguments": {"x": 1}}', ("", [("f", '{"x": 1}')])),
    (' \n{"name":"f","arguments":{}}\n', ("", [("f", "{}")])),
    (
        '[{"name": "f", "arguments": {"x": [1]}}, {"name": "g", "arguments": {"s": "],"}}]',
        ("", [("f", '{"x": [1]}'), ("g", '{"s": "],"}')]),
    ),
    ("[]", ("", [])),
    ('{"name": "f", "argume', ("", [(None, '<tool_call>{"name": "f", "argume')])),
    (
        '[{"name": "f", "arguments": {"x": 1}}, {"na',
        ("", [("f", '{"x": 1}'), (None, '<tool_call>{"na')]),
    ),
    ("just text", ("", [(None, "<tool_call>just text")])),
]


@pytest.mark.parametrize(("text", "expected"), FREE)
def test_a_free_answer(text: str, expected: object) -> None:
    assert read(TaggedReader(), [text]) == expected
    assert read(TaggedReader(), list(text)) == expected


@pytest.mark.parametrize(("text", "expected"), FORCED)
def test_a_forced_answer(text: str, expected: object) -> None:
    assert read(ForcedReader(), [text]) == expected
    assert read(ForcedReader(), list(text)) == expected


@given(st.sampled_from(FREE + FORCED), st.lists(st.integers(1, 9), min_size=1))
def test_how_the_text_is_cut_makes_no_difference(
    case: tuple[str, object], sizes: list[int]
) -> None:
    text, expected = case
    reader = TaggedReader() if case in FREE else ForcedReader()
    pieces: list[str] = []
    at = 0
    while at < len(text):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[at : at + size])
        at += size
    assert read(reader, pieces) == expected


def test_arguments_are_passed_on_while_they_come() -> None:
    reader = TaggedReader()
    *_, part = reader.feed('<tool_call>{"name": "f", "arguments": {"x": "lo')
    assert part == CallPiece(0, '{"x": "lo')
    assert list(reader.feed("ng ")) == [CallPiece(0, "ng ")]


def test_plain_answers_keep_their_tags() -> None:
    assert read(PlainReader(), [call("f", {})]) == (call("f", {}), [])


# -- messages ---------------------------------------------------------------------------------


def f(x: int) -> int:
    """Does something."""
    return x


def ask(script: str, *, forced: bool = False) -> tuple[AIMessage, AIMessage]:
    """The same answer whole and streamed."""
    pieces = [script[at : at + 3] for at in range(0, len(script), 3)]
    llm = ChatGrape(engine=ScriptedEngine(lambda _: pieces))
    bound = llm.bind_tools([f], tool_choice="any" if forced else None)
    total: AIMessageChunk | None = None
    for chunk in bound.stream("hi"):
        assert isinstance(chunk, AIMessageChunk)
        total = chunk if total is None else total + chunk
    assert total is not None
    return bound.invoke("hi"), total


@pytest.mark.parametrize(
    ("script", "forced"),
    [(text, False) for text, _ in FREE if text] + [(text, True) for text, _ in FORCED],
)
def test_a_stream_adds_up_to_the_whole_answer(script: str, forced: bool) -> None:
    whole, streamed = ask(script, forced=forced)
    assert streamed.content == whole.content

    def said(message: AIMessage) -> object:
        return (
            [(c["name"], c["args"]) for c in message.tool_calls],
            [(c["name"], c["args"]) for c in message.invalid_tool_calls],
        )

    assert said(streamed) == said(whole)
    assert all(call["id"] for call in (*whole.tool_calls, *whole.invalid_tool_calls))


def test_good_and_bad_calls_of_one_answer() -> None:
    message, _ = ask(f"Well. {call('f', {'x': 1})}<tool_call>oh</tool_call>")
    assert message.content == "Well. "
    (good,), (bad,) = message.tool_calls, message.invalid_tool_calls
    assert (good["name"], good["args"], good["type"]) == ("f", {"x": 1}, "tool_call")
    assert (bad["name"], bad["args"]) == (None, "<tool_call>oh")
    assert good["id"] != bad["id"]
