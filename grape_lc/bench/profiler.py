"""Makes a real engine run the steps of a profile's workload, and collects the times they took."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from grape_lc import GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.engine.profile_cells import Step, steps_of
from grape_lc.engine.profile_workload import DECODE_STEPS, Limits, Speed, Task, Workload
from grape_lc.flow.sampling import Sampling
from grape_lc.scheduler.settings import PLAIN

_KEEP = 1 << 20
_ROUNDS = 3  # wanted at least
_OVERTIME = 1.5  # of the time, for these
_FIRST = 256  # tokens of the prompts that show how fast the engine is

Tell = Callable[[str], None]


def profile_engine(model: str | None, dtype: str | None, **engine_args: Any) -> GrapeEngine:
    """An engine that keeps the times of its steps, with every mechanism of ours off.

    What it measures is the machine, so that no policy may stand between a prompt and its step.
    """
    if dtype is not None:
        engine_args["dtype"] = dtype
    extra = {"grape_log_steps": _KEEP, "grape_cost": None}
    return GrapeEngine(model, grape=dict(PLAIN), additional_config=extra, **engine_args)


class Profiler:
    """Makes an engine run the steps of a workload.

    engine: as ``profile_engine`` makes it. seed: of prompts, order and choice of steps.
    seconds: for everything from here on. tell: gets one line now and then.
    """

    def __init__(
        self,
        engine: GrapeEngine,
        *,
        seconds: float,
        seed: int = 0,
        tell: Tell = lambda text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine = engine
        self._draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
        self._seconds = seconds
        self._tell = tell
        self._clock = clock
        self._began = clock()
        self._bases: list[list[int]] = []
        self._length = self._vocabulary = 0
        self.rounds = 0

    async def measure(self) -> list[Step]:
        """Run rounds until the time is over; returns the steps of all of them.

        At least one, and up to half of the time again for a third one: fewer are no repeats.
        """
        self._began = self._clock()
        info = await asyncio.to_thread(self._engine.info)
        limits = Limits(
            info["max_num_seqs"],
            info["max_model_len"],
            info["max_num_batched_tokens"],
            info["block_size"],
            info["num_blocks"],
        )
        self._length, self._vocabulary = limits.length, info["vocab_size"]
        self._tell("finding out how fast prefill is")
        speed = await self._speed(limits)
        workload = Workload.plan(limits, self._seconds, speed, self._draw)
        self._bases = [self._tokens(length) for length in workload.bases]
        for done, base in enumerate(self._bases):
            self._say(f"computing prompts to decode behind, {done} of {len(self._bases)}")
            await self._call(base, 1)
        await asyncio.to_thread(self._engine.steps)
        steps: list[Step] = []
        while True:
            began = self._clock()
            tasks = workload.round(self._draw)
            for done, task in enumerate(tasks):
                if self.rounds and self._left() < 0:
                    break
                text = f"round {self.rounds + 1}, {done} of {len(tasks)} kinds of steps"
                self._say(f"{text}, {len(steps)} steps in earlier rounds")
                await self._run(task)
            steps += steps_of(await asyncio.to_thread(self._engine.steps))
            self.rounds += 1
            if self._left() < 0.5 * (self._clock() - began):
                return steps

    def _left(self) -> float:
        """Seconds left; a machine that is slower than it seemed gets more for the repeats."""
        limit = self._seconds * (1.0 if self.rounds >= _ROUNDS else _OVERTIME)
        return limit - (self._clock() - self._began)

    def _say(self, text: str) -> None:
        self._tell(f"{text} ({self._clock() - self._began:.0f} of {self._seconds:.0f} s)")

    async def _speed(self, limits: Limits) -> Speed:
        """A first impression; the first prompt warms the engine up."""
        size = min(_FIRST, limits.length // 2, limits.step_tokens)
        for _ in range(2):
            await asyncio.to_thread(self._engine.steps)
            await self._call(self._tokens(size), 3)
        prefill, *decodes = steps_of(await asyncio.to_thread(self._engine.steps))
        return Speed(decodes[-1].seconds, prefill.seconds / prefill.load.tokens)

    async def _run(self, task: Task) -> None:
        # The same ones in every round, or the repeats of a step would not be repeats.
        rows = [
            self._prompt(base, min(task.context, len(base)), 1)
            for base in self._bases[: task.decodes]
        ]
        if not task.chunks:
            await asyncio.gather(*(self._call(row, DECODE_STEPS) for row in rows))
            return
        chunks = [
            self._prompt(self._draw.choice(self._holding(context)), context, tokens)
            for tokens, context in task.chunks
        ]
        async with self._decoding(rows):
            if task.together:
                await asyncio.gather(*(self._call(chunk, 1) for chunk in chunks))
            else:
                for chunk in chunks:
                    await self._call(chunk, 1)

    @contextlib.asynccontextmanager
    async def _decoding(self, rows: list[list[int]]) -> AsyncIterator[None]:
        """Calls that decode, each past its first token, until the block ends."""
        begun = [asyncio.Event() for _ in rows]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._call(row, self._length - len(row), event.set))
                for row, event in zip(rows, begun, strict=True)
            ]
            try:
                for event in begun:
                    await event.wait()
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _call(
        self, prompt: list[int], tokens: int, begun: Callable[[], None] = lambda: None
    ) -> None:
        sampling = Sampling(temperature=0.0, max_tokens=tokens, extra={"ignore_eos": True})
        deltas = self._engine.astream(CallRequest(token_ids=tuple(prompt), sampling=sampling))
        async with contextlib.aclosing(deltas):  # type: ignore[type-var]
            async for delta in deltas:
                if delta.token_ids:
                    begun()

    def _prompt(self, base: list[int], context: int, tokens: int) -> list[int]:
        """``tokens`` new ones behind ``context`` ones whose KV is there."""
        return base[:context] + self._tokens(tokens)

    def _holding(self, context: int) -> list[list[int]]:
        return [base for base in self._bases if len(base) >= context]

    def _tokens(self, count: int) -> list[int]:
        return [self._draw.randrange(self._vocabulary) for _ in range(count)]
