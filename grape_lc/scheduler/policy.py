"""Which tokens a step computes: decodes, then real prefill, then open prompts.

Pure and deterministic: no clock, no randomness, no vLLM. The policy proposes; the scheduler
carries out what memory and slots allow.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil

from grape_lc.scheduler.types import (
    Grant,
    Limit,
    OpenView,
    PolicyConfig,
    Refusal,
    StepPlan,
    StepView,
)

# Every chunk sends its whole prompt to the workers again: a long prompt takes longer chunks, so
# that this cost stays a small share of the work.
_CHUNKS_PER_PROMPT = 128


def plan_step(view: StepView, config: PolicyConfig) -> StepPlan:
    """Plan one step.

    Decodes take what they need. The rest of the budget is for prefill: short leftovers of
    adopted calls, then other real prefill, then open prompts, nearest hops first.
    """
    limit, room = _prefill_room(view, config)
    caps: dict[str, int] = {}
    if limit is not Limit.NONE or view.adopted_waiting or any(p.adopted for p in view.prefills):
        caps = _share(view, config, room, limit)
    reserve = view.needed_blocks + _blocks_of(config.margin, view)
    wide = view.needed_blocks + _blocks_of(config.wide_margin, view)
    pressed = view.pressed and view.free_blocks <= wide
    open_room = _open_room(view, config, room)
    grants, refusals = _grant(view, config, open_room, reserve, pressed)
    budget = view.max_tokens
    if limit is Limit.HOLD:
        budget = 0
    elif limit is not Limit.NONE:
        # A call that must not be cut is not part of any cap: it would never start under one.
        budget = max(1, min(budget, view.decode_tokens + room + view.whole_tokens))
    return StepPlan(budget, limit, caps, grants, refusals, reserve, pressed)


def choose_drop(opens: Iterable[OpenView]) -> OpenView | None:
    """The open prompt whose KV is given up first: farthest hops, then youngest.

    ``None`` when no open prompt holds KV.
    """
    holders = [view for view in opens if view.held_blocks > 0]
    return max(holders, key=lambda view: (view.hops, view.opened), default=None)


def in_grace(view: StepView, config: PolicyConfig) -> bool:
    """Whether a call is about to arrive for which the engine is kept free."""
    return view.since_feeder is not None and view.since_feeder < config.grace_s


def _prefill_room(view: StepView, config: PolicyConfig) -> tuple[Limit, int]:
    """Most prefill tokens of the step, and why.

    A task switch waits for the step that runs when its call arrives, and then for its own. So a
    step is not begun while a follower is due at once, is short while one may come, and takes no
    other prefill along when one is here: but not twice in a row, or a new program's prefill
    would starve among many switches.
    """
    room = max(0, view.max_tokens - view.decode_tokens)
    followers = _leftovers(view, config)
    here = bool(view.adopted_waiting) or any(p.adopted for p in view.prefills)
    due = in_grace(view, config) and not view.idle and not here
    if due and _holds(view, config):
        return Limit.HOLD, 0
    if due:
        limit, cap = Limit.GRACE, config.grace_tokens
    elif view.decodes and config.prefill_cap is not None:
        limit, cap = Limit.DECODES, config.prefill_cap
        if 0 < followers < cap and not view.switched:
            limit, cap = Limit.SWITCH, followers
    else:
        return Limit.NONE, room
    # Below this an adopted call with drafts could never start.
    return limit, min(room, max(cap, view.least_call_tokens))


def _holds(view: StepView, config: PolicyConfig) -> bool:
    """Whether waiting for a due follower is expected to cost little."""
    since = view.since_feeder
    limit = min(config.hold_s, view.step_s / 2)
    return since is not None and max(since, view.follower_s) < limit


def _leftovers(view: StepView, config: PolicyConfig) -> int:
    """Prefill tokens of adopted calls that are nearly complete and could run now."""
    tokens = [prefill.tokens for prefill in view.prefills if prefill.adopted]
    if view.free_rows > 0:
        tokens += view.adopted_waiting
    return sum(n for n in tokens if n <= config.adopted_first)


def _share(view: StepView, config: PolicyConfig, room: int, limit: Limit) -> dict[str, int]:
    """Token caps of the running real prefills.

    vLLM scans running requests first. The caps keep back what the short leftovers of waiting
    adopted calls need, but at most three quarters: should such a call be unable to start, the
    running ones still get on and one day free what it waits for. A switch step gives them all of
    it, since the next step is none.
    """
    caps: dict[str, int] = {}
    left = room
    for prefill in view.prefills:
        if prefill.adopted and prefill.tokens <= config.adopted_first:
            caps[prefill.request_id] = min(left, prefill.tokens)
            left -= caps[prefill.request_id]
    reserve = 0
    if view.free_rows > 0:
        short = (tokens for tokens in view.adopted_waiting if tokens <= config.adopted_first)
        reserve = sum(max(tokens, view.least_call_tokens) for tokens in short)
    spared = 0 if limit is Limit.SWITCH else ceil(left / 4)
    rest = left - min(reserve, left - spared)
    for prefill in view.prefills:
        if prefill.request_id not in caps:
            caps[prefill.request_id] = min(rest, prefill.tokens)
            rest -= caps[prefill.request_id]
    return caps


def _open_room(view: StepView, config: PolicyConfig, room: int) -> int:
    """Most tokens of all open prompts together.

    Beside real prefill early work counts against the cap even when nothing decodes: it would
    delay that prefill's first token.
    """
    real = sum(prefill.tokens for prefill in view.prefills)
    real += sum(view.adopted_waiting) + view.waiting_tokens
    if not view.idle and config.prefill_cap is not None:
        room = min(room, config.prefill_cap)
    return max(0, min(config.open_cap, room - real))


def _grant(
    view: StepView, config: PolicyConfig, room: int, reserve: int, pressed: bool
) -> tuple[tuple[Grant, ...], dict[str, Refusal]]:
    """Hand the room to open prompts, nearest hops first, then in the order of opening."""
    grants: list[Grant] = []
    refusals: dict[str, Refusal] = {}
    rows = view.free_rows - view.waiting - len(view.adopted_waiting)
    spare = view.free_blocks - reserve
    most = config.open_cap
    if config.prefill_cap is not None:
        most = min(most, config.prefill_cap)
    waits = view.idle and in_grace(view, config)
    for prompt in sorted(view.opens, key=lambda prompt: (prompt.hops, prompt.opened)):
        chunk = min(most, max(config.chunk, prompt.tokens // _CHUNKS_PER_PROMPT))
        # Smaller pieces than this cost more than they bring, unless it is all there is.
        least = min(prompt.pending, chunk)
        fits = (prompt.held_blocks + max(0, spare)) // view.groups * view.block_size
        tokens = min(prompt.pending, room, fits - prompt.computed)
        refusal: Refusal | None = None
        if prompt.pending <= 0:
            refusal = Refusal.COMPLETE
        elif waits:
            refusal = Refusal.GRACE
        elif pressed:
            refusal = Refusal.PRESSED
        elif prompt.stalled:
            refusal = Refusal.STALLED
        elif prompt.pending < chunk and not (prompt.urgent or view.idle):
            refusal = Refusal.CHUNK
        elif rows <= 0:
            refusal = Refusal.ROWS
        elif room < least:
            refusal = Refusal.BUDGET
        elif tokens < least:
            refusal = Refusal.KV
        if refusal is not None:
            refusals[prompt.key] = refusal
            continue
        grants.append(Grant(prompt.key, tokens))
        rows -= 1
        room -= tokens
        blocks = ceil((prompt.computed + tokens) / view.block_size) * view.groups
        spare -= max(0, blocks - prompt.held_blocks)
    return tuple(grants), refusals


def _blocks_of(share: float, view: StepView) -> int:
    return max(1, ceil(share * view.total_blocks))
