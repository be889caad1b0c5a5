"""The order of waiting calls, under every rule."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from grape_lc.scheduler.priority import MOST_LEVEL_S, distance, due, level, order, rank
from grape_lc.scheduler.settings import PolicyConfig, Rule
from grape_lc.scheduler.types import Stage
from tests.unit.scheduler.factories import (
    configs,
    make_decode,
    make_open,
    make_prefill,
    make_view,
    steady,
    times,
    views,
)

WAITING = (Stage.WAITING,)
attained = st.sampled_from([0.0, 0.01, 0.3, 5.0, 900.0])


def by(rule, **settings):
    return PolicyConfig(rule=rule, **settings)


def ranked(waiting, config, **more):
    for view in waiting:
        view.rank = rank(view, config, **more)
    return [view.id for view in order(waiting, {}, config)]


def test_fcfs_is_the_order_of_arrival():
    late, early = make_view("c1", arrived=9.0), make_view("c2", arrived=1.0)
    assert ranked([late, early], by(Rule.FCFS)) == ["c2", "c1"]


def test_distance_counts_calls_to_the_nearest_token():
    assert distance(make_decode()) == 0
    assert distance(make_prefill()) == 1
    assert distance(make_view()) == 1
    assert distance(make_open(hops=1)) == 2
    assert distance(make_open(hops=3)) == 4


def test_hops_puts_calls_before_open_prompts_and_the_deepest_first():
    root, deep = make_view("c1", depth=0), make_view("c2", depth=3)
    near, far = make_open("o3", hops=1, depth=1), make_open("o4", hops=2, depth=9)
    unknown = make_view("c0")
    assert ranked([far, near, root, deep, unknown], by(Rule.HOPS)) == [
        *("c2", "c0", "c1", "o3", "o4")
    ]


def test_service_goes_by_program_and_inside_it_by_the_longest_path():
    first: dict[str, Any] = {"program": "p1", "program_arrived": 1.0}
    second: dict[str, Any] = {"program": "p2", "program_arrived": 2.0}
    waiting = [
        make_view("c1", path_s=9.0, **second),
        make_view("c2", path_s=1.0, **first),
        make_view("c3", path_s=5.0, **first),
        make_view("c4", path_s=2.0, arrived=1.5),
    ]
    assert ranked(waiting, by(Rule.SERVICE)) == ["c3", "c2", "c4", "c1"]


def test_service_keeps_programs_apart_that_arrived_together():
    waiting = [
        make_view(f"c{n}", path_s=float(n), program=f"p{n % 2}", program_arrived=1.0)
        for n in range(6)
    ]
    names = ranked(waiting, by(Rule.SERVICE))
    programs = [int(name[1:]) % 2 for name in names]
    assert programs in ([0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0])


def test_levels_double():
    assert [level(s) for s in (0.0, 0.06, 0.0625, 0.1, 1.0, 1.9, 8.0, 9.0, 64.0, 1e9)] == [
        *(0.0, 0.0, 0.0625, 0.0625, 1.0, 1.0, 8.0, 8.0, 64.0, 64.0)
    ]


@steady
@given(st.floats(0.0625, MOST_LEVEL_S))
def test_a_level_is_at_most_what_was_attained_and_more_than_half(seconds):
    assert level(seconds) <= seconds < 2 * level(seconds)


def test_attained_prefers_who_had_little_until_the_other_waited_long():
    config = by(Rule.ATTAINED, aging=0.5)
    heavy = make_view("c1", arrived=0.0)
    soon, later = make_view("c2", arrived=15.0), make_view("c3", arrived=17.0)
    # 8 seconds of service are worth 16 of waiting.
    assert rank(soon, config, attained=0.0) < rank(heavy, config, attained=9.0)
    assert rank(heavy, config, attained=9.0) < rank(later, config, attained=0.0)


def test_on_one_level_arrival_decides():
    config = by(Rule.ATTAINED)
    first, second = make_view("c1"), make_view("c2")
    assert rank(first, config, attained=7.9) < rank(second, config, attained=4.1)


def test_shortest_goes_by_what_remains_or_was_attained_until_the_longest_waited():
    config = by(Rule.SHORTEST, aging=0.5)
    long = make_view("c1", arrived=0.0, path_s=8.0)
    soon, later = (make_view(f"c{at}", arrived=float(at), path_s=1.0) for at in (13, 15))
    assert rank(soon, config) < rank(long, config) < rank(later, config)
    unknown = make_view("c2", arrived=0.0)
    assert rank(unknown, config, attained=4.0) < rank(long, config)
    assert rank(long, config) < rank(unknown, config, attained=16.0)


def test_due_by_the_first_token():
    config = PolicyConfig(in_flight_s=0.25, root_s=1.5)
    root = make_view(arrived=10.0, depth=0, program_arrived=9.5)
    later = make_view(arrived=10.0, depth=2, program_arrived=3.0)
    assert due(root, config) == 11.0
    assert due(later, config) == 10.25
    # Without a graph, a program that was here before has made a call before.
    assert due(make_view(arrived=10.0, program="p", program_arrived=3.0), config) == 10.25
    assert due(make_view(arrived=10.0, program="p", program_arrived=10.0), config) == 11.5
    assert due(make_view(arrived=10.0), config) == 11.5


def test_due_by_targets():
    config = PolicyConfig(ttft_s=2.0)
    assert due(make_view(arrived=10.0, depth=2), config) == 12.0
    assert due(make_view(arrived=10.0, depth=2, ttft_s=0.5), config) == 10.5


def test_due_by_the_end_of_the_program_less_what_remains():
    view = make_view(arrived=10.0, depth=2, program_arrived=4.0, path_s=5.0, deadline_s=11.0)
    assert due(view, PolicyConfig(in_flight_s=0.25)) == 10.0
    assert due(view, PolicyConfig(in_flight_s=0.25, deadline_s=1.0)) == 10.0
    assert due(dataclasses.replace(view, path_s=2.0), PolicyConfig(in_flight_s=0.25)) == 10.25
    plain = make_view(arrived=10.0, depth=2, program_arrived=4.0, path_s=5.0)
    assert due(plain, PolicyConfig(deadline_s=9.0)) == 8.0


def test_deadline_lets_a_root_pass_once_it_waited_long_enough():
    config = by(Rule.DEADLINE, in_flight_s=0.25, root_s=1.5)
    root = make_view("c1", arrived=10.0, depth=0)
    soon, later = (make_view(f"c{n}", arrived=11 + n / 10, depth=1) for n in (2, 3))
    assert ranked([root, later, soon], config) == ["c2", "c1", "c3"]


def test_auto_is_deadline_and_shortest_while_overloaded():
    auto = by(Rule.AUTO)
    short = make_view("c1", arrived=5.0, depth=0, path_s=1.0)
    long = make_view("c2", arrived=5.0, depth=1, path_s=9.0)
    assert ranked([short, long], auto) == ["c2", "c1"]
    assert ranked([short, long], auto, overloaded=True) == ["c1", "c2"]


def test_auto_mixes_programs_without_a_graph_among_the_others():
    auto = by(Rule.AUTO, in_flight_s=0.25, root_s=1.5)
    call = make_view("c1", arrived=10.0, program="p", program_arrived=1.0)
    little = rank(call, auto, attained=0.1)
    assert little == rank(make_view("c1", arrived=10.0, depth=2), auto)
    assert little < rank(call, auto, attained=1.0) < rank(call, auto, attained=100.0)
    assert rank(call, auto, attained=100.0) == rank(make_view("c1", arrived=10.0), auto)
    # A target that its client named holds whatever it attained.
    named = make_view("c1", arrived=10.0, program="p", program_arrived=1.0, ttft_s=0.1)
    assert rank(named, auto, attained=100.0) == (10.1, 1)


def test_auto_in_overload_takes_what_was_attained_for_what_remains():
    auto = by(Rule.AUTO)
    unknown = make_view("c1", arrived=0.0, program="p")
    known = make_view("c2", arrived=0.0, program="q", depth=1, path_s=4.0)
    more = {"overloaded": True}
    assert rank(unknown, auto, attained=2.0, **more) < rank(known, auto, **more)
    assert rank(known, auto, **more) < rank(unknown, auto, attained=8.0, **more)


@steady
@given(views(WAITING), configs(), st.data(), st.booleans())
def test_every_rule_orders_totally_and_whatever_the_order_given(waiting, config, data, overloaded):
    for view in waiting:
        view.rank = rank(view, config, attained=data.draw(attained), overloaded=overloaded)
        assert view.rank[-1] == view.seq
    served = data.draw(st.dictionaries(st.sampled_from(["", "a", "b"]), st.floats(0, 2000)))
    once = order(waiting, served, config)
    again = order(data.draw(st.permutations(waiting)), served, config)
    assert [view.id for view in once] == [view.id for view in again]
    assert sorted(view.seq for view in once) == sorted(view.seq for view in waiting)
    # Inside a tenant rank decides.
    for tenant in {view.hint.tenant for view in once}:
        own = [view.rank for view in once if view.hint.tenant == tenant]
        assert own == sorted(own)


@steady
@given(views(), configs(), attained, st.booleans(), st.integers(1, 99), times)
def test_a_rank_holds_while_nothing_but_progress_happens(
    drawn, config, service, overloaded, more, now
):
    for view in drawn:
        before = rank(view, config, attained=service, overloaded=overloaded)
        view.computed += more
        view.tokens += more
        view.in_flight = more
        view.held_blocks += more
        view.touched = view.last_token = now
        assert rank(view, config, attained=service, overloaded=overloaded) == before


AGING = (Rule.FCFS, Rule.ATTAINED, Rule.SHORTEST, Rule.DEADLINE, Rule.AUTO)


@steady
@given(
    views(WAITING, least=2, most=2),
    configs(),
    st.sampled_from(AGING),
    attained,
    st.booleans(),
    st.floats(0.001, 100),
)
def test_no_call_is_passed_by_programs_that_arrive_after_its_bound(
    drawn, config, rule, service, overloaded, beyond
):
    call, other = drawn
    config = config.but(rule=rule, deadline_s=None)
    other.hint = dataclasses.replace(other.hint, deadline_s=None)
    target = config.ttft_s if call.hint.ttft_s is None else call.hint.ttft_s
    if config.rule is Rule.FCFS:
        bound = 0.0
    elif config.rule is Rule.DEADLINE or (config.rule is Rule.AUTO and not overloaded):
        bound = max(config.in_flight_s, config.root_s, target or 0.0)
    else:
        assume(config.aging > 0)
        known = call.path_s > 0 and config.rule is not Rule.ATTAINED
        bound = (call.path_s if known else MOST_LEVEL_S) / config.aging
    other.program_arrived = call.arrived + bound + beyond
    other.arrived = other.program_arrived + other.seq
    mine = rank(call, config, attained=service, overloaded=overloaded)
    assert mine < rank(other, config, attained=0.0, overloaded=overloaded)


def test_without_ageing_the_longest_is_passed_for_ever():
    config = by(Rule.SHORTEST, aging=0.0)
    long, late = make_view("c1", path_s=8.0), make_view("c2", path_s=1.0, arrived=1e9)
    assert rank(late, config) < rank(long, config)


def tenants_of(waiting, served, **settings):
    config = by(Rule.DEADLINE, **settings)
    for view in waiting:
        view.rank = rank(view, config)
    return "".join(view.hint.tenant for view in order(waiting, served, config))


def test_tenants_take_turns_whoever_came_first():
    waiting = [make_view(f"c{n}", tenant="a") for n in range(4)]
    waiting += [make_view(f"c{n}", tenant="b") for n in range(4, 7)]
    assert tenants_of(waiting, {}) == "abababa"
    assert tenants_of(waiting, {"a": 150.0}) == "bababaa"
    assert tenants_of(waiting, {"a": 450.0}) == "bbbaaaa"


def test_turns_count_what_is_pending_and_will_be_decoded():
    waiting = [make_view(f"c{n}", tenant="a", tokens=400) for n in range(2)]
    waiting += [make_view(f"c{n}", tenant="b", tokens=100, remaining=50.0) for n in range(2, 7)]
    assert tenants_of(waiting, {}) == "abbbabb"


def test_under_fcfs_there_are_no_turns():
    waiting = [make_view(f"c{n}", tenant="ab"[n > 2]) for n in range(5)]
    assert ranked(waiting, by(Rule.FCFS)) == ["c0", "c1", "c2", "c3", "c4"]


@steady
@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 900), st.none() | st.floats(0, 300)),
        min_size=1,
        max_size=30,
    )
)
def test_shares_of_tenants_differ_by_at_most_one_call_while_all_wait(calls):
    config = by(Rule.SHORTEST)
    waiting = [
        make_view(f"c{n}", tenant=tenant, tokens=tokens, remaining=remaining)
        for n, (tenant, tokens, remaining) in enumerate(calls)
    ]
    for view in waiting:
        view.rank = rank(view, config)
    left = Counter(view.hint.tenant for view in waiting)
    given_tokens = dict.fromkeys(left, 0.0)
    largest = max(view.pending + (view.remaining or 0.0) for view in waiting)
    for view in order(waiting, {}, config):
        given_tokens[view.hint.tenant] += view.pending + (view.remaining or 0.0)
        left[view.hint.tenant] -= 1
        if not all(left.values()):
            break
        assert max(given_tokens.values()) - min(given_tokens.values()) <= largest


def test_a_call_without_a_rank_is_refused():
    with pytest.raises(ValueError, match="'c2' waits without a rank"):
        order([make_view("c1", rank=(1.0, 1)), make_view("c2")], {}, PolicyConfig())
