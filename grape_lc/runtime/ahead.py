"""Feeds the engine with what is known ahead, and never lets that work disturb a call.

A prediction may be wrong in ways nobody thought of. Whatever goes wrong here is logged and
counted, the program concerned goes on without open prompts, and the call never notices.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from grape_lc.engine.base import CallRequest, FoundBy
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.runtime.commands import AppendPrompt, Command, OpenPrompt, ReleasePrompt
from grape_lc.runtime.hints import with_targets
from grape_lc.runtime.programs import PromptTable, PromptText
from grape_lc.scheduler.types import NO_HINT, Hint

logger = logging.getLogger(__name__)

_CATCH_UP_S = 0.02


class OpenPromptEngine(PromptText, Protocol):
    """The part of an engine that keeps open prompts."""

    async def open(self, key: str, ids: Sequence[int], hint: Hint) -> None:
        """Begin an open prompt under a key that was never used before."""
        ...

    async def append(
        self, key: str, ids: Sequence[int], hops: int, final: bool, source: str | None
    ) -> None:
        """Extend an open prompt; unknown keys are ignored."""
        ...

    async def release(self, keys: Sequence[str]) -> None:
        """Give open prompts back; unknown keys are ignored."""
        ...


@dataclass(slots=True)
class Bound:
    """What a call turned out to be.

    program, task: whose it is; what it answers is fed to the prompts that read it. Both are None
    of a call that is nobody's, and of one found by its content once the real one has come.
    key: the open prompt to take over. hint: what is known about the call. found_by: how it was
    found.
    """

    program: str | None
    task: str | None
    key: str | None
    hint: Hint
    found_by: FoundBy


class Ahead:
    """The prompt table and the engine that carries out what it says."""

    def __init__(self, engine: OpenPromptEngine, *, enabled: bool) -> None:
        self._engine = engine
        self.table = PromptTable(engine, enabled=enabled)
        self._later: set[asyncio.Task[None]] = set()
        # Running calls that were found by their content: a call that names its task knows better.
        self._guests: dict[tuple[str | None, str | None], Bound] = {}

    @property
    def sizes(self) -> dict[str, int]:
        """Entries of what is kept: the table's, and calls and programs that are under way."""
        return {**self.table.sizes, "guests": len(self._guests), "later": len(self._later)}

    async def open_program(
        self, program: str, flow: object, inputs: Mapping[str, str], tenant: str = ""
    ) -> None:
        """A run of ``flow`` (as data) begins, of a tenant's."""
        await self._do(
            program,
            lambda: self.table.open_program(program, TaskFlow.model_validate(flow), inputs, tenant),
        )

    async def close_program(self, program: str) -> None:
        """A run ended: release what it still holds."""
        await self._do(program, lambda: self.table.close_program(program))

    async def begin_call(self, request: CallRequest) -> Bound:
        """A call was tokenised: find out what it is, and the open prompt to take over."""
        found_by: FoundBy = "none"
        if self.table.is_anothers(request.program, request.tenant):
            # It is told, and may do, what a call could that names nothing and fits nothing.
            self.table.counts["program_of_another_tenant"] += 1
            request = request.model_copy(update={"program": None, "task": None})
        elif self.table.knows(request.program, request.task):
            found_by = "name"
        elif request.program is None and (found := self._find(request)) is not None:
            request = request.model_copy(update={"program": found[0], "task": found[1]})
            found_by = "content"
        # One that is not open may be opened by somebody else before this call ends.
        program = request.program if request.program in self.table else None
        task = request.task
        if (guest := self._guests.pop((program, task), None)) is not None:
            guest.program = guest.task = None
        bound = Bound(program, task, self.table.take(program, task), NO_HINT, found_by)
        if found_by == "content":
            self._guests[program, task] = bound
        try:
            await self._do(program, lambda: self.table.call_started(program, task))
        except asyncio.CancelledError:
            # Nobody else holds the key yet.
            await self.end_call(bound, complete=False)
            raise
        bound.hint = with_targets(self.table.hint(program, task), request)
        return bound

    def _find(self, request: CallRequest) -> tuple[str, str] | None:
        try:
            return self.table.find(request)
        except Exception:
            logger.exception("a call is served without looking for its open prompt")
            self.table.counts["failed"] += 1
            return None

    async def call_text(self, call: Bound, text: str, tokens: int) -> None:
        """A call produced ``text`` out of ``tokens`` tokens."""
        await self._do(
            call.program, lambda: self.table.call_text(call.program, call.task, text, tokens)
        )

    async def end_call(self, call: Bound, *, complete: bool) -> None:
        """A call ended. If it did not complete, its key may not have reached the engine."""
        program, task = call.program, call.task
        if self._guests.get((program, task)) is call:
            del self._guests[program, task]
        if call.key is not None and not complete:
            await self._engine.release([call.key])
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
                case OpenPrompt(key, ids, hint):
                    await self._engine.open(key, ids, hint)
                case AppendPrompt(key, ids, hops, final, source):
                    await self._engine.append(key, ids, hops, final, source)
                case ReleasePrompt(key):
                    await self._engine.release([key])
