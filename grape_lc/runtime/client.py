"""``GrapeEngine``: vLLM with our scheduler, in processes of its own, shared within this one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import queue
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from grape_lc.engine.base import CallDelta, CallObserver, CallRequest
from grape_lc.engine.call_limits import check_call
from grape_lc.engine.models import resolve_model
from grape_lc.errors import (
    ConfigError,
    EmptyPromptError,
    EngineClosedError,
    EngineError,
    EngineStartError,
)
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.runtime import wire
from grape_lc.runtime.driver import RunsFlows
from grape_lc.runtime.off_loop import off_loop
from grape_lc.runtime.process import HostProcess, Progress, settings_key
from grape_lc.runtime.questions import AsksEngine

logger = logging.getLogger(__name__)

_VLLM = "grape_lc.engine.vllm_engine:VLLMEngine"
_program_serial = itertools.count()
_handle_serial = itertools.count()


class _Shared:
    """A host process and the handles that hold it; the last one to let go ends it.

    A host that died is replaced at the next use: the calls it carried fail, later ones work.
    """

    _all: dict[str, _Shared] = {}  # noqa: RUF012 - the registry of this process
    _all_lock = threading.RLock()

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self._host: HostProcess | None = None
        self._holders: set[int] = set()
        self.observers: list[CallObserver] = []

    @classmethod
    def of(cls, settings: dict[str, Any]) -> _Shared:
        """The one entry of these settings."""
        key = settings_key({**settings, "pid": os.getpid()})
        with cls._all_lock:
            return cls._all.setdefault(key, cls(settings))

    @property
    def running(self) -> HostProcess | None:
        host = self._host
        return host if host is not None and host.alive else None

    def host(self, holder: int, progress: Progress) -> HostProcess:
        """The running host, started if need be."""
        with self.lock:
            host = self.running
            if host is None:
                model = resolve_model(self.settings["model"], progress=progress)
                if self._host is not None:
                    self._host.close()
                    if self._host.is_foreign:
                        logger.warning("an engine of a parent process: this one starts its own")
                settings = {**self.settings, "model": model, "engine": _VLLM}
                try:
                    host = HostProcess(settings, progress)
                except EngineStartError as error:
                    if Path(model).is_absolute():
                        raise
                    raise EngineStartError(
                        f"model {model}: no folder here, so vLLM asked the hub for it. {error}"
                    ) from error
                host.on_delta = self._observe
                self._host = host
                progress("ready")
                refusal = host.info.get("early_refusal")
                if refusal is not None and self.settings["scheduler"] == "grape":
                    warnings.warn(
                        f"calls run as on plain vLLM, nothing is prefilled ahead: {refusal}",
                        RuntimeWarning,
                        stacklevel=4,
                    )
            self._holders.add(holder)
            return host

    @classmethod
    def forked(cls) -> None:
        """In a forked child: threads that held a lock are not there to let go of it."""
        cls._all_lock = threading.RLock()
        for shared in cls._all.values():
            shared.lock = threading.RLock()

    def release(self, holder: int) -> None:
        with self.lock:
            self._holders.discard(holder)
            if not self._holders and self._host is not None:
                host, self._host = self._host, None
                host.close()

    def forget(self, observer: CallObserver) -> None:
        if observer in self.observers:
            self.observers.remove(observer)

    def _observe(self, call_id: int, tag: object, message: wire.Message) -> None:
        if self.observers and isinstance(tag, CallRequest):
            delta = wire.delta_of(message)
            for observer in tuple(self.observers):
                try:
                    observer(call_id, tag, delta)
                except Exception:
                    # Other calls share the thread that this runs on.
                    logger.exception("an observer failed and is removed")
                    self.forget(observer)


class GrapeEngine(AsksEngine, RunsFlows):
    """A handle on a vLLM engine that prefills ahead.

    model: a local path or hub name; None is the embedded SmolLM2-135M-Instruct.
    scheduler: ``grape`` (ours) or ``stock`` (vLLM's own, for comparison: nothing is prefilled
        ahead).
    progress: True writes a progress line to stderr while the engine starts; a callable gets
        each line; False is silent.
    engine_args: any vLLM engine argument (``max_model_len``, ``dtype``, ``block_size``,
        ``speculative_config``, ...), plus ``grape``, a dictionary of settings of our scheduler,
        and ``deterministic=True`` for answers that do not depend on what else runs, as far as a
        machine allows it (docs/exactness.md).

    The engine starts on first use or by ``start()``. Handles with the same settings share one
    engine; it ends when the last of them is closed, or with the interpreter. If it dies, the
    calls in flight raise EngineDiedError and the next use starts a new one.

    Works from any thread and from any event loop. Raises ConfigError for settings that cannot
    be sent to the engine; ``start`` raises ModelNotFoundError, ConfigError or EngineStartError.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        scheduler: Literal["grape", "stock"] = "grape",
        progress: bool | Progress = True,
        **engine_args: Any,
    ) -> None:
        if scheduler not in ("grape", "stock"):
            raise ConfigError(f"scheduler={scheduler!r}; known: 'grape', 'stock'")
        self._model = os.fspath(model) if model is not None else None
        self._progress = _progress_line(progress)
        self._shared = _Shared.of(
            {"model": self._model, "scheduler": scheduler, "args": engine_args}
        )
        self._serial = next(_handle_serial)
        self._closed = False

    @classmethod
    def shared(cls, model: str | os.PathLike[str] | None = None, **engine_args: Any) -> GrapeEngine:
        """The process-wide handle for these settings; made anew after it was closed."""
        key = settings_key(
            {"model": os.fspath(model) if model else None, "args": engine_args, "pid": os.getpid()}
        )
        with _handles_lock:
            handle = _handles.get(key)
            if handle is None or handle._closed:
                handle = _handles[key] = cls(model, **engine_args)
            return handle

    @classmethod
    def loaded(cls) -> tuple[GrapeEngine, ...]:
        """The handles that ``shared`` gave out and whose engine runs, oldest first."""
        with _handles_lock:
            return tuple(handle for handle in _handles.values() if handle.is_open)

    def __deepcopy__(self, memo: dict[int, Any]) -> GrapeEngine:
        # A handle on the same engine; so models that hold it can be copied.
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self._shared.settings
        return _handle, (settings["model"], settings["scheduler"], settings["args"])

    # ------------------------------------------------------------------ life

    @property
    def model_name(self) -> str:
        """Name or path as given, or the embedded model's name."""
        return self._model or "SmolLM2-135M-Instruct"

    @property
    def is_open(self) -> bool:
        """Whether the engine runs and this handle may use it."""
        return not self._closed and self._shared.running is not None

    def start(self) -> Self:
        """Start the engine now, if it does not run; blocks until it serves."""
        self._host()
        return self

    def info(self) -> dict[str, Any]:
        """Facts about the engine: ``max_model_len`` (tokens), ``block_size``, ``device``, ..."""
        return dict(self._host().info)

    @property
    def pid(self) -> int:
        """Process id of the engine host, which leads the engine's process group."""
        return self._host().pid

    def close(self) -> None:
        """Let go of the engine; idempotent. Calls of this handle raise EngineClosedError."""
        if not self._closed:
            self._closed = True
            self._shared.release(self._serial)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        # Who is cancelled here never comes to __aexit__.
        return await off_loop(self.start, lambda _: self.close())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _host(self) -> HostProcess:
        # Under the lock, or who closes the handle meanwhile would see the engine start anew.
        with self._shared.lock:
            if self._closed:
                raise EngineClosedError("this engine handle was closed")
            return self._shared.host(self._serial, self._progress)

    async def _ahost(self) -> HostProcess:
        if not self._closed and (host := self._shared.running) is not None:
            return host
        return await off_loop(self._host)

    # ------------------------------------------------------------------ calls

    def stream(self, request: CallRequest) -> Iterator[CallDelta]:
        """Run a call; closing the iterator cancels it. Raises RequestError or EngineError."""
        _check(request)
        host = self._host()
        replies: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()
        call_id = _begin(host, request, replies.put)
        try:
            while True:
                host.check_owner()  # what was begun before a fork is the parent's
                delta = _delta(replies.get())
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            host.cancel(call_id)

    async def astream(self, request: CallRequest) -> AsyncIterator[CallDelta]:
        """Like ``stream`` on the running event loop; cancelling the task cancels the call."""
        _check(request)
        host = await self._ahost()
        loop = asyncio.get_running_loop()
        replies: asyncio.Queue[wire.Message] = asyncio.Queue()
        call_id = _begin(
            host, request, lambda m: _ignore(loop.call_soon_threadsafe(replies.put_nowait, m))
        )
        try:
            while True:
                delta = _delta(await replies.get())
                yield delta
                if delta.finish_reason is not None:
                    return
        finally:
            host.cancel(call_id)

    def observe(self, observer: CallObserver) -> Callable[[], None]:
        """Call ``observer`` with every delta of calls begun from now on; returns the undo.

        It runs on the engine's reader thread and must be quick; one that raises is removed.
        """
        self._shared.observers.append(observer)
        return lambda: self._shared.forget(observer)

    # ------------------------------------------------------------------ programs

    def open_program(self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = "") -> str:
        """Announce a run of ``flow``, without waiting; returns the program id.

        ``inputs`` may be incomplete: what is not known is not prefilled ahead. ``tenant``: whose
        run it is; only calls of the same tenant are part of it.
        """
        program = f"{os.getpid()}-{next(_program_serial)}"
        self._host().post(program_message(program, flow, inputs, tenant))
        return program

    def close_program(self, program_id: str) -> None:
        """Release all open prompts of a program; unknown ids and a dead engine are ignored."""
        # By a closed handle too: others may hold the engine that the program is open on.
        host = self._shared.running
        if host is not None:
            with contextlib.suppress(EngineError):  # it may end between the look and the message
                host.post({"t": "close", "program": program_id})

    def stats(self) -> dict[str, Any]:
        """As the engine tells, with ``client``: calls that this process waits for."""
        return {**super().stats(), "client": {"calls": self._host().waiting}}

    def _ask(self, what: str, **args: Any) -> Any:
        replies: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()
        self._host().begin({"t": "ask", "what": what, "args": args}, replies.put)
        message = replies.get()
        if message["t"] == "error":
            raise wire.error_of(message)
        return message["value"]


def program_message(
    program: str, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = ""
) -> wire.Message:
    """What the host is told of a run that begins."""
    return {
        "t": "open",
        "program": program,
        # How calls sample is theirs to say; the host only needs the prompts.
        "flow": flow.model_dump(mode="json", exclude={"tasks": {"__all__": {"sampling"}}}),
        "inputs": dict(inputs),
        "tenant": tenant,
    }


_handles: dict[str, GrapeEngine] = {}
_handles_lock = threading.RLock()


def _forked() -> None:
    global _handles_lock  # noqa: PLW0603 - as above
    _handles_lock = threading.RLock()
    _Shared.forked()


os.register_at_fork(after_in_child=_forked)


def _begin(host: HostProcess, request: CallRequest, sink: Callable[[wire.Message], None]) -> int:
    message = {"t": "call", "req": request.model_dump(exclude_defaults=True)}
    return host.begin(message, sink, request)


def _handle(model: str | None, scheduler: Any, args: dict[str, Any]) -> GrapeEngine:
    """A handle made from another one's settings, as after pickling."""
    return GrapeEngine(model, scheduler=scheduler, **args)


def _ignore(_: object) -> None:
    return None


def _check(request: CallRequest) -> None:
    check_call(request)
    if request.messages is not None and not request.messages:
        raise EmptyPromptError("the call has no messages; give it at least one")


def _delta(message: wire.Message) -> CallDelta:
    if message["t"] == "error":
        raise wire.error_of(message)
    return wire.delta_of(message)


def _progress_line(progress: bool | Progress) -> Progress:
    """Where progress goes: a line that is rewritten on a terminal, one line a stage elsewhere."""
    if callable(progress):
        return progress
    if not progress:
        return lambda text: None
    last = ""

    def show(text: str) -> None:
        nonlocal last
        stage = text.partition(" (")[0]
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[Kgrape: {text}")
            if stage == "ready":
                sys.stderr.write("\n")
            sys.stderr.flush()
        elif stage != last:
            sys.stderr.write(f"grape: {text}\n")
            sys.stderr.flush()
        last = stage

    return show
