"""The whole policy on one page: what a step computes, and why.

Pure and deterministic: no clock, no randomness, no engine. The policy proposes; the driver
carries out what memory and slots allow, and records what it refused.

    governor     how much early work is allowed at all
    batching     how long the step may be: its room for prefill
    preemption   who gives up KV if there is too little for what must run
    selection    which calls get the room
    early        which open prompts get what is left of it
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from operator import add

from grape_lc.scheduler.batching import FREE, Room, decode_load, room_of
from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.early import choose_early
from grape_lc.scheduler.governor import judge
from grape_lc.scheduler.preemption import victims
from grape_lc.scheduler.selection import choose_calls
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import Item, Limit, Plan, RequestView, Snapshot, Victim


def plan(snapshot: Snapshot, config: PolicyConfig) -> Plan:
    """Plan one step. The order of the snapshot's sequences makes no difference."""
    level, level_reason = judge(snapshot, config)
    room = room_of(snapshot, config)
    preempt = _preempt(snapshot, config, room)
    gone = frozenset(victim.id for victim in preempt)
    calls = choose_calls(snapshot, config, room, gone)
    pool = snapshot.pool
    reserve = pool.growth + pool.waiting + max(1, ceil(config.margin * pool.total))
    opens, refused = choose_early(snapshot, config, room, calls.left, level, reserve, gone)
    budget = snapshot.max_tokens
    if room.limit is Limit.HOLD:
        budget = 0
    elif room.limit not in FREE:
        # A call that must not be cut is not part of any limit: it would never start under one.
        budget = max(1, min(budget, snapshot.decodes.tokens + room.tokens + calls.whole))
    return Plan(
        budget=budget,
        limit=room.limit,
        prefills=calls.prefills,
        starts=calls.starts,
        opens=opens,
        preempt=preempt,
        refused={**calls.refused, **refused},
        reserve=reserve,
        level=level,
        level_reason=level_reason,
        predicted_s=_predict(snapshot, calls.shares, opens, budget),
    )


def _preempt(snapshot: Snapshot, config: PolicyConfig, room: Room) -> tuple[Victim, ...]:
    """Who gives up KV, if running calls need more blocks in this step than are free."""
    pool, running = snapshot.pool, snapshot.prefills
    wanted = min(room.tokens, sum(view.pending for view in running))
    need = snapshot.decodes.blocks + (pool.blocks(wanted) + len(running) if wanted else 0)
    if need <= pool.free or room.limit is Limit.HOLD:
        return ()
    candidates = (*snapshot.opens, *snapshot.running)
    return victims(
        candidates,
        need - pool.free,
        config,
        cost=snapshot.cost,
        use=snapshot.signals.hit_rate,
    )


def _predict(
    snapshot: Snapshot,
    shares: Sequence[tuple[RequestView, int]],
    opens: tuple[Item, ...],
    budget: int,
) -> float | None:
    """Seconds that the step takes if everything runs as planned."""
    if snapshot.cost is None or not budget:
        return None
    load = decode_load(snapshot.decodes)
    if not shares and not opens:
        return snapshot.cost.seconds(load)
    if opens:
        views = {view.id: view for view in snapshot.opens}
        shares = [*shares, *((views[item.id], item.tokens) for item in opens)]
    left = budget - load.tokens
    rows = []
    for view, share in shares:
        tokens = min(share, left, view.pending)
        if tokens > 0:
            rows.append((tokens, view.computed))
            left -= tokens
    return snapshot.cost.seconds(StepLoad(*map(add, load, StepLoad.of(rows))))
