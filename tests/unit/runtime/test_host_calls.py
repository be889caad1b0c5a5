"""Calls that are cancelled at bad moments leave nothing in the host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from grape_lc.runtime import wire
from grape_lc.runtime.ahead import Ahead
from grape_lc.runtime.host import Host
from tests.unit.runtime.hosted.word_engine import WordEngine


class Replies:
    """In the place of a stream to the client."""

    def __init__(self) -> None:
        self.sent: list[wire.Message] = []

    def is_closing(self) -> bool:
        return False

    def write(self, line: bytes) -> None:
        self.sent.append(wire.decode(line))

    def of(self, call_id: int) -> list[str]:
        return [m["text"] for m in self.sent if m.get("id") == call_id and m["t"] == "delta"]


def call(call_id: int, text: str) -> wire.Message:
    return {"t": "call", "id": call_id, "req": {"text": text}}


def cancel(call_id: int) -> wire.Message:
    return {"t": "cancel", "id": call_id}


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.001)


async def test_a_storm_of_calls_that_are_cancelled_before_they_begin() -> None:
    """A call and its cancel come in one piece: its task never runs, and is forgotten all the same.

    Others are cut off a step later, and twice.
    """
    engine: Any = WordEngine("words", "grape", {})
    reader, replies = asyncio.StreamReader(), Replies()
    host = Host(reader, replies)  # type: ignore[arg-type]
    host._engine = engine
    host._ahead = Ahead(engine, enabled=True)
    serving = asyncio.create_task(host._serve())

    def tell(*messages: wire.Message) -> None:
        reader.feed_data(b"".join(wire.encode(message) for message in messages))

    tell(*(m for number in range(500) for m in (call(number, "one slow"), cancel(number))))
    tell(call(1000, "all the others are gone"))
    await until(lambda: "gone " in replies.of(1000))
    for number in range(2000, 2100):
        tell(call(number, "one two slow"))
        await asyncio.sleep(0)
        tell(cancel(number), cancel(number))
    await until(lambda: not host._calls)
    stats: dict[str, Any] = await host._ask("stats", {})
    assert stats["running"] == 0
    reader.feed_eof()
    await serving
