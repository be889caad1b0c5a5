"""How much prefill a step may hold, and which calls it goes to.

The batch constraint of the paper is T = F(N_seq, N_batch) <= SLO. Taken literally it fills every
step up to the target, which costs every decode in the batch; without a target it says nothing.
So the adaptive constraint asks for less while decodes dominate and for more while prefill waits:

    step time
      |                                    .------ slo_share x what is left of the tightest TBT
      |                         __________/
      |                  ______/   T(decodes + backlog_share x backlog)
      |  _______________/
      |     stretch x T(decodes), or free_stretch x T(decodes) where most of that is free
      +------------------------------------------ prefill that waits

``selection`` shares the room out.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.settings import Constraint, PolicyConfig
from grape_lc.scheduler.types import Decodes, Limit, RequestView, Snapshot

FREE = frozenset({Limit.NONE, Limit.TIGHT, Limit.RARE})
"""Limits under which a step is as long as the engine makes it."""


class Room(NamedTuple):
    """Most prefill tokens of a step, real and early together, and why."""

    limit: Limit
    tokens: int


def decode_load(decodes: Decodes) -> StepLoad:
    """The step with its decodes only."""
    rows, tokens, kv_tokens, _, _ = decodes
    return StepLoad(rows, tokens, kv_tokens + tokens, 0.0)


def in_grace(snapshot: Snapshot, config: PolicyConfig) -> bool:
    """Whether a call is about to arrive for which the engine is kept free."""
    since = snapshot.signals.since_feeder
    return config.handover and since is not None and since < config.grace_s


def is_tight(snapshot: Snapshot, config: PolicyConfig) -> bool:
    """Whether KV decides how long calls wait, and nobody set a target.

    Then how steps are cut, and who goes first, moves waiting from one call to another: each gain
    is a loss elsewhere. So both are left to vLLM, and early work does what it can.
    """
    return snapshot.signals.tight > config.tight and snapshot.decodes.slack_s is None


def room_of(snapshot: Snapshot, config: PolicyConfig) -> Room:
    """Most prefill tokens of the step.

    A task switch waits for the step that runs when its call arrives, and then for its own. So a
    step is not begun while a follower is due at once, is short while one may come, and takes no
    other prefill along when one is here: but not twice in a row, or a new program's prefill
    would starve among many switches.
    """
    most = max(0, snapshot.max_tokens - snapshot.decodes.tokens)
    if is_tight(snapshot, config):
        return Room(Limit.TIGHT, most)
    here = any(view.adopted for view in (*snapshot.prefills, *snapshot.waiting))
    if in_grace(snapshot, config) and not snapshot.idle and not here:
        if _holds(snapshot, config):
            return Room(Limit.HOLD, 0)
        limit, tokens = Limit.GRACE, config.grace_tokens
        if snapshot.decodes.rows:
            # Never longer than it would be if no call were due.
            tokens = min(tokens, _beside_decodes(snapshot, config, most).tokens)
    elif snapshot.decodes.rows:
        limit, tokens = _beside_decodes(snapshot, config, most)
        short = _leftovers(snapshot, config) if here and config.handover else 0
        if 0 < short < tokens and not snapshot.signals.switched and limit not in FREE:
            limit, tokens = Limit.SWITCH, short
    else:
        return Room(Limit.NONE, most)
    if limit not in FREE:
        # Below this an adopted call with drafts could never start.
        tokens = max(tokens, snapshot.least_call_tokens)
    return Room(limit, min(most, tokens))


def _beside_decodes(snapshot: Snapshot, config: PolicyConfig, most: int) -> Room:
    if config.constraint is Constraint.OFF:
        return Room(Limit.NONE, most)
    cost = snapshot.cost
    if config.constraint is Constraint.CAP or cost is None:
        cap = config.prefill_cap
        return Room(Limit.NONE, most) if cap is None else Room(Limit.CAP, min(cap, most))
    slack_s = snapshot.decodes.slack_s
    load = decode_load(snapshot.decodes)
    if slack_s is None and snapshot.signals.spikes < config.rare:
        return Room(Limit.RARE, most)
    alone_s = cost.seconds(load)
    limit, limit_s = Limit.STRETCH, config.stretch * alone_s
    # Beyond what is free every token has its price: if most of the room is free, that will do.
    free_s = config.free_stretch * alone_s
    if free_s < limit_s:
        free, all_of_it = (cost.tokens_within(load, end_s) for end_s in (free_s, limit_s))
        if 2 * free >= all_of_it:
            limit_s = free_s
    late = max(1.0, snapshot.signals.behind / config.late_s)
    backlog = ceil(min(1.0, late * config.backlog_share) * _backlog(snapshot))
    if backlog > 1:
        share_s = cost.seconds(load.plus(backlog))
        if share_s > limit_s:
            limit, limit_s = Limit.BACKLOG, share_s
    if slack_s is not None and config.slo_share * slack_s < limit_s:
        limit, limit_s = Limit.SLO, config.slo_share * slack_s
    # A chunk at least, whatever the target: prefill that never ends helps nobody.
    return Room(limit, max(config.chunk, min(most, cost.tokens_within(load, limit_s))))


def _holds(snapshot: Snapshot, config: PolicyConfig) -> bool:
    """Whether waiting for a due follower is expected to cost little."""
    signals = snapshot.signals
    since = signals.since_feeder
    limit = min(config.hold_s, signals.step_s / 2)
    return since is not None and max(since, signals.follower_s) < limit


def is_short(view: RequestView, config: PolicyConfig) -> bool:
    """Whether a call is the nearly complete follower that a switch is about."""
    return view.adopted and view.pending <= config.adopted_first


def _leftovers(snapshot: Snapshot, config: PolicyConfig) -> int:
    """Prefill tokens of adopted calls that are nearly complete and could run now."""
    tokens = sum(view.pending for view in snapshot.prefills if is_short(view, config))
    if snapshot.free_rows > 0:
        able = (view for view in snapshot.waiting if is_short(view, config) and not view.blocked)
        tokens += sum(view.pending for view in able)
    return tokens


def _backlog(snapshot: Snapshot) -> int:
    """Tokens of real prefill that wait, as far as one step could take them."""
    tokens = sum(view.pending for view in snapshot.prefills)
    for view in snapshot.waiting:
        if tokens >= snapshot.max_tokens:
            break
        tokens += view.pending
    return min(tokens, snapshot.max_tokens)
