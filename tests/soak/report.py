"""What a soak found, as plain data and as lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tests.soak.accounts import (
    BLOCKS,
    CAPS,
    RSS_BOUND_KIB,
    SLOTS,
    TASKS,
    beyond_caps,
    is_judged,
    problems,
    process_problems,
    risen,
    rss_slopes,
)
from tests.soak.soak import Record, SoakSettings

_COUNTERS = (
    "opened", "adopted", "adopted_tokens", "truncated", "mismatch", "cold", "refused", "malformed",
    "dropped", "released", "expired", "steps", "preemptions", "evictions",
)  # fmt: skip


def report(
    record: Record,
    settings: SoakSettings,
    info: Mapping[str, Any],
    stats: Mapping[str, Any],
) -> dict[str, Any]:
    """All of it; ``problems`` is empty if nothing was left behind and nobody was harmed.

    info, stats: the engine's, after the last program.
    """
    tally, base, warm = record.tally, record.base, record.warm
    last = record.readings[-1] if record.readings else None
    slopes = rss_slopes(record.readings)
    found = [*tally.problems, *(f"of the first ones: {line}" for line in record.first.problems)]
    if last is None:
        found.append(f"nothing was read after the first program: {record.stopped}")
    else:
        found += problems(base, record.readings) + process_problems(warm, record.readings)
        if last.programs < tally.programs:
            found.append(f"the last reading is that after {last.programs} programs")
    after = base.kept if last is None else last.kept
    return {
        "programs": tally.programs,
        "faults": tally.faults.total(),
        "leaked_blocks": risen(base.kept, after, BLOCKS),
        "leaked_slots": risen(base.kept, after, SLOTS),
        "leaked_tasks": risen(base.kept, after, TASKS),
        "fd_delta": 0 if last is None else sum(last.fds.values()) - sum(warm.fds.values()),
        "rss_slope_kib_per_1000": max(slopes.values()) if slopes else None,
        "lost": tally.lost,
        "problems": found,
        "shown": record.first.shown + tally.shown,
        "stopped": record.stopped,
        "seconds": record.seconds,
        "calls": record.traffic.calls,
        "tokens": record.traffic.tokens,
        "answered": tally.answered,
        "errors": tally.errors,
        "left": tally.left,
        "wrong": tally.wrong,
        "answers_compared": tally.compared,
        "answers_unequal": tally.unequal,
        "faults_by_kind": {str(kind): count for kind, count in sorted(tally.faults.items())},
        "rss_slopes_kib_per_1000": slopes,
        "rss_slopes_beyond_caps": rss_slopes([beyond_caps(one) for one in record.readings]),
        "rss_judged": last is not None and is_judged(record.readings),
        "rss_bound_kib_per_1000": RSS_BOUND_KIB,
        "growth_within_caps": {
            name: {"before": base.kept[name], "after": after[name], "cap": cap}
            for name, cap in CAPS.items()
            if name in after and name in base.kept
        },
        "settings": asdict(settings),
        "engine": {name: info[name] for name in ("dtype", "device", "num_blocks", "block_size")},
        "counters": {name: stats.get(name, 0) for name in _COUNTERS},
        "base": base._asdict(),
        "warm": warm._asdict(),
        "readings": [reading._asdict() for reading in record.readings],
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """The report for people; its last lines say whether all is well."""
    rise = found["rss_slope_kib_per_1000"]
    bound = found["rss_bound_kib_per_1000"]
    slopes = ", ".join(f"{k} {v:.0f}" for k, v in found["rss_slopes_beyond_caps"].items())
    readings = found["readings"] or [found["warm"]]
    memory = ", ".join(
        f"{name} {found['warm']['rss_kib'][name] / 1024:.0f} -> {kib / 1024:.0f} MiB"
        for name, kib in readings[-1]["rss_kib"].items()
    )
    kinds = ", ".join(f"{kind} {count}" for kind, count in found["faults_by_kind"].items())
    kept = ", ".join(
        f"{name} {size['before']} -> {size['after']} of {size['cap']}"
        for name, size in found["growth_within_caps"].items()
    )
    trend = (
        "too few readings for a trend"
        if rise is None
        else f"{rise:.0f} KiB for 1000 programs at most; beyond what is remembered: {slopes}, "
        f"{bound:.0f} allowed" + ("" if found["rss_judged"] else ", not judged: too few programs")
    )
    ended = (
        f"{found['answered']} answered, {found['errors']} got an error, {found['left']} were left, "
        f"{found['lost']} are lost; {found['calls']} calls, {found['tokens']} tokens"
    )
    alike = (
        f"{found['answers_compared']} answers compared with those of equal programs, "
        f"{found['answers_unequal']} differ"
    )
    behind = (
        f"{found['leaked_blocks']} blocks, {found['leaked_slots']} slots, "
        f"{found['leaked_tasks']} tasks, {found['fd_delta']} file descriptors"
    )
    text = [
        f"{found['programs']} programs in {found['seconds']:.0f} s: {found['stopped']}",
        ended,
        f"{found['faults']} faults: {kinds}",
        alike,
        f"left behind: {behind}",
        f"memory: {memory}; {trend}",
        f"remembered: {kept}",
        *(f"seen: {line}" for line in found["shown"]),
        *(f"PROBLEM: {line}" for line in found["problems"]),
    ]
    return [*text, "soak: FAILED" if found["problems"] else "soak: nothing was left behind"]
