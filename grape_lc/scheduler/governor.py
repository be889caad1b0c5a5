"""Whether early work pays now. Every answer comes with its reason, for the trace."""

from __future__ import annotations

from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import Level, Snapshot

Verdict = tuple[Level, str]


def judge(snapshot: Snapshot, config: PolicyConfig) -> Verdict:
    """The level of early work for one step, and why it is not the full one.

    off: no open prompt computes anything. near: only those whose call comes next, and only late
    enough to be used. The first rule that holds decides, hardest first:

    ======  ==========================================================================
    off     a running call was preempted, and the pool has not recovered since
    off     an open prompt had to give up its KV, and the pool has not recovered since
    off     ``most_misses`` open prompts in a row were of no use to their calls
    near    fewer than ``least_hits`` of the early tokens were adopted lately
    near    more than ``crowd`` calls wait, on the average
    near    the KV that running calls are expected to need leaves less than ``wide_margin``
    ======  ==========================================================================
    """
    if not config.governor:
        return Level.FULL, ""
    signals, pool = snapshot.signals, snapshot.pool
    if signals.thrashing:
        return Level.OFF, "a running call was preempted"
    if signals.pressed:
        return Level.OFF, "an open prompt gave up its KV"
    if config.most_misses and signals.misses >= config.most_misses:
        return Level.OFF, f"{signals.misses} open prompts in a row were of no use"
    if signals.hit_rate < config.least_hits:
        return Level.NEAR, f"{signals.hit_rate:.0%} of early tokens were adopted"
    if signals.queue > config.crowd:
        return Level.NEAR, f"{signals.queue:.1f} calls wait"
    if pool.free - pool.growth - pool.waiting < config.wide_margin * pool.total:
        return Level.NEAR, "KV is expected to be short"
    return Level.FULL, ""
