"""Lines between two processes: nobody who sends one waits, and none is lost or cut."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from itertools import islice

import pytest

from grape_lc.runtime.channel import Channel


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    with theirs:
        yield channel, theirs
    channel.close()


def writers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "grape-writer"]


def test_who_sends_never_waits_for_the_reader(ends: tuple[Channel, socket.socket]) -> None:
    """Megabytes beyond the socket's buffer, while nobody reads; then all of it, in order."""
    channel, theirs = ends
    sent = [bytes([65 + n]) * 500_000 + b"\n" for n in range(20)]

    def send() -> None:
        for line in sent:
            channel.write(line)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(60)
    assert not sender.is_alive(), "it waits for a reader"
    assert len(writers()) == 1
    with theirs.makefile("rb") as lines:
        assert list(islice(lines, 10)) == sent[:10]
        channel.write(b"one more\n")
        assert list(islice(lines, 11)) == [*sent[10:], b"one more\n"]
        for thread in writers():
            thread.join(60)
        assert writers() == []
        channel.write(b"as before\n")
        assert next(lines) == b"as before\n"


def test_lines_of_many_threads_stay_whole(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends

    def work(name: int) -> None:
        for number in range(200):
            channel.write(f"{name} {number} {'x' * (number % 7 * 900)}\n".encode())

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    seen: dict[bytes, list[int]] = {}
    with theirs.makefile("rb") as lines:
        for line in islice(lines, 1200):
            name, number, rest = line.rstrip(b"\n").split(b" ")
            assert rest == b"x" * (int(number) % 7 * 900)
            seen.setdefault(name, []).append(int(number))
    assert list(seen.values()) == [list(range(200))] * 6
    for thread in threads:
        thread.join()


def test_lines_are_read_whole_however_they_arrive(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(channel.lines()))
    reader.start()
    for piece in (b"on", b"e\ntwo\n", b"", b"\nthr", b"ee\nno end"):
        theirs.sendall(piece)
        time.sleep(0.01)
    theirs.shutdown(socket.SHUT_WR)
    reader.join(60)
    assert found == [b"one", b"two", b"", b"three"]


def test_a_gone_reader_is_no_trouble_for_who_sends(ends: tuple[Channel, socket.socket]) -> None:
    channel, theirs = ends
    for _ in range(20):
        channel.write(b"x" * 500_000 + b"\n")
    theirs.close()
    for thread in writers():
        thread.join(60)
    assert writers() == []
    channel.write(b"y\n")
    assert list(channel.lines()) == []
    channel.end()
    channel.close()
    channel.write(b"z\n")
    assert channel.detach() == -1
