"""The order of waiting calls.

``rank`` gives a call its sort key, smaller first. A key depends on nothing that time alone
changes, so that it holds until something happens to the call or to its program, and a sorted
queue stays sorted. Waiting counts all the same: where a key is ``cost + aging * arrived``, of two
calls the one that came s seconds earlier is ahead by s * aging, now and later.

The rules, and what their key says before it ends with the order of arrival:

    fcfs      arrival
    hops      calls to the nearest token, then the deepest call: the paper's order
    service   arrival of the program, then the longest way to its end: the critical path in seconds
    attained  least service so far, in powers of two as in a multi-level feedback queue, aging
    shortest  least time to the end of the program, aging
    deadline  earliest deadline, of the call's first token or, less what then remains, the program
    auto      deadline; ``shortest`` while overloaded

``auto`` serves programs whose graph is unknown beside others, by the same keys: while overloaded,
what a program attained stands for what remains of it, since of the programs that ran for s
seconds most, if lengths are spread widely, run for about s more; otherwise a later call of theirs
is due as soon as one of a known graph, or as late as a program's first call, by what it attained.

Keys of different rules, and of ``auto`` in and out of overload, cannot be compared: when either
changes, all calls are ranked anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heapreplace
from math import frexp, ldexp
from operator import attrgetter
from zlib import crc32

from grape_lc.scheduler.settings import PolicyConfig, Rule
from grape_lc.scheduler.types import RequestView, Stage

LEAST_LEVEL_S = 0.0625
"""Programs that attained less are on the first level."""

MOST_LEVEL_S = 64.0
"""Programs that attained this much or more are on the last level."""

Rank = tuple[float, ...]


def rank(
    view: RequestView, config: PolicyConfig, *, attained: float = 0.0, overloaded: bool = False
) -> Rank:
    """The sort key of ``view`` under ``config.rule``; it ends with ``view.seq``, so none is equal.

    attained: seconds of service that the calls of its program had. overloaded: more work comes in
    than goes out.

    Nobody starves while ``aging`` is above 0: a call that arrived at t goes before all calls of
    programs that arrive later than t + bound, with the bound

        fcfs, service   0
        attained        MOST_LEVEL_S / aging
        shortest        path_s / aging, or MOST_LEVEL_S / aging if the path is unknown
        deadline, auto  the larger of in_flight_s, root_s and its own target for the first token,
                        if no program is expected to take longer than its deadline allows

    ``hops`` has no bound. Under ``auto`` in overload that of ``shortest`` holds.
    """
    return _RULES[config.rule](view, config, attained, overloaded)


def due(view: RequestView, config: PolicyConfig) -> float:
    """The time by which the call should have its first token: the earlier of two deadlines.

    One is the call's own: its arrival plus the target of its client, or else of the settings.
    Without a target a later call is due ``in_flight_s`` after its arrival, a program's first one
    ``root_s`` after that of the program. The other is the program's: its arrival plus
    ``deadline_s``, less the time expected from the call's first token to the end.
    """
    return _due(view, config, config.in_flight_s)


def distance(view: RequestView) -> int:
    """Calls that must end, or begin to decode, before this one emits tokens; 0 if it does.

    The paper's distance in hops to the nearest downstream critical node.
    """
    if view.stage is Stage.DECODE:
        return 0
    return 1 + view.hint.hops if view.stage is Stage.OPEN else 1


def level(attained: float) -> float:
    """Service in seconds, rounded down to a level: 0 or a power of two.

    On a level programs go in the order of arrival, so that each is not interrupted by all those
    that had a little less; levels double, so that what is lost by that is at most half.
    """
    if attained < LEAST_LEVEL_S:
        return 0.0
    return ldexp(0.5, frexp(min(attained, MOST_LEVEL_S))[1])


def order(
    waiting: Iterable[RequestView], served: Mapping[str, float], config: PolicyConfig
) -> list[RequestView]:
    """The views by rank; those of several tenants in turns, except under ``fcfs``.

    Every view must have its rank, or ValueError.
    """
    ranked = sorted(waiting, key=_BY_RANK)
    if ranked and not ranked[0].rank:
        raise ValueError(f"request {ranked[0].id!r} waits without a rank")
    return ranked if config.rule is Rule.FCFS else in_turns(ranked, served)


def in_turns(ordered: list[RequestView], served: Mapping[str, float]) -> list[RequestView]:
    """The views with the tenants in turns; inside a tenant their order stands.

    Next comes the first call of the tenant that was served the fewest tokens, by ``served``
    and by what it was given in this order: what its calls have pending and are expected to decode.
    So while two tenants wait, what both were given differs by no more than it did at first, or by
    one call. Of equal tenants the one goes first whose next call came first, then by name.
    """
    if len({view.hint.tenant for view in ordered}) < 2:
        return ordered
    queues: defaultdict[str, list[RequestView]] = defaultdict(list)
    for view in reversed(ordered):
        queues[view.hint.tenant].append(view)
    turns = [
        (served.get(tenant, 0.0), queue[-1].arrived, tenant, queue)
        for tenant, queue in queues.items()
    ]
    heapify(turns)
    fair: list[RequestView] = []
    while turns:
        given, _, tenant, queue = turns[0]
        view = queue.pop()
        fair.append(view)
        if queue:
            tokens = max(1, view.pending) + (view.remaining or 0.0)
            heapreplace(turns, (given + tokens, queue[-1].arrived, tenant, queue))
        else:
            heappop(turns)
    return fair


_BY_RANK = attrgetter("rank")


def _later(view: RequestView) -> bool:
    """Whether calls of its program came before; if the graph is unknown, judged by time."""
    if view.hint.depth is not None:
        return view.hint.depth > 0
    return view.program_arrived is not None and view.program_arrived < view.arrived


def _due(view: RequestView, config: PolicyConfig, in_flight_s: float) -> float:
    hint = view.hint
    since = view.arrived if view.program_arrived is None else view.program_arrived
    target = config.ttft_s if hint.ttft_s is None else hint.ttft_s
    if target is not None:
        first = view.arrived + target
    elif _later(view):
        first = view.arrived + in_flight_s
    else:
        first = since + config.root_s
    total = config.deadline_s if hint.deadline_s is None else hint.deadline_s
    return first if total is None else min(first, since + total - view.path_s)


def _fcfs(view: RequestView, config: PolicyConfig, attained: float, overloaded: bool) -> Rank:
    return (view.arrived, view.seq)


def _hops(view: RequestView, config: PolicyConfig, attained: float, overloaded: bool) -> Rank:
    return (distance(view), -(view.hint.depth or 0), view.arrived, view.seq)


def _service(view: RequestView, config: PolicyConfig, attained: float, overloaded: bool) -> Rank:
    since = view.arrived if view.program_arrived is None else view.program_arrived
    # Programs that came at the same instant must not mix; a checksum sets them apart.
    program = -1 if view.hint.program is None else crc32(view.hint.program.encode())
    return (since, program, -view.path_s, view.seq)


def _attained(view: RequestView, config: PolicyConfig, attained: float, overloaded: bool) -> Rank:
    return (level(attained) + config.aging * view.arrived, view.seq)


def _shortest(view: RequestView, config: PolicyConfig, attained: float, overloaded: bool) -> Rank:
    left_s = view.path_s if view.path_s > 0.0 else level(attained)
    return (left_s + config.aging * view.arrived, view.seq)


def _deadline(view: RequestView, config: PolicyConfig, attained: float, overloaded: bool) -> Rank:
    return (due(view, config), view.seq)


def _auto(view: RequestView, config: PolicyConfig, attained: float, overloaded: bool) -> Rank:
    if overloaded:
        return _shortest(view, config, attained, overloaded)
    in_flight_s = config.in_flight_s
    if view.hint.depth is None and view.hint.program is not None:
        in_flight_s = max(in_flight_s, min(config.root_s, level(attained)))
    return (_due(view, config, in_flight_s), view.seq)


_RULES: Mapping[Rule, Callable[[RequestView, PolicyConfig, float, bool], Rank]] = {
    Rule.FCFS: _fcfs,
    Rule.HOPS: _hops,
    Rule.SERVICE: _service,
    Rule.ATTAINED: _attained,
    Rule.SHORTEST: _shortest,
    Rule.DEADLINE: _deadline,
    Rule.AUTO: _auto,
}
