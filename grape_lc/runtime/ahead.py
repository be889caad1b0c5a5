"""Feeds the engine with what is known ahead, and never lets that work disturb a call.

A prediction may be wrong in ways nobody thought of. Whatever goes wrong here is logged and
counted, the program concerned goes on without open prompts, and the call never notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from grape_lc.flow.taskflow import TaskFlow
from grape_lc.runtime.programs import (
    AppendPrompt,
    Command,
    OpenPrompt,
    PromptTable,
    PromptText,
    ReleasePrompt,
)

logger = logging.getLogger(__name__)

_CATCH_UP_S = 0.02


class OpenPromptEngine(PromptText, Protocol):
    """The part of an engine that keeps open prompts."""

    async def open(self, key: str, ids: Sequence[int], hops: int) -> None:
        """Begin an open prompt under a key that was never used before."""
        ...

    async def append(self, key: str, ids: Sequence[int], hops: int, final: bool) -> None:
        """Extend an open prompt; unknown keys are ignored."""
        ...

    async def release(self, keys: Sequence[str]) -> None:
        """Give open prompts back; unknown keys are ignored."""
        ...


class Ahead:
    """The prompt table and the engine that carries out what it says."""

    def __init__(self, engine: OpenPromptEngine, *, enabled: bool) -> None:
        self._engine = engine
        self.table = PromptTable(engine, enabled=enabled)
        self._later: set[asyncio.Task[None]] = set()

    async def open_program(self, program: str, flow: object, inputs: Mapping[str, str]) -> None:
        """A run of ``flow`` (as data) begins."""
        await self._do(
            program,
            lambda: self.table.open_program(program, TaskFlow.model_validate(flow), inputs),
        )

    async def close_program(self, program: str) -> None:
        """A run ended: release what it still holds."""
        await self._do(program, lambda: self.table.close_program(program))

    async def begin_call(self, program: str | None, task: str | None) -> tuple[str | None, bool]:
        """A call was tokenised: the open prompt to take over, and whether it feeds others."""
        key = self.table.take(program, task)
        await self._do(program, lambda: self.table.call_started(program, task))
        return key, self.table.feeds(program, task)

    async def call_text(
        self, program: str | None, task: str | None, text: str, tokens: int
    ) -> None:
        """A call produced ``text`` out of ``tokens`` tokens."""
        await self._do(program, lambda: self.table.call_text(program, task, text, tokens))

    async def end_call(
        self, program: str | None, task: str | None, key: str | None, *, complete: bool
    ) -> None:
        """A call ended. If it did not complete, ``key`` may not have reached the engine."""
        if key is not None and not complete:
            await self._engine.release([key])
        await self._do(program, lambda: self.table.call_finished(program, task, complete=complete))
        if complete and program is not None and program in self.table:
            later = asyncio.create_task(self._catch_up(program))
            self._later.add(later)
            later.add_done_callback(self._later.discard)

    async def _catch_up(self, program: str) -> None:
        """Once the next call had its turn, the prompts behind it get theirs."""
        await asyncio.sleep(_CATCH_UP_S)
        await self._do(program, lambda: self.table.catch_up(program))

    async def _do(self, program: str | None, event: Callable[[], list[Command]]) -> None:
        if program is None:
            return
        try:
            await self._run(event())
        except Exception:
            logger.exception("program %s goes on without open prompts", program)
            self.table.counts["failed"] += 1
            await self._run(self.table.close_program(program))

    async def _run(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case OpenPrompt(key, ids, hops):
                    await self._engine.open(key, ids, hops)
                case AppendPrompt(key, ids, hops, final):
                    await self._engine.append(key, ids, hops, final)
                case ReleasePrompt(key):
                    await self._engine.release([key])
