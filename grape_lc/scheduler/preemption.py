"""Who gives up KV when it runs short, and who may begin to take some.

A request that gives up its blocks computes its tokens again later. Naive reclaim therefore feeds
on itself: each victim comes back and makes another. Two things keep it from that. Once much is
computed again, a call begins only if the running ones will have what they need and there is ample
room (``may_start``); before that, preemptions cost less than idle KV. And of the running calls
the one that came first gives way to none, under every rule: so some call always runs to its end,
and then another one came first.

The rules among open prompts, and among running calls; in doubt the one that came last goes:

    tail       open prompts that are the most hops away; running calls that came last: as vLLM
    lru        the longest untouched
    distance   the most hops from the nearest token: the paper's rule
    recompute  what costs the least to compute again
    cost       what is worth the least, per block and expected step until its use

An open prompt always goes before a running call: nobody waits for it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop
from typing import NamedTuple

from grape_lc.scheduler.cost import StepCost, StepLoad
from grape_lc.scheduler.priority import distance
from grape_lc.scheduler.settings import Eviction, PolicyConfig
from grape_lc.scheduler.types import Pool, RequestView, Stage, Victim

GROWTH_SHARE = 0.5
"""Of the KV that running calls are expected to need, what a starting call leaves them while the
engine thrashes.

They do not all need it at once: those that end meanwhile give back more than they took.
"""


def victims(
    candidates: Iterable[RequestView],
    need: int,
    config: PolicyConfig,
    *,
    cost: StepCost | None = None,
    use: float = 1.0,
    spare: frozenset[str] = frozenset(),
) -> tuple[Victim, ...]:
    """Requests that give up their KV, in order, until ``need`` blocks would be free.

    All who can, if that is not enough: open prompts and running calls that hold blocks, except
    those named in ``spare`` and the running call that came first. If it is a request that lacks
    blocks which then are still missing, it waits itself.

    candidates: open prompts, and all running calls. use: the share of early tokens that were of
    use lately, 0 to 1. cost: predicts what computing again takes; without it, tokens are counted.
    """
    if need <= 0:
        return ()
    opens, running = _able(candidates, spare)
    rule = config.eviction.value
    chosen: list[Victim] = []
    for group in (opens, running):
        heap = _keyed(group, config, cost, use)
        heapify(heap)
        while heap:
            view = heappop(heap)[-1]
            chosen.append(Victim(view.id, view.held_blocks, rule))
            need -= view.held_blocks
            if need <= 0:
                return tuple(chosen)
    return tuple(chosen)


def choose(
    candidates: Iterable[RequestView],
    config: PolicyConfig,
    *,
    cost: StepCost | None = None,
    use: float = 1.0,
    spare: frozenset[str] = frozenset(),
) -> RequestView | None:
    """The request that gives up its KV next, the first of ``victims``; None if none can."""
    opens, running = _able(candidates, spare)
    keyed = _keyed(opens or running, config, cost, use)
    return min(keyed)[-1] if keyed else None


def may_start(
    view: RequestView,
    pool: Pool,
    *,
    free: int,
    thrashing: bool,
    config: PolicyConfig,
    running: int,
) -> bool:
    """Whether a waiting call may start now, as far as KV goes.

    free: blocks that are free, or would be without open prompts, less those that calls which
    run already or start before it need for tokens they have. running: calls that run or start
    before it. thrashing: much of what is computed had been computed before, and the pool did not
    recover since.

    While thrashing it may if its tokens' blocks, less those it holds already, fit in beside
    ``GROWTH_SHARE`` of ``pool.growth`` and ``wide_margin`` of the pool. Otherwise it always may:
    only the engine knows how much of a prompt it finds in its cache, and starts no call whose rest
    does not fit. If nothing runs it may too. Together with ``victims`` this lets every call end,
    in any pool that holds the largest alone: if nothing runs, the next one starts; and of those
    that run, the one that came first gives way to none.
    """
    if running == 0 or not thrashing or not config.admission:
        return True
    need = max(0, pool.blocks(view.tokens) - view.held_blocks)
    kept = GROWTH_SHARE * pool.growth + config.wide_margin * pool.total
    return need + kept <= free


class _Context(NamedTuple):
    config: PolicyConfig
    cost: StepCost | None
    use: float


_Key = tuple[float, ...]
_Keyed = tuple[_Key, int, RequestView]


def _able(
    candidates: Iterable[RequestView], spare: frozenset[str]
) -> tuple[list[RequestView], list[RequestView]]:
    """Open prompts and running calls that can give up blocks."""
    opens: list[RequestView] = []
    running: list[RequestView] = []
    first: RequestView | None = None
    for view in candidates:
        if view.stage is Stage.OPEN:
            kind = opens
        elif view.stage is Stage.WAITING:
            continue
        else:
            kind = running
            if first is None or view.seq < first.seq:
                first = view
        if view.held_blocks > 0 and view.id not in spare:
            kind.append(view)
    return opens, [view for view in running if view is not first]


def _keyed(
    views: list[RequestView], config: PolicyConfig, cost: StepCost | None, use: float
) -> list[_Keyed]:
    """The views of one kind with their sort keys; ``seq`` differs, so views are not compared."""
    key = _RULES[config.eviction]
    context = _Context(config, cost, use)
    return [(key(view, context), -view.seq, view) for view in views]


def _tail(view: RequestView, context: _Context) -> _Key:
    return (-view.hint.hops,) if view.stage is Stage.OPEN else ()


def _lru(view: RequestView, context: _Context) -> _Key:
    return (view.touched,)


def _distance(view: RequestView, context: _Context) -> _Key:
    return (-distance(view),)


def _recompute(view: RequestView, context: _Context) -> _Key:
    return (_again(view, context),)


def _cost(view: RequestView, context: _Context) -> _Key:
    """Seconds saved, times the chance of it, per block and step for which the block is kept.

    After InferCept's waste ("Efficient Intercept Support for Augmented Large Language Model
    Inference", 2024): keeping costs blocks times the time until they are of use, giving up costs
    the time to compute them again. Of an open prompt that time is what is expected of its source
    and of the calls in between, and each of these calls may make it useless. Of a running call it
    is the time until its blocks come back by themselves: one that is nearly done has little to
    give. Steps stand for time, all requests see the same ones.
    """
    config = context.config
    if view.stage is Stage.OPEN:
        hops = max(1, view.hint.hops)
        chance = context.use**hops
        between = (hops - 1) * config.horizon
        source = config.horizon if view.remaining is None else view.remaining
        steps = 1.0 + between + (0.0 if view.final else source)
    else:
        chance = 1.0
        limit = max(0, view.max_output - view.output)
        left = config.horizon if view.remaining is None else view.remaining
        steps = 1.0 + min(limit, left)
    return (_again(view, context) * chance / (view.held_blocks * steps),)


def _again(view: RequestView, context: _Context) -> float:
    """What computing the request's tokens again costs: seconds as a step alone, or tokens."""
    if context.cost is None:
        return view.computed
    return context.cost.seconds(StepLoad().plus(max(1, view.computed)))


_RULES: Mapping[Eviction, Callable[[RequestView, _Context], _Key]] = {
    Eviction.TAIL: _tail,
    Eviction.LRU: _lru,
    Eviction.DISTANCE: _distance,
    Eviction.RECOMPUTE: _recompute,
    Eviction.COST: _cost,
}
