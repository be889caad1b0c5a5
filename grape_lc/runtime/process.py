"""The engine host as a child process: how it is started, reached and ended."""

from __future__ import annotations

import atexit
import contextlib
import itertools
import json
import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import grape_lc
from grape_lc.errors import (
    ConfigError,
    EngineClosedError,
    EngineDiedError,
    EngineError,
    EngineStartError,
)
from grape_lc.runtime import wire
from grape_lc.runtime.channel import Channel

logger = logging.getLogger(__name__)

Sink = Callable[[wire.Message], None]
Progress = Callable[[str], None]

HOST = "grape_lc.runtime.host"
_STOP_GRACE_S = 10.0
_LOG_TAIL_LINES = 25
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
        try:
            ours, theirs = socket.socketpair()
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
            with theirs:
                self._process = subprocess.Popen(
                    # -P: the user's working directory must not shadow installed packages.
                    [sys.executable, "-P", "-m", HOST, "--fd", str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=_environment(),
                    start_new_session=True,
                )
        finally:
            log.close()
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

    # ------------------------------------------------------------------ life

    @property
    def alive(self) -> bool:
        """Whether calls can be made (from the process that started the host)."""
        return self._gone is None and os.getpid() == self._owner_pid

    @property
    def pid(self) -> int:
        """Process id of the host; it leads the process group of all engine processes."""
        return self._process.pid

    def close(self) -> None:
        """End the host and every process under it. Idempotent; waits until they are gone."""
        if os.getpid() != self._owner_pid:
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
        _live.discard(self)
        if clean and self._process.returncode == 0 and not self._keep_log:
            self.log_path.unlink(missing_ok=True)

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

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
                    raise EngineStartError(f"{error}\n{self.log_tail()}")
                case _:
                    raise EngineStartError(f"the engine ended while starting\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of the engine's log, with its path."""
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except OSError:
            return f"(no log at {self.log_path})"
        return "\n".join(
            [f"the last lines of the engine's log, {self.log_path}:", *lines[-_LOG_TAIL_LINES:]]
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

    def _check(self) -> None:
        if os.getpid() != self._owner_pid:
            raise EngineClosedError(
                f"this engine belongs to process {self._owner_pid}; after a fork "
                f"(now {os.getpid()}) a new engine must be made"
            )
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
            self._kill_group()  # the engine core must not outlive a host that was killed
            self._fail(EngineDiedError(f"the engine ended unexpectedly\n{self.log_tail()}"))
        self._ready.put({"t": "ended"})

    def _dispatch(self, message: wire.Message) -> None:
        kind = message["t"]
        if kind in ("progress", "ready", "failed"):
            self._ready.put(message)
            return
        if message.get("kind") == EngineDiedError.__name__:
            # The host is about to end as well; whoever calls next gets a new one.
            self._gone = self._gone or EngineDiedError(f"{message['text']}\n{self.log_tail()}")
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
        while self._sinks:
            _, (sink, _) = self._sinks.popitem()
            with contextlib.suppress(RuntimeError):
                sink({"t": "error", "kind": type(error).__name__, "text": str(error)})

    def disown(self) -> None:
        """In a forked child: let go of the socket, or the host would not see its user end."""
        with contextlib.suppress(OSError):
            os.close(self._channel.detach())


_live: weakref.WeakSet[HostProcess] = weakref.WeakSet()


def _disown_all() -> None:
    for host in list(_live):
        host.disown()


os.register_at_fork(after_in_child=_disown_all)


@atexit.register
def _close_all() -> None:
    for host in list(_live):
        host.close()


def _environment() -> dict[str, str]:
    """The host's environment: the user's own, completed where a small machine needs it."""
    env = dict(os.environ)
    root = str(Path(grape_lc.__file__).resolve().parent.parent)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")]))
    cores = len(os.sched_getaffinity(0))
    # One half computes; the other serves the front end and the user's own code. On two cores a
    # second compute thread makes decoding erratic.
    env.setdefault("OMP_NUM_THREADS", str(max(cores // 2, 1)))
    env.setdefault("NUMBA_NUM_THREADS", "1")  # n-gram drafting crawls otherwise
    env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    env.setdefault("VLLM_NO_USAGE_STATS", "1")
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    return env


def settings_key(settings: Mapping[str, Any]) -> str:
    """A key that is equal for equal settings. Raises ConfigError for what JSON cannot hold."""
    try:
        return json.dumps(settings, sort_keys=True)
    except TypeError as error:
        raise ConfigError(
            f"engine arguments must be plain data (numbers, strings, lists, dictionaries): {error}"
        ) from error
