"""Which open prompts get the room that real calls left: the paper's prevision.

Early tokens are computed once, early or at the switch. Where they are nearly free beside decodes
they are taken as soon as there is a chunk of them. Where they are not, each step that holds some
delays every decode in it, those of programs that are about to end among them, and each piece is a
row of its own that reads its context again. So only the next hop is worked on, in lumps, and what
is left when its upstream is about to end in chunks, so that the next call finds all of it done.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from grape_lc.scheduler.batching import Room, decode_load, in_grace
from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.settings import Constraint, PolicyConfig
from grape_lc.scheduler.types import (
    Item,
    Level,
    Limit,
    Reason,
    Refusal,
    RequestView,
    Snapshot,
)

# Every chunk sends its whole prompt to the workers again: a long prompt takes longer chunks, so
# that this cost stays a small share of the work.
_CHUNKS_PER_PROMPT = 128

# At level ``near`` an open prompt begins when what it lacks takes this part of the time that is
# left until its upstream ends.
_LATE = 0.5


def choose_early(
    snapshot: Snapshot,
    config: PolicyConfig,
    room: Room,
    left: int,
    level: Level,
    reserve: int,
    victims: frozenset[str],
) -> tuple[tuple[Item, ...], dict[str, Refusal]]:
    """Hand ``left`` tokens to open prompts, nearest hops first, then those due first.

    reserve: blocks that must stay free.
    """
    total, cheap = _tokens(snapshot, config, room, left)
    items: list[Item] = []
    refused: dict[str, Refusal] = {}
    rows = snapshot.free_rows - len(snapshot.waiting)
    spare = snapshot.pool.free - reserve
    most = config.open_cap
    if config.prefill_cap is not None and snapshot.cost is None:
        most = min(most, config.prefill_cap)
    waits = snapshot.idle and in_grace(snapshot, config)
    off, near = level is Level.OFF, level is Level.NEAR
    all_of_it = config.incremental and config.static
    pool = snapshot.pool
    weight = max(config.chunk, snapshot.signals.weight)
    # Who comes first matters only if somebody gets something.
    any_room = total > 0 and rows > 0
    opens = _by_urgency(snapshot.opens) if any_room else snapshot.opens
    for view in opens:
        pending = view.pending if all_of_it else _allowed(view, config)
        why: Reason | Refusal
        if view.id in victims:
            why = Refusal.VICTIM
        elif pending <= 0:
            why = Refusal.COMPLETE if view.pending <= 0 else Refusal.OFF
        elif waits:
            why = Refusal.GRACE
        elif view.early:
            why = Refusal.ROOT
        elif off or (near and not _late(snapshot, view, pending)):
            why = Refusal.GOVERNOR
        elif view.stalled:
            why = Refusal.STALLED
        elif rows <= 0:
            why = Refusal.ROWS
        elif total <= 0:
            why = Refusal.BUDGET
        else:
            chunk = min(most, max(weight, view.tokens // _CHUNKS_PER_PROMPT))
            # Smaller pieces than this cost more than they bring, unless it is all there is.
            least = min(pending, chunk)
            why = Refusal.BUDGET
            if total >= least:
                why = _why(snapshot, config, view, pending, chunk, cheap)
            if isinstance(why, Reason):
                fits = (view.held_blocks + max(0, spare)) // pool.groups
                tokens = min(pending, total, fits * pool.block_size - view.computed)
                if tokens >= least:
                    items.append(Item(view.id, tokens, why))
                    rows -= 1
                    total -= tokens
                    cheap -= tokens
                    spare -= max(0, pool.blocks(view.computed + tokens) - view.held_blocks)
                    continue
                why = Refusal.KV
        refused[view.id] = why
    return tuple(items), refused


def _tokens(snapshot: Snapshot, config: PolicyConfig, room: Room, left: int) -> tuple[int, int]:
    """Most tokens of all open prompts together, and how many of them are nearly free.

    Beside real prefill early work counts against the room even when nothing decodes: it would
    delay that prefill's first token.
    """
    total = min(config.open_cap, left)
    real = sum(view.pending for view in (*snapshot.prefills, *snapshot.waiting))
    cost = snapshot.cost
    if snapshot.idle or not snapshot.opens:
        return total, total
    if not snapshot.decodes.rows and config.prefill_cap is not None:
        total = min(total, config.prefill_cap - real)
    if real > room.tokens:
        return 0, 0
    if cost is None or config.constraint is not Constraint.ADAPTIVE:
        return max(0, total), 0
    if room.limit in (Limit.HOLD, Limit.GRACE, Limit.SWITCH):
        return max(0, total), max(0, total)
    load = decode_load(snapshot.decodes)
    limit_s = config.open_stretch * cost.seconds(load)
    taken = room.tokens - left
    free = cost.tokens_within(load.plus(taken) if taken else load, limit_s)
    return max(0, total), max(0, min(total, free))


def _allowed(view: RequestView, config: PolicyConfig) -> int:
    """Pending tokens that the switches allow to be computed early."""
    grown = view.tokens > view.static or view.final
    if config.incremental:
        return view.pending if config.static or grown else 0
    return min(view.pending, max(0, view.static - view.computed)) if config.static else 0


def _why(
    snapshot: Snapshot,
    config: PolicyConfig,
    view: RequestView,
    pending: int,
    chunk: int,
    cheap: int,
) -> Reason | Refusal:
    """Why a prompt may run now, if there is room; or why it had better wait."""
    if view.final:
        return Reason.FINAL
    if snapshot.idle:
        return Reason.IDLE
    if pending < chunk:
        return Refusal.CHUNK
    if cheap >= min(pending, chunk):
        return Reason.CHEAP
    if view.hint.hops > 1:
        return Refusal.PACED
    if view.sure is None or view.sure <= _near(config, pending):
        return Reason.READY
    return Reason.LUMP if pending >= config.lump else Refusal.PACED


def _near(config: PolicyConfig, pending: int) -> int:
    """Steps before its upstream's end at which a prompt has to begin: as many as its work takes."""
    return config.near_steps + pending // config.open_cap


def _late(snapshot: Snapshot, view: RequestView, pending: int) -> bool:
    """Whether a prompt is the next hop and has no time to lose."""
    if view.hint.hops > 1:
        return False
    if view.final or view.sure is None:
        return True
    cost = snapshot.cost
    step_s = snapshot.signals.step_s
    if cost is None or step_s <= 0:
        return True
    load = StepLoad()
    work_s = cost.seconds(load.plus(pending, view.computed)) - cost.seconds(load)
    return work_s >= _LATE * view.sure * step_s


def _by_urgency(opens: Iterable[RequestView]) -> list[RequestView]:
    """Nearest hops first, then the one whose upstream ends first, then the first opened."""

    def key(view: RequestView) -> tuple[int, float, int]:
        remaining = view.remaining
        return (view.hint.hops, inf if remaining is None else remaining, view.seq)

    return sorted(opens, key=key)
