"""Which calls get the prefill tokens of a step.

The paper's two phases: first one micro-task of each program, by deadline, so that no program
takes a step for itself; then whatever is left of the room, by rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from typing import NamedTuple

from grape_lc.scheduler.batching import FREE, Room, is_short, is_tight
from grape_lc.scheduler.preemption import may_start
from grape_lc.scheduler.priority import due, in_turns, order
from grape_lc.scheduler.settings import PolicyConfig, Rule
from grape_lc.scheduler.types import Item, Limit, Reason, Refusal, RequestView, Snapshot, Stage

_SPARED = 4
"""Running prefills keep one part in this many of the room: they hold KV."""

_PATIENCE = 2.0
"""Times ``root_s`` that a call may wait before short rests of others no longer go first.

They are many where many programs run, and might fill every step.
"""

_OVERFLOW = 8
"""Calls that are named beyond the room: prefix cache hits may leave some."""


class Calls(NamedTuple):
    """What real calls get of a step; ``left`` is the room that remains for early work.

    shares: what each is expected to compute. prefills: empty if running calls need no caps.
    starts: None if the engine's order stands. whole: tokens beyond the room of the first call to
    start, if it must not be cut.
    """

    shares: Sequence[tuple[RequestView, int]]
    prefills: tuple[Item, ...]
    starts: tuple[Item, ...] | None
    refused: dict[str, Refusal]
    left: int
    whole: int


def choose_calls(
    snapshot: Snapshot, config: PolicyConfig, room: Room, victims: frozenset[str]
) -> Calls:
    """Share ``room`` among real calls that are not ``victims``.

    The engine scans running calls before waiting ones, so caps on the former keep back what the
    latter are to get. Should one that waits be unable to start, running ones still get on, and
    one day free what it waits for: a part is spared for them. A switch step spares none, since
    the next step is none.
    """
    refused = dict.fromkeys(victims, Refusal.VICTIM)
    running = [view for view in snapshot.prefills if view.id not in victims]
    stock = config.rule is Rule.FCFS and not config.admission
    starting = _startable(snapshot, config, room, victims, {} if stock else refused)
    if not running and not starting:
        return Calls((), (), None if stock else (), refused, room.tokens, 0)
    short = config.handover and any(is_short(view, config) for view in starting)
    capped = short or room.limit not in FREE
    shares: list[tuple[RequestView, int]] = []
    prefills: list[Item] = []
    starts: list[Item] = []
    left, whole, first = room.tokens, 0, True
    behind = sum(view.pending for view in running)
    spared = 0 if room.limit is Limit.SWITCH else ceil(room.tokens / _SPARED)
    plain = _by_arrival(snapshot, config)
    prefill, least = Stage.PREFILL, snapshot.least_call_tokens
    patient = snapshot.signals.behind <= _PATIENCE * config.root_s
    first_shorts = config.handover and patient
    views = (*running, *starting)
    for view, reason in _in_phases(views, config, snapshot.served, plain, first_shorts):
        pending = view.pending
        if view.stage is prefill:
            behind -= pending
            tokens = min(pending, left)
            left -= tokens
            spared = max(0, spared - tokens)
            if capped:
                prefills.append(Item(view.id, tokens, reason))
        else:
            tokens = 0
            if not view.blocked:
                most = max(0, left - min(behind, spared))
                tokens = min(max(pending, least), most)
                if view.whole and tokens < pending:
                    # It comes on top if it is the first to start; or it waits until it is.
                    tokens = pending
                    whole = tokens if first else whole
                else:
                    left -= tokens
                first = False
            if tokens:
                starts.append(Item(view.id, tokens, reason))
            else:
                starts.append(Item(view.id, room.tokens, Reason.PREVISION))
        shares.append((view, tokens))
    return Calls(shares, tuple(prefills), None if stock else tuple(starts), refused, left, whole)


def _startable(
    snapshot: Snapshot,
    config: PolicyConfig,
    room: Room,
    victims: frozenset[str],
    refused: dict[str, Refusal],
) -> list[RequestView]:
    """Waiting calls that may start in this step, in order; notes why the next one may not.

    The order is kept: a call that has to wait is not overtaken by a smaller one, or it might wait
    for ever.
    """
    if not snapshot.waiting or room.limit is Limit.HOLD:
        return []
    rows, pool, signals = snapshot.free_rows, snapshot.pool, snapshot.signals
    thrashing = signals.thrashing and signals.recomputed > config.thrash
    running = snapshot.decodes.rows + len(snapshot.prefills)
    # Open prompts give way to any call. What running prefills lack of their prompts is certain
    # to be taken, so it is not part of the growth, of which half is taken at a time.
    size = pool.block_size
    lacking = sum(-(-v.tokens // size) + -v.computed // size for v in snapshot.prefills)
    certain = lacking * pool.groups
    free = pool.free + sum(view.held_blocks for view in snapshot.opens) - certain
    growth = max(0, pool.growth - certain)
    preempts = bool(victims) and bool(victims.difference(view.id for view in snapshot.opens))
    chosen: list[RequestView] = []
    beyond = tokens = starting = 0
    for view in _ordered(snapshot, config):
        if starting >= rows:
            refused[view.id] = Refusal.ROWS
            break
        if tokens >= room.tokens:
            beyond += 1
            if beyond > _OVERFLOW:
                refused[view.id] = Refusal.BUDGET
                break
        if preempts or (
            thrashing
            and not may_start(
                view,
                pool._replace(growth=growth),
                free=free,
                thrashing=True,
                config=config,
                running=running + starting,
            )
        ):
            refused[view.id] = Refusal.ADMISSION
            break
        chosen.append(view)
        if not view.blocked:
            starting += 1
            blocks = pool.blocks(view.tokens)
            tokens += view.pending
            free -= max(0, blocks - view.held_blocks)
            growth += max(0, view.end_blocks * pool.groups - blocks)
    return chosen


def _by_arrival(snapshot: Snapshot, config: PolicyConfig) -> bool:
    """Whether calls go as they came: the rule is free to choose, and KV decides."""
    return config.rule is Rule.AUTO and is_tight(snapshot, config)


def _ordered(snapshot: Snapshot, config: PolicyConfig) -> list[RequestView]:
    """Waiting calls in the order in which they may start."""
    if _by_arrival(snapshot, config):
        return sorted(snapshot.waiting, key=_arrival)
    return order(snapshot.waiting, snapshot.served, config)


def _in_phases(
    views: Iterable[RequestView],
    config: PolicyConfig,
    served: Mapping[str, float],
    plain: bool,
    first_shorts: bool,
) -> Iterator[tuple[RequestView, Reason]]:
    """Short rests of adopted calls, then one call of each program, then the others.

    Behind the short rests several tenants take turns, each with its calls in this order, or the
    phases would undo the turns in which waiting calls were chosen. plain: the others as they came.
    first_shorts: short rests go before the others.
    """
    others = sorted(views, key=_arrival if plain else _by_rank)
    short = [view for view in others if is_short(view, config)] if first_shorts else []
    if short:
        chosen = {view.id for view in short}
        others = [view for view in others if view.id not in chosen]
        # Running ones hold a slot already.
        for view in sorted(short, key=lambda view: view.stage is not Stage.PREFILL):
            yield view, Reason.SWITCH
    first = [] if plain or not config.two_phase else _one_of_each(others, config)
    fair = {view.id for view in first}
    rest = [*first, *(view for view in others if view.id not in fair)]
    if not plain and config.rule is not Rule.FCFS:
        rest = in_turns(rest, served)
    for view in rest:
        yield view, Reason.FAIR if view.id in fair else Reason.PREVISION


def _one_of_each(views: Iterable[RequestView], config: PolicyConfig) -> list[RequestView]:
    """One call of each program, by deadline."""
    seen: dict[str, RequestView] = {}
    for view in sorted(views, key=lambda view: (due(view, config), view.seq)):
        seen.setdefault(view.hint.program or view.id, view)
    return [*seen.values()]


def _by_rank(view: RequestView) -> tuple[tuple[float, ...], int]:
    return (view.rank, view.seq)


def _arrival(view: RequestView) -> tuple[float, int]:
    return (view.arrived, view.seq)
