"""The engine host: a process that owns the engine and the table of open prompts.

The user's process starts it and talks to it over an inherited socket (``wire``). It ends by
itself when that socket closes, so it cannot outlive its user.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Protocol

from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.errors import CallTimeoutError, ConfigError, EngineDiedError, GrapeError, WireError
from grape_lc.limits import LINE_BYTES
from grape_lc.runtime import wire
from grape_lc.runtime.ahead import Ahead, Bound, OpenPromptEngine
from grape_lc.runtime.lifelines import end_with_parent, keep_no_orphans, when_gone
from grape_lc.scheduler.types import Hint

logger = logging.getLogger(__name__)

_WATCH_S = 0.25
_END_LIMIT_S = 30.0


class Call(Protocol):
    """A prepared call: what the engine needs, tokenised and checked."""

    @property
    def token_ids(self) -> Sequence[int]:
        """The whole prompt."""
        ...


class HostedEngine(OpenPromptEngine, Protocol):
    """The engine as the host drives it; every method runs on the host's event loop."""

    @property
    def early_refusal(self) -> str | None:
        """Why no open prompts can be kept, or None if they can."""
        ...

    @property
    def failed(self) -> bool:
        """Whether the engine ended by itself; nothing can be served any more."""
        ...

    async def last_words(self) -> str:
        """How it ended, once it ``failed``; takes the moment that the end itself may take."""
        ...

    async def self_test(self) -> None:
        """Find out what the running engine can do; may set ``early_refusal``."""
        ...

    async def prepare(self, request: CallRequest) -> Call:
        """Render and tokenise a request. Raises RequestError."""
        ...

    def generate(self, call: Call, *, adopt: str | None, hint: Hint) -> AsyncIterator[CallDelta]:
        """Run a call; closing the iterator aborts it."""
        ...

    async def reset_prefix_cache(self) -> bool:
        """Forget cached prefixes and open prompts; False while calls hold blocks."""
        ...

    async def stats(self) -> dict[str, Any]:
        """Counters, blocks and slots in use."""
        ...

    async def steps(self) -> list[list[float]]:
        """Steps measured since the last question, where the engine was told to keep them."""
        ...

    async def records(self) -> list[str]:
        """Settings and records of the last steps, where the engine was told to keep them."""
        ...

    def info(self) -> dict[str, Any]:
        """Facts that do not change while the engine lives."""
        ...

    async def shutdown(self) -> None:
        """End the engine's processes."""
        ...


def load_engine(path: str) -> Callable[..., HostedEngine]:
    """The engine class at ``module:name``; the only place that decides which engine runs."""
    module, _, name = path.partition(":")
    factory: Callable[..., HostedEngine] = getattr(importlib.import_module(module), name)
    return factory


class Host:
    """Serves one client over one socket until either side ends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._calls: dict[int, asyncio.Task[None]] = {}
        self._asks: set[asyncio.Task[None]] = set()
        self._broken_lines = 0
        self._engine: HostedEngine
        self._ahead: Ahead
        self.serving = False

    async def run(self) -> None:
        """Start the engine, serve until the client is gone, then end everything."""
        line = await self._reader.readline()
        if not line:
            return
        settings = wire.decode(line)
        try:
            self._start(settings)
            await self._engine.self_test()
        except Exception as error:  # noqa: BLE001 - reported to the client, which raises it
            self._send({"t": "failed", **_start_error(error)})
            await self._writer.drain()
            return
        try:
            self._ahead = Ahead(self._engine, enabled=self._engine.early_refusal is None)
            self._send({"t": "ready", "info": self._engine.info()})
            self._asks.add(asyncio.create_task(self._watch()))
            self.serving = True
            await self._serve()
        finally:
            await self._end()

    def _start(self, settings: wire.Message) -> None:
        # Blocks the loop on purpose: there is nothing else to serve yet.
        self._send({"t": "progress", "text": "importing the engine"})
        factory = load_engine(settings["engine"])
        self._send({"t": "progress", "text": "loading the model"})
        self._engine = factory(settings["model"], settings["scheduler"], settings["args"])

    async def _serve(self) -> None:
        while (line := await self._line()) is not None:
            message: wire.Message = {}
            try:
                message = wire.decode(line)
                await self._take(message)
            except (WireError, LookupError, TypeError, ValueError) as error:
                # One that is not known to be anybody's is nobody's; the others go on.
                self._broken_lines += 1
                logger.error("a message of the client is dropped: %r", error)
                if isinstance(call_id := message.get("id"), int) and call_id not in self._calls:
                    self._send({"t": "error", "id": call_id, **wire.error_message(error)})

    async def _line(self) -> bytes | None:
        """The next line; None at the end. One that is too long comes as pieces that are none."""
        while True:
            try:
                return await self._reader.readline() or None
            except ValueError as error:
                self._broken_lines += 1
                logger.error("a message of the client is dropped: %s", error)

    async def _take(self, message: wire.Message) -> None:
        """Do what a message asks for. Raises LookupError, TypeError or ValueError."""
        match message["t"]:
            case "call":
                call_id = int(message["id"])
                if call_id in self._calls:
                    raise ValueError(f"call {call_id} runs already")
                task = asyncio.create_task(self._call(call_id, message["req"]))
                self._calls[call_id] = task
                # One that is cancelled before it began never comes to its own end.
                task.add_done_callback(partial(self._ended, call_id))
            case "cancel":
                if (running := self._calls.get(message["id"])) is not None:
                    running.cancel()
            case "open":
                program, inputs = str(message["program"]), dict(message["inputs"])
                if not all(isinstance(text, str) for text in inputs.values()):
                    raise TypeError("inputs that are no texts")
                tenant = str(message.get("tenant", ""))
                await self._ahead.open_program(program, message["flow"], inputs, tenant)
            case "close":
                await self._ahead.close_program(str(message["program"]))
            case "ask":
                ask = asyncio.create_task(self._answer(int(message["id"]), message))
                self._asks.add(ask)
                ask.add_done_callback(self._asks.discard)
            case other:
                raise ValueError(f"unknown message {other!r} from the client")

    async def _watch(self) -> None:
        """End with the engine: questions to a dead one would wait for ever."""
        while not self._engine.failed:  # noqa: ASYNC110 - vLLM offers a flag, not an event
            await asyncio.sleep(_WATCH_S)
        self._send({"t": "died", "text": await self._engine.last_words()})
        self._reader.feed_eof()

    async def _end(self) -> None:
        tasks = [*self._calls.values(), *self._asks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._engine.shutdown()

    # ------------------------------------------------------------------ messages

    async def _call(self, call_id: int, raw: wire.Message) -> None:
        bound: Bound | None = None
        complete = False
        try:
            request = CallRequest.model_validate(raw)
            async with _time_limit(request) as limit:
                call = await self._engine.prepare(request)
                bound = await self._ahead.begin_call(request)
                deltas = self._engine.generate(call, adopt=bound.key, hint=bound.hint)
                async with contextlib.aclosing(deltas):  # type: ignore[type-var]
                    async for delta in deltas:
                        self._send(wire.delta_message(call_id, _with_origin(delta, bound)))
                        complete = delta.finish_reason is not None
                        if complete:
                            limit.reschedule(None)  # the caller has it all
                        # The end takes in all text at once, so the last piece need not.
                        tokens = 0 if complete else len(delta.token_ids)
                        await self._ahead.call_text(bound, delta.text, tokens)
                        if complete:
                            await self._ahead.end_call(bound, complete=True)
        except Exception as error:  # noqa: BLE001 - this call's error; the others go on
            self._send({"t": "error", "id": call_id, **wire.error_message(error)})
        finally:
            self._calls.pop(call_id, None)
            if bound is not None and not complete:
                await self._ahead.end_call(bound, complete=False)

    def _ended(self, call_id: int, task: asyncio.Task[None]) -> None:
        self._calls.pop(call_id, None)

    async def _answer(self, ask_id: int, message: wire.Message) -> None:
        reply: wire.Message = {"t": "answer", "id": ask_id}
        try:
            reply["value"] = await self._ask(message["what"], message.get("args", {}))
        except Exception as problem:  # noqa: BLE001 - the answer to this question is the error
            error: Exception = problem
            if self._engine.failed:
                error = EngineDiedError(await self._engine.last_words())
            reply = {"t": "error", "id": ask_id, **wire.error_message(error)}
        self._send(reply)

    async def _ask(self, what: str, args: dict[str, Any]) -> Any:
        match what:
            case "stats":
                return {
                    **await self._engine.stats(),
                    "programs": len(self._ahead.table),
                    "table": dict(self._ahead.table.counts),
                    "host": self._sizes(),
                }
            case "steps":
                return await self._engine.steps()
            case "records":
                return await self._engine.records()
            case "reset":
                return await self._engine.reset_prefix_cache()
            case "tokens":
                return list(self._engine.encode(args["text"], chat=True)[0])
            case "prompt":
                call = await self._engine.prepare(CallRequest.model_validate(args["req"]))
                return list(call.token_ids)
        known = "stats, steps, records, reset, tokens, prompt"
        raise ConfigError(f"unknown question {what!r}; known: {known}")

    def _sizes(self) -> dict[str, int]:
        """Entries of what is kept for calls and programs; tasks and threads of this process."""
        return {
            **self._ahead.sizes,
            "calls": len(self._calls),
            "broken_lines": self._broken_lines,
            "questions": len(self._asks),
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
        }

    def _send(self, message: wire.Message) -> None:
        if not self._writer.is_closing():
            self._writer.write(wire.encode(message, limited=False))


def _with_origin(delta: CallDelta, bound: Bound) -> CallDelta:
    """``delta`` with how the call was found, which the engine cannot know."""
    if delta.usage is None:
        return delta
    return delta._replace(usage=delta.usage._replace(found_by=bound.found_by))


@contextlib.asynccontextmanager
async def _time_limit(request: CallRequest) -> AsyncIterator[asyncio.Timeout]:
    """Cancel what runs inside once the call has had its time. Raises CallTimeoutError."""
    limit = asyncio.timeout(request.timeout_s)
    try:
        async with limit:
            yield limit
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise CallTimeoutError(
            f"the call took longer than the {request.timeout_s} s that it was given (timeout_s) "
            f"and was cancelled; its max_tokens: {request.sampling.max_tokens or 'not set'}"
        ) from error


def _start_error(error: Exception) -> wire.Message:
    if isinstance(error, GrapeError):
        return wire.error_message(error)
    return {"kind": "EngineStartError", "text": f"{type(error).__name__}: {error}"}


async def _main(fd: int) -> None:
    sock = socket.socket(fileno=fd)
    reader, writer = await asyncio.open_connection(sock=sock, limit=LINE_BYTES.value)
    # Only the client decides when the host ends; Ctrl-C in a terminal reaches the client.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: None)
    host = Host(reader, writer)

    def abandoned() -> None:
        if host.serving:  # the loop has seen it too, and ends everything in order
            time.sleep(_END_LIMIT_S)
        os._exit(0)

    when_gone(fd, abandoned)
    await host.run()


def main() -> None:
    """Entry point of the host process: ``python -m grape_lc.runtime.host --fd N --lock M``.

    fd: its end of the socket. lock: holds the engine's folder for as long as the host lives.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--lock", type=int, required=True)
    options = parser.parse_args()
    for fd in (options.fd, options.lock):
        os.set_inheritable(fd, False)
    keep_no_orphans()
    asyncio.run(_main(options.fd))
    # Everything is closed by now; tearing the interpreter down would only take seconds.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
elif __name__ == "__mp_main__":
    # In a process that vLLM spawned, before anything else of it runs.
    end_with_parent()
