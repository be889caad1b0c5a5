"""Lines over a socket, in both directions; who sends one never waits.

Calls are sent from whatever runs them, often an event loop, which must not stand still because
the other end is busy; servers that watch for that refuse every blocking call on a loop's thread.
So the socket does not block. What it cannot take is sent by a thread of its own, which is rare:
the buffers hold a megabyte.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections import deque
from collections.abc import Iterator

_READ_BYTES = 1 << 20


class Channel:
    """One end of a socket pair, which it owns. Threads may call every method.

    One thread at a time reads ``lines``.
    """

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._outbox: deque[memoryview] = deque()
        self._sending = threading.Lock()

    def write(self, line: bytes) -> None:
        """Send ``line`` (newline included), or leave it to the thread that is sending.

        Never waits for a lock: it may be called by a finalizer, in the middle of any other call
        of the same thread. Whoever holds the lock looks again after letting go of it, so nothing
        is left behind. If the other end is gone, what is sent is dropped; the reader notices.
        """
        self._outbox.append(memoryview(line))
        while self._outbox and self._sending.acquire(blocking=False):
            if not self._flush():
                self._hand_over()
                return
            self._sending.release()

    def _hand_over(self) -> None:
        """Let a thread send the rest; the lock goes with the work."""
        try:
            threading.Thread(target=self._drain, name="grape-writer", daemon=True).start()
        except RuntimeError:  # the machine, or an interpreter that ends, has no thread to give
            self._sending.release()
            raise

    def _flush(self) -> bool:
        """Send what can be sent at once; False if the socket is full. Needs the lock."""
        try:
            while self._outbox:
                data = self._outbox[0]
                sent = self._socket.send(data)
                if sent == len(data):
                    self._outbox.popleft()
                else:
                    self._outbox[0] = data[sent:]
        except BlockingIOError:
            return False
        except OSError:
            self._outbox.clear()
        return True

    def _drain(self) -> None:
        room = select.poll()
        try:
            room.register(self._socket, select.POLLOUT)
            while not self._flush():
                room.poll()
        except (OSError, ValueError):  # closed meanwhile
            self._outbox.clear()
        finally:
            self._sending.release()
        if self._outbox:
            self.write(b"")

    def lines(self) -> Iterator[bytes]:
        """Lines as they come, without their ends, until either end is gone. Blocks."""
        news = select.poll()
        news.register(self._socket, select.POLLIN)
        rest = b""
        while True:
            news.poll()
            try:
                data = self._socket.recv(_READ_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from lines

    def end(self) -> None:
        """Tell the other end that nothing more will be sent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()

    def detach(self) -> int:
        """Let go of the socket; returns its descriptor, -1 if it was closed."""
        return self._socket.detach()
