"""The soak itself: programs in bounded numbers, and a reading of all sizes now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.soak.accounts import exact
from tests.soak.moments import Workplace
from tests.soak.plan import Job, job
from tests.soak.running import Outcome, run
from tests.soak.sizes import Processes, Reading, read
from tests.soak.tally import Tally, Traffic

Say = Callable[[str], None]

_IDLE_S = 60.0  # for everything to be over, behind the last program
_GIVE_UP_S = 10.0  # for a lost program to be cancelled
_SAY_EVERY_S = 5.0


@dataclass(frozen=True)
class SoakSettings:
    """What to run.

    programs: most of them. seconds: after which no further one begins. share: of programs with a
    fault. every: programs between two readings. at_once: programs. warm: programs before those
    that count. lost_s: after which a program that has no end yet counts as lost.
    """

    programs: int = 10_000
    seconds: float | None = None
    seed: int = 1
    share: float = 0.1
    every: int = 500
    at_once: int = 32
    warm: int = 64
    lost_s: float = 120.0


@dataclass
class Record:
    """What a soak saw.

    base: before the first program. warm, first: behind the first few, which do not count, and how
    these ended.
    """

    base: Reading
    warm: Reading
    first: Tally
    readings: list[Reading] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)
    traffic: Traffic = field(default_factory=Traffic)
    seconds: float = 0.0
    stopped: str = "all programs are done"


class Soak:
    """One soak on one engine. ``stop`` may be called from a signal handler."""

    def __init__(self, place: Workplace, settings: SoakSettings, say: Say) -> None:
        self._place = place
        self._settings = settings
        self._say = say
        self._stopped: str | None = None
        self._said = 0.0
        self._since = 0.0

    def stop(self, why: str) -> None:
        """Begin no further program."""
        self._stopped = self._stopped or why

    async def run(self) -> Record:
        """Run all programs; returns what was seen once nothing runs any more."""
        settings, engine = self._settings, self._place.engine
        processes = Processes(engine.pid)
        self._since = time.monotonic()
        base = await self._read(processes, 0, None)
        wanted = exact(base.kept)
        first = Tally()
        await self._chunk(range(-settings.warm, 0), first, settings.warm)
        record = Record(base, await self._read(processes, 0, wanted), first)
        forget = engine.observe(record.traffic)
        self._since = time.monotonic()
        try:
            while self._goes_on(record, processes.host_pid):
                done = record.tally.programs
                numbers = range(done, min(done + settings.every, settings.programs))
                await self._chunk(numbers, record.tally, settings.programs)
                record.seconds = time.monotonic() - self._since
                if self._lives(processes.host_pid):
                    reading = await self._read(processes, record.tally.programs, wanted)
                    record.readings.append(reading)
            if not record.readings and self._lives(processes.host_pid):
                # It was stopped before any program that counts.
                record.readings.append(record.warm)
        finally:
            forget()
        record.stopped = self._stopped or record.stopped
        return record

    def _lives(self, pid: int) -> bool:
        """Whether the engine is the one that was there at the start."""
        engine = self._place.engine
        return engine.is_open and engine.pid == pid

    def _goes_on(self, record: Record, pid: int) -> bool:
        if not self._lives(pid):
            self.stop("the engine ended by itself")
        return self._stopped is None and record.tally.programs < self._settings.programs

    async def _read(
        self, processes: Processes, programs: int, wanted: dict[str, int] | None
    ) -> Reading:
        return await read(
            self._place,
            processes,
            programs=programs,
            since=self._since,
            wanted=wanted,
            limit_s=_IDLE_S,
        )

    async def _chunk(self, numbers: range, tally: Tally, programs: int) -> None:
        """Run these programs, and wait for all of them."""
        left = iter(numbers)
        workers = min(self._settings.at_once, len(numbers))
        await asyncio.gather(*(self._work(left, tally, programs) for _ in range(workers)))

    async def _work(self, left: Iterator[int], tally: Tally, programs: int) -> None:
        settings = self._settings
        for number in left:
            passed = time.monotonic() - self._since
            if settings.seconds is not None and passed > settings.seconds:
                self.stop(f"its {settings.seconds:g} s are over")
            if self._stopped is not None:
                return
            planned = job(number, settings.seed, settings.share)
            tally.ended(planned, await self._bounded(planned))
            self._progress(tally, programs)

    async def _bounded(self, planned: Job) -> Outcome | None:
        task = asyncio.create_task(run(planned, self._place))
        await asyncio.wait({task}, timeout=self._settings.lost_s)
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task}, timeout=_GIVE_UP_S)
        return None

    def _progress(self, tally: Tally, programs: int) -> None:
        now = time.monotonic()
        if now - self._said < _SAY_EVERY_S:
            return
        self._said = now
        passed = max(now - self._since, 1e-9)
        rate = tally.programs / passed
        left = (programs - tally.programs) / rate
        if self._settings.seconds is not None:
            left = min(left, max(0.0, self._settings.seconds - passed))
        self._say(
            f"{tally.programs} of {programs} programs, {tally.faults.total()} faults, "
            f"{rate:.1f}/s, {left / 60:.1f} min left, {len(tally.problems)} problems"
        )
