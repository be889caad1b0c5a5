"""What passes between the user's process and the engine's host."""

from __future__ import annotations

import asyncio
import json
import logging
import socket

from hypothesis import example, given, settings
from hypothesis import strategies as st

from grape_lc.engine.base import CallDelta, TokenLogprob, Usage
from grape_lc.errors import GrapeError
from grape_lc.runtime import wire
from grape_lc.runtime.host import Host
from tests.fuzz.hostile import anything, documents, mutated, texts, value_or_ours
from tests.fuzz.test_calls import REQUEST
from tests.fuzz.test_flows import FLOW

WORDS = "tests.unit.runtime.hosted.word_engine:WordEngine"
DELTA = json.loads(
    wire.encode(
        wire.delta_message(
            1, CallDelta("t", (1, 2), 0.5, "stop", Usage(1, 2), (TokenLogprob("a", -1.0),))
        )
    )
)


@settings(max_examples=80)
@given(documents(DELTA))
def test_lines(data):
    message = value_or_ours(lambda: wire.decode(data))
    assert message is None or isinstance(message["t"], str)


@settings(max_examples=80)
@given(mutated(DELTA))
def test_pieces_of_answers(message):
    value_or_ours(lambda: wire.delta_of(message))


@settings(max_examples=40)
@given(anything, anything)
def test_errors(kind, text):
    assert isinstance(wire.error_of({"kind": kind, "text": text}), GrapeError)


@given(anything)
def test_what_cannot_be_sent(value):
    line = value_or_ours(lambda: wire.encode({"t": "call", "req": value}))
    assert line is None or line.count(b"\n") == 1


MESSAGES = (
    {"t": "call", "id": 7, "req": REQUEST},
    {"t": "cancel", "id": 7},
    {"t": "open", "program": "p", "flow": FLOW, "inputs": {"a": "x"}},
    {"t": "close", "program": "p"},
    {"t": "ask", "id": 8, "what": "tokens", "args": {"text": "x"}},
    {"t": "ask", "id": 9, "what": "prompt", "args": {"req": REQUEST}},
)
LINES = st.one_of(*map(documents, MESSAGES)).map(lambda data: data.replace(b"\n", b" "))


@settings(max_examples=40)
@given(st.lists(LINES | st.binary(max_size=30), min_size=1, max_size=5))
@example([b"[" * 200_000])
@example([b"x" * 3_000_000])
@example([b'{"t":"call","id":5}', b'{"t":"ask","id":[]}', b'{"t":"open","program":[]}'])
def test_a_host_outlives_every_line(lines):
    """A call in flight and the calls behind are answered, whatever comes between."""
    logging.disable(logging.CRITICAL)
    try:
        assert asyncio.run(served(lines)) == {1001: "a b c ", 1002: "d e "}
    finally:
        logging.disable(logging.NOTSET)


async def served(lines: list[bytes]) -> dict[int, str]:
    """The answers of a call before the lines and of one behind them."""
    client, served_end = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=client, limit=1 << 26)
    heard, theirs = await asyncio.open_connection(sock=served_end, limit=1 << 21)
    host = Host(heard, theirs)
    running = asyncio.create_task(host.run())
    try:
        return await answered(reader, writer, lines)
    finally:
        for end in (writer, theirs):
            end.close()
        await running
        await asyncio.gather(writer.wait_closed(), theirs.wait_closed(), return_exceptions=True)


async def answered(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lines: list[bytes]
) -> dict[int, str]:
    send(writer, {"t": "start", "engine": WORDS, "model": "m", "scheduler": "grape", "args": {}})
    send(writer, {"t": "call", "id": 1001, "req": {"text": "a b c"}})
    for line in lines:
        writer.write(line + b"\n")
    send(writer, {"t": "call", "id": 1002, "req": {"text": "d e"}})
    answers = {1001: "", 1002: ""}
    open_calls = set(answers)
    async with asyncio.timeout(120):
        while open_calls:
            message = wire.decode(await reader.readline())
            if message["t"] == "delta" and message["id"] in answers:
                answers[message["id"]] += message["text"]
                if "end" in message:
                    open_calls.discard(message["id"])
            elif message.get("id") in answers:
                raise AssertionError(message)
    return answers


def send(writer: asyncio.StreamWriter, message: wire.Message) -> None:
    writer.write(wire.encode(message))


@given(texts)
def test_names_of_errors(kind):
    assert isinstance(wire.error_of({"kind": kind, "text": "x"}), GrapeError)
