"""The engine host as a child process: how it is started, reached and ended."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import logging
import os
import queue
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from grape_lc.engine.endings import how_it_ended
from grape_lc.errors import (
    ConfigError,
    EngineClosedError,
    EngineDiedError,
    EngineError,
    EngineStartError,
)
from grape_lc.runtime import wire
from grape_lc.runtime.channel import Channel
from grape_lc.runtime.engine_log import log_tail
from grape_lc.runtime.environment import host_environment
from grape_lc.runtime.groups import end_group
from grape_lc.runtime.run_folder import RunFolder

logger = logging.getLogger(__name__)

Sink = Callable[[wire.Message], None]
Progress = Callable[[str], None]

HOST = "grape_lc.runtime.host"
_STOP_GRACE_S = 10.0
_DEATH_S = 1.0
_BUFFER_BYTES = 1 << 20


class HostProcess:
    """One engine host. Threads may call every method; callbacks run on its reader thread.

    Raises EngineStartError from the constructor if the engine does not come up.
    """

    def __init__(self, settings: Mapping[str, Any], progress: Progress) -> None:
        self._ids = itertools.count(1)
        self._sinks: dict[int, tuple[Sink, object]] = {}
        self._gone: EngineError | None = None
        self._keep_log = False
        self._owner_pid = os.getpid()
        self._ready: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()
        self.on_delta: Callable[[int, object, wire.Message], None] | None = None
        self.info: dict[str, Any] = {}
        # Open for as long as the host writes to it; removed when it ended as it should.
        log = tempfile.NamedTemporaryFile(  # noqa: SIM115
            prefix="grape-engine-", suffix=".log", delete=False
        )
        self.log_path = Path(log.name)
        with log, _forking:  # a fork would take the host's end of the socket with it
            ours = self._start(log)
            self._channel = Channel(ours)
            _live.add(self)
        self._reader = threading.Thread(target=self._read, name="grape-reader", daemon=True)
        self._reader.start()
        try:
            self._send({"t": "start", **settings})
            self._wait_until_ready(progress)
        except BaseException:
            self.close()
            raise

    def _start(self, log: IO[bytes]) -> socket.socket:
        """Start the host; returns this process's end of the socket between them."""
        self._folder = RunFolder()
        ours, theirs = socket.socketpair()
        try:
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            given = {"--fd": theirs.fileno(), "--lock": self._folder.lock}
            options = [text for name, fd in given.items() for text in (name, str(fd))]
            self._process = subprocess.Popen(
                # -P: the user's working directory must not shadow installed packages.
                [sys.executable, "-P", "-m", HOST, *options],
                pass_fds=list(given.values()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=host_environment(self._folder.path),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            self._folder.remove()
            raise
        finally:
            theirs.close()
            os.close(self._folder.lock)
        return ours

    # ------------------------------------------------------------------ life

    @property
    def alive(self) -> bool:
        """Whether calls can be made (from the process that started the host)."""
        return self._gone is None and not self.is_foreign

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to a process that this one was forked off."""
        return os.getpid() != self._owner_pid

    @property
    def pid(self) -> int:
        """Process id of the host; it leads the process group of all engine processes."""
        return self._process.pid

    def close(self) -> None:
        """End the host and every process under it. Idempotent; waits until they are gone."""
        if self.is_foreign:
            return  # a forked child must not end its parent's engine
        self._fail(EngineClosedError("the engine was closed"))
        self._channel.end()
        clean = True
        try:
            self._process.wait(timeout=_STOP_GRACE_S)
        except subprocess.TimeoutExpired:
            clean = False
        self._kill_group()
        self._process.wait()
        if threading.current_thread() is not self._reader:
            self._reader.join(timeout=_STOP_GRACE_S)
        self._channel.close()
        self._folder.remove()
        _live.discard(self)
        died = isinstance(self._gone, EngineDiedError)  # and what was raised names the log
        if clean and self._process.returncode == 0 and not self._keep_log and not died:
            self.log_path.unlink(missing_ok=True)

    def _kill_group(self) -> None:
        self._process.kill()
        end_group(self._process.pid)

    def _wait_until_ready(self, progress: Progress) -> None:
        stage, start = "starting", time.monotonic()
        while True:
            progress(f"{stage} ({time.monotonic() - start:.0f} s)")
            try:
                message = self._ready.get(timeout=1.0)
            except queue.Empty:
                continue
            match message["t"]:
                case "progress":
                    stage = message["text"]
                case "ready":
                    self.info = message["info"]
                    return
                case "failed":
                    self._keep_log = True
                    error = wire.error_of(message)
                    if isinstance(error, ConfigError):
                        raise error
                    raise EngineStartError(f"{error}\n{log_tail(self.log_path)}")
                case _:
                    raise EngineStartError(
                        f"the engine ended while starting\n{log_tail(self.log_path)}"
                    )

    # ------------------------------------------------------------------ messages

    def begin(self, message: wire.Message, sink: Sink, tag: object = None) -> int:
        """Send a call or a question; ``sink`` gets every reply. Returns its id.

        ``tag`` is handed to ``on_delta`` with each delta. Raises EngineClosedError,
        EngineDiedError, or RequestError for what cannot be sent.
        """
        self._check()
        call_id = next(self._ids)
        data = wire.encode({**message, "id": call_id})
        self._sinks[call_id] = (sink, tag)
        if self._gone is not None and self._sinks.pop(call_id, None) is not None:
            self._check()  # it ended meanwhile, and may not have seen this sink
        self._channel.write(data)
        return call_id

    @property
    def waiting(self) -> int:
        """Calls and questions that may still get a reply."""
        return len(self._sinks)

    def cancel(self, call_id: int) -> None:
        """Stop a call; its sink hears nothing more. Harmless once it ended."""
        if self._sinks.pop(call_id, None) is not None:
            self._send({"t": "cancel", "id": call_id})

    def post(self, message: wire.Message) -> None:
        """Send a message that has no reply."""
        self._check()
        self._send(message)

    def check_owner(self) -> None:
        """Raises EngineClosedError in a process that was forked off since the host was started."""
        if self.is_foreign:
            raise EngineClosedError(
                f"this engine belongs to process {self._owner_pid}; after a fork "
                f"(now {os.getpid()}) a new engine must be made"
            )

    def _check(self) -> None:
        self.check_owner()
        if self._gone is not None:
            raise type(self._gone)(str(self._gone))

    def _send(self, message: wire.Message) -> None:
        self._channel.write(wire.encode(message))

    def _read(self) -> None:
        try:
            for line in self._channel.lines():
                self._dispatch(wire.decode(line))
        except Exception:
            # Without a reader every call would wait for ever: end them, with what is known.
            logger.exception("the engine's messages cannot be read any more")
        if not isinstance(self._gone, EngineClosedError):
            how = self._how_it_ended()
            # Nothing of it may be left where a new one is started.
            self._kill_group()
            self._fail(EngineDiedError(f"{how}\n{log_tail(self.log_path)}"))
        self._ready.put({"t": "ended"})

    def _how_it_ended(self) -> str:
        try:
            code = self._process.wait(timeout=_DEATH_S)
        except subprocess.TimeoutExpired:
            code = None
        return how_it_ended("the engine host", self._process.pid, code)

    def _dispatch(self, message: wire.Message) -> None:
        kind = message["t"]
        if kind in ("progress", "ready", "failed"):
            self._ready.put(message)
            return
        if kind == "died" or message.get("kind") == EngineDiedError.__name__:
            # The host is about to end as well; whoever calls next gets a new one.
            self._gone = self._gone or EngineDiedError(
                f"{message['text']}\n{log_tail(self.log_path)}"
            )
            message = {**message, "text": str(self._gone)}
        if kind == "died":
            return
        last = kind != "delta" or "end" in message
        call_id = message["id"]
        entry = self._sinks.pop(call_id, None) if last else self._sinks.get(call_id)
        if entry is None:
            return
        sink, tag = entry
        if kind == "delta" and self.on_delta is not None:
            self.on_delta(call_id, tag, message)
        try:
            sink(message)
        except RuntimeError:
            # The event loop that waited for this call is closed: nobody is left to hear it.
            self.cancel(call_id)

    def _fail(self, error: EngineError) -> None:
        if self._gone is None:
            self._gone = error
        message = {"t": "error", **wire.error_message(self._gone)}
        while self._sinks:
            _, (sink, _) = self._sinks.popitem()
            with contextlib.suppress(RuntimeError):
                sink(message)

    def disown(self) -> None:
        """In a forked child: let go of the socket, or the host would not see its user end."""
        with contextlib.suppress(OSError):
            os.close(self._channel.detach())


_live: weakref.WeakSet[HostProcess] = weakref.WeakSet()
_forking = threading.RLock()


def _disown_all() -> None:
    for host in list(_live):
        host.disown()
    _live.clear()
    _forking.release()


os.register_at_fork(
    before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_disown_all
)


@atexit.register
def _close_all() -> None:
    for host in list(_live):
        host.close()


def settings_key(settings: Mapping[str, Any]) -> str:
    """A key that is equal for equal settings. Raises ConfigError for what JSON cannot hold."""
    try:
        return json.dumps(settings, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"engine arguments must be plain data (numbers, strings, lists, dictionaries): {error}"
        ) from error
