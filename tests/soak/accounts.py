"""What was left behind: found in readings, and held against the bounds.

Three kinds of sizes:

* what belongs to a call, a run or a program is back where it was once nothing runs;
* what is remembered beyond that has a cap, and may grow up to it (``CAPS``);
* resident memory depends on the allocator too, so its trend over the second half counts, without
  what the entries with a cap are known to take.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from grape_lc.adapters import resuming
from grape_lc.runtime import odds
from grape_lc.scheduler import controller, lengths
from tests.soak.plan import TENANTS, Shape, Way
from tests.soak.sizes import Reading

RSS_BOUND_KIB = 1024.0
"""Most growth of one process for 1000 programs, over the second half: a KiB a program.

The least that could be left of a program is more than that: 1.1 KiB for the request of one call
in the user's process, 6 for a parsed flow in the host, 7 for a request of 80 tokens in the engine
core (measured by tracemalloc). What is smaller is counted one by one (``CAPS``)."""

LEAST_READINGS = 4
"""In the second half, for a trend."""

LEAST_PROGRAMS = 5000
"""Of a run whose trend is judged. Memory grows in steps of up to 2 MiB, one of which is more than
the bound in the second half of a shorter run."""

# asyncio's own pool, vLLM's renderer and the timers of graphs: they are made when first needed.
_THREADS = min(32, (os.cpu_count() or 1) + 4) + len(Shape) * len(Way) + 32
_SLOTS = 64
_OTHERS = 64  # tenants that the engine served before the soak

CAPS: dict[str, int] = {
    "core.ended_keys": 4096,
    "core.remembered_programs": controller._PROGRAMS,
    "core.tenants": len(TENANTS) + _OTHERS,
    "core.lengths": 4096,
    "core.memos": lengths._MEMOS,
    # Looked through in each step, so those of the last step are still there.
    "core.followers": _SLOTS,
    "core.to_recompute": _SLOTS,
    "host.flows": odds._MOST_FLOWS,
    "graphs.threads": len(Shape) * len(Way) * resuming._MOST_THREADS,
    "graphs.tenants": len(Shape) * len(Way) * len(TENANTS),
    "user.threads": _THREADS,
    "host.threads": _THREADS,
    "core.threads": _THREADS,
}
"""Most entries of what is remembered beyond the end of a program."""

ENTRY_KIB: dict[str, dict[str, float]] = {
    "user": {"graphs.threads": 1.75},
    "core": {"core.memos": 0.25, "core.ended_keys": 0.25, "core.remembered_programs": 0.25},
}
"""What an entry of the larger ones takes in each process, in KiB, measured by tracemalloc.

Until they are at their caps, which takes some thousand programs, they are most of what grows."""

BLOCKS = ("engine.used_blocks",)
SLOTS = ("engine.requests", "engine.running", "engine.waiting", "engine.tracked", "core.views")
TASKS = ("user.tasks", "host.tasks", "host.calls", "user.calls")


def exact(kept: Mapping[str, int]) -> dict[str, int]:
    """The sizes that must come back to what they were: all that have no cap."""
    return {name: size for name, size in kept.items() if name not in CAPS}


def risen(before: Mapping[str, int], after: Mapping[str, int], names: Sequence[str]) -> int:
    """By how much the sizes of ``names`` have grown, all together."""
    return sum(max(0, after[name] - before[name]) for name in names)


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Rise of y for each x by least squares; None of fewer than two different x."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / max(count, 1)
    mean_y = sum(y for _, y in points) / max(count, 1)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if not spread:
        return None
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def beyond_caps(reading: Reading) -> Reading:
    """A reading without the memory that is known to be that of entries with a cap."""
    rss_kib = {
        name: kib - sum(round(reading.kept.get(of, 0) * each) for of, each in known.items())
        for name, kib in reading.rss_kib.items()
        for known in (ENTRY_KIB.get(name, {}),)
    }
    return reading._replace(rss_kib=rss_kib)


def rss_slopes(readings: Sequence[Reading]) -> dict[str, float]:
    """KiB for 1000 programs of each process, over the second half; empty if that is too short."""
    half = readings[-1].programs / 2 if readings else 0
    late = [reading for reading in readings if reading.programs >= half]
    if len(late) < LEAST_READINGS:
        return {}
    found = {
        name: slope([(float(r.programs), float(r.rss_kib[name])) for r in late])
        for name in late[0].rss_kib
    }
    return {name: 1000 * rise for name, rise in found.items() if rise is not None}


def problems(base: Reading, readings: Sequence[Reading]) -> list[str]:
    """Everything that was left behind, each with its numbers. base: before the first program."""
    last = readings[-1]
    found = []
    for name, size in exact(last.kept).items():
        before = base.kept.get(name, 0)
        if size != before:
            found.append(f"{name}: {size} after {last.programs} programs, {before} before")
    for name, cap in CAPS.items():
        if last.kept.get(name, 0) > cap:
            found.append(f"{name}: {last.kept[name]}, its cap is {cap}")
    return found


def is_judged(readings: Sequence[Reading]) -> bool:
    """Whether the run was long enough to judge the trend of its memory."""
    return readings[-1].programs >= LEAST_PROGRAMS and bool(rss_slopes(readings))


def process_problems(warm: Reading, readings: Sequence[Reading]) -> list[str]:
    """The same of file descriptors and memory. warm: after some programs that do not count."""
    last = readings[-1]
    found = [
        f"file descriptors of {name}: {count}, {warm.fds[name]} at first"
        for name, count in last.fds.items()
        if count > warm.fds[name]
    ]
    if not is_judged(readings):
        return found
    for name, rise in rss_slopes([beyond_caps(reading) for reading in readings]).items():
        if rise > RSS_BOUND_KIB:
            found.append(
                f"memory of {name} grows by {rise:.0f} KiB for 1000 programs beyond what is "
                f"remembered, at most {RSS_BOUND_KIB:.0f} are allowed"
            )
    return found
