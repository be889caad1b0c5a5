"""Many simulations one after another: kept when done, with the time that is left.

A job is known by its key, a text of all that decides its result. With a file, each result is
written as soon as it is there, as a JSON line::

    {"code": "0a1b...", "key": "...", "result": ...}

``code`` is a digest of the modules that make the result, so that results of an older simulator are
never taken for those of this one. A last line that an interrupt cut short is taken off.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import grape_lc
from grape_lc.bench.workers import end_with_parent
from grape_lc.errors import ConfigError

_SOURCES = (
    "engine/simulator",
    "scheduler",
    "engine/vllm_settings.py",
    "bench/arm.py",
    "bench/arms.py",
    "bench/collect.py",
    "bench/metrics.py",
    "bench/paper_jobs.py",
    "bench/ranking.py",
    "bench/regimes.py",
    "bench/regimes_options.py",
    "bench/settings.py",
    "bench/simulate.py",
    "bench/simulation_options.py",
    "bench/sweep.py",
    "bench/synthetic_shape.py",
)
_LINE_EVERY_S = 5.0


class Job(Protocol):
    """One simulation. It travels to other processes."""

    @property
    def key(self) -> str:
        """All that decides its result."""

    @property
    def weight(self) -> float:
        """About how long it takes, relative to other jobs."""

    def run(self) -> Any:
        """Its result as plain data; the same each time."""


def code_digest() -> str:
    """A digest of the source of everything that decides a simulation's result."""
    root = Path(grape_lc.__file__).parent
    paths = [
        path
        for name in _SOURCES
        for path in sorted((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])
    ]
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class Kept:
    """Results by key, in a file if there is one.

    code: whose results these are; those of other code are left alone and not read.
    Raises ConfigError for a file that cannot be read or holds something else.
    """

    def __init__(self, path: Path | None, code: str) -> None:
        self._path, self._code = path, code
        self._found: dict[str, Any] = {}
        if path is None:
            return
        try:
            data = path.read_bytes() if path.exists() else b""
            whole = data[: data.rfind(b"\n") + 1]
            for line in whole.decode("utf-8").splitlines():
                entry = json.loads(line)
                if entry["code"] == code:
                    self._found[entry["key"]] = entry["result"]
            if not whole and data:
                raise ValueError("it has no whole line")
            if len(whole) < len(data):
                os.truncate(path, len(whole))
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"{path} holds no results of simulations: {error!r:.300}") from error

    def __contains__(self, key: str) -> bool:
        return key in self._found

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    def add(self, key: str, result: Any) -> None:
        """Keep a result. Raises ConfigError if the file cannot be written."""
        self._found[key] = result
        if self._path is None:
            return
        line = json.dumps({"code": self._code, "key": key, "result": result})
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error.strerror}") from error


class Batch:
    """Runs jobs and tells how far it is; use as a context manager.

    planned: the weights of all jobs to come, added up, for the time that is left.
    jobs: how many at a time; each in a process of its own unless it is one.
    say: is told a line now and then. clock: seconds, never backwards.
    """

    def __init__(
        self,
        kept: Kept,
        planned: float,
        jobs: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept, self._jobs, self._say, self._clock = kept, jobs, say, clock
        self._planned = planned
        self._computed = 0.0  # weight of what ran here; results from the file took no time
        self._taken = 0.0  # weight of what came from the file
        self._began = self._said = clock()
        self._count = 0
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        if self._jobs > 1:
            spawn = get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self._jobs, mp_context=spawn, initializer=end_with_parent
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
            self._pool = None

    def results(self, jobs: Sequence[Job]) -> list[Any]:
        """The results of these jobs, in their order; jobs of equal keys run once."""
        missing: dict[str, Job] = {}
        for job in jobs:
            if job.key in self._kept:
                self._taken += job.weight
            elif job.key in missing:
                self._planned -= job.weight
            else:
                missing[job.key] = job
        for key, result in self._run(list(missing.values())):
            self._kept.add(key, result)
            self._count += 1
            self._computed += missing[key].weight
            self._tell()
        return [self._kept[job.key] for job in jobs]

    def left_s(self) -> float | None:
        """Seconds that are left by the pace so far; None before anything ran."""
        if not self._computed:
            return None
        left = max(0.0, self._planned - self._computed - self._taken)
        return left * (self._clock() - self._began) / self._computed

    def _run(self, jobs: Sequence[Job]) -> Iterator[tuple[str, Any]]:
        if self._pool is None:
            for job in jobs:
                yield job.key, job.run()
            return
        futures: dict[Future[Any], str] = {self._pool.submit(_carry_out, j): j.key for j in jobs}
        for future in as_completed(futures):
            yield futures[future], future.result()

    def _tell(self) -> None:
        now, left = self._clock(), self.left_s()
        if left is None or now - self._said < _LINE_EVERY_S:
            return
        self._said = now
        done = min(1.0, (self._computed + self._taken) / self._planned) if self._planned else 1.0
        self._say(f"{self._count} simulations, {done:.0%} done, {duration(left)} left")


def duration(seconds: float) -> str:
    """``45 s`` or ``12 min 30 s``."""
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


def _carry_out(job: Job) -> Any:
    return job.run()
