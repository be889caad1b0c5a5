"""What three processes hold at a moment in which nothing runs."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import psutil

from tests.soak.graphs import handler_of
from tests.soak.moments import Workplace

_ENGINE = ("open_prompts", "requests", "running", "waiting", "tracked")
_POLL_S = 0.1


class Reading(NamedTuple):
    """Sizes after so many programs.

    kept: entries of everything that is kept for calls, runs and programs, by ``place.name``, with
    tasks, threads and ``engine.used_blocks``. rss_kib, fds: of each process.
    """

    programs: int
    seconds: float
    kept: dict[str, int]
    rss_kib: dict[str, int]
    fds: dict[str, int]


class Processes:
    """The user's process, the engine host and the engine core, as they were at the start."""

    def __init__(self, host_pid: int) -> None:
        host = psutil.Process(host_pid)
        children = host.children(recursive=True)
        named = [p for p in children if "EngineCore" in " ".join(p.cmdline())]
        # Without a title of its own it is the one that holds the model.
        core = named[0] if named else max(children, key=lambda p: p.memory_info().rss)
        self.host_pid = host_pid
        self._all = {"user": psutil.Process(), "host": host, "core": core}

    def rss_kib(self) -> dict[str, int]:
        """Resident memory of each, in KiB."""
        return {name: p.memory_info().rss // 1024 for name, p in self._all.items()}

    def fds(self) -> dict[str, int]:
        """Open file descriptors of each."""
        return {name: p.num_fds() for name, p in self._all.items()}


def kept_of(stats: Mapping[str, Any], graphs: Mapping[Any, Any]) -> dict[str, int]:
    """All counts of what is kept, from the engine's statistics and the graphs' handlers."""
    kept = {f"engine.{name}": int(stats[name]) for name in _ENGINE}
    kept["engine.used_blocks"] = stats["total_blocks"] - stats["free_blocks"]
    places = {"core": stats["sizes"], "host": stats["host"], "user": stats["client"]}
    for place, sizes in places.items():
        kept |= {f"{place}.{name}": int(size) for name, size in sizes.items()}
    of_graphs: Counter[str] = Counter()
    for graph in graphs.values():
        of_graphs.update(handler_of(graph).sizes)
    return kept | {f"graphs.{name}": size for name, size in of_graphs.items()}


async def read(
    place: Workplace,
    processes: Processes,
    *,
    programs: int,
    since: float,
    wanted: Mapping[str, int] | None,
    limit_s: float,
) -> Reading:
    """Wait until what is kept is as ``wanted``, or until ``limit_s`` is over, and read all sizes.

    since: the time of the start, on the monotonic clock. Called by the only task of its loop.
    """
    end = time.monotonic() + limit_s
    while True:
        gc.collect()
        stats = await asyncio.to_thread(place.engine.stats)
        kept = kept_of(stats, place.graphs)
        kept |= {"user.tasks": len(asyncio.all_tasks()), "user.threads": threading.active_count()}
        idle = wanted is None or all(kept.get(name) == size for name, size in wanted.items())
        if idle or time.monotonic() > end:
            break
        await asyncio.sleep(_POLL_S)
    seconds = time.monotonic() - since
    return Reading(programs, seconds, kept, processes.rss_kib(), processes.fds())
