"""Which calls get the room of a step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.scheduler.batching import Room
from grape_lc.scheduler.selection import choose_calls
from grape_lc.scheduler.settings import PLAIN, Eviction, PolicyConfig, Rule
from grape_lc.scheduler.types import Limit, Reason
from tests.unit.scheduler.factories import (
    configs,
    snapshots,
    steady,
)
from tests.unit.scheduler.selections import (
    NONE,
    PHASELESS,
    call,
    choose,
    follower,
    given_to,
    prefill,
    shares_of,
)

# ------------------------------------------------------------------ the room


def test_running_calls_come_before_later_ones_and_early_work_gets_the_rest():
    calls = choose(64, prefills=[prefill("p1", 40)])
    assert given_to(calls.prefills) == {"p1": 40}
    assert calls.left == 24


def test_one_of_each_program_first_then_by_rank():
    waiting = [
        call("c2", 30, program="a", rank=(0.0,)),
        call("c3", 30, program="a", rank=(1.0,)),
        call("c4", 30, program="b", rank=(2.0,)),
        call("c5", 30, rank=(3.0,)),
    ]
    calls = choose(100, waiting=waiting)
    assert [tuple(item) for item in calls.starts or ()] == [
        ("c2", 30, Reason.FAIR),
        ("c4", 30, Reason.FAIR),
        ("c5", 30, Reason.FAIR),
        ("c3", 10, Reason.PREVISION),
    ]
    flat = choose(100, PHASELESS, waiting=waiting)
    assert [tuple(item) for item in flat.starts or ()] == [
        ("c2", 30, Reason.PREVISION),
        ("c3", 30, Reason.PREVISION),
        ("c4", 30, Reason.PREVISION),
        ("c5", 10, Reason.PREVISION),
    ]


def test_the_second_phase_goes_by_rank():
    waiting = [call(f"c{n}", 30, program="a", rank=(float(9 - n),)) for n in (2, 3, 4)]
    calls = choose(200, waiting=waiting)
    assert [item.id for item in calls.starts or ()] == ["c2", "c4", "c3"]


def test_a_program_that_prefills_already_has_had_its_turn():
    running = prefill("p1", 30, program="a")
    waiting = [call("c2", 30, program="a"), call("c3", 30, program="b")]
    calls = choose(100, prefills=[running], waiting=waiting)
    assert [item.id for item in calls.starts or ()] == ["c3", "c2"]


def test_the_first_phase_goes_by_deadline():
    waiting = [
        call("c2", 30, rank=(0.0,), depth=0),
        call("c3", 30, rank=(1.0,), depth=2),
        call("c4", 30, rank=(2.0,), depth=0, ttft_s=0.01),
    ]
    calls = choose(100, waiting=waiting)
    assert [item.id for item in calls.starts or ()] == ["c4", "c3", "c2"]


def test_short_rests_of_adopted_calls_go_first():
    calls = choose(
        200,
        prefills=[prefill("p1", 500), prefill("p2", 20, adopted=True)],
        waiting=[call("c3", 30, rank=(0.0,)), follower("c4", 10)],
    )
    # What is left behind them is 170, of which a part is spared for the one that runs.
    assert given_to(calls.prefills) == {"p2": 20, "p1": 170}
    assert [item.reason for item in calls.prefills] == [Reason.SWITCH, Reason.FAIR]
    assert [tuple(item)[::2] for item in calls.starts or ()] == [
        ("c4", Reason.SWITCH),
        ("c3", Reason.PREVISION),
    ]


def test_of_short_rests_those_that_run_go_first():
    """They hold a slot already."""
    running = prefill("p5", 20, adopted=True)
    calls = choose(30, prefills=[running], waiting=[follower("c1", 20)])
    assert shares_of(calls) == {"p5": 20, "c1": 10}


def test_a_long_rest_has_no_precedence():
    calls = choose(
        64,
        prefills=[prefill("p1", 500)],
        waiting=[follower("c3", 101)],
    )
    assert given_to(calls.prefills) == {"p1": 64}


@pytest.mark.parametrize(("tokens", "kept"), [(64, 16), (63, 16), (60, 15)])
def test_running_prefills_keep_a_part_of_what_is_left(tokens, kept):
    """Should the other be unable to start, they get on, and free one day what it waits for."""
    waiting = [follower("c2", 90)]
    calls = choose(tokens, prefills=[prefill("p9", 500)], waiting=waiting)
    assert given_to(calls.prefills) == {"p9": kept}
    assert given_to(calls.starts or ()) == {"c2": tokens - kept}


def test_it_is_the_same_part_however_many_start():
    waiting = [call(f"c{n}", 30) for n in (2, 3, 4)]
    calls = choose(64, prefills=[prefill("p9", 500)], waiting=waiting)
    assert shares_of(calls) == {"c2": 30, "c3": 18, "c4": 0, "p9": 16}
    # What one of them takes in its turn counts.
    prefills = [prefill("p1", 10), prefill("p9", 500)]
    calls = choose(64, prefills=prefills, waiting=waiting)
    assert shares_of(calls) == {"p1": 10, "c2": 30, "c3": 18, "c4": 0, "p9": 6}


def test_nothing_more_is_spared_than_is_left_to_compute():
    calls = choose(64, prefills=[prefill("p9", 3)], waiting=[follower("c2", 90)])
    assert given_to(calls.prefills) == {"p9": 3}
    assert given_to(calls.starts or ()) == {"c2": 61}


def test_a_switch_spares_nothing():
    calls = choose(
        20, limit=Limit.SWITCH, prefills=[prefill("p1", 500)], waiting=[follower("c2", 20)]
    )
    assert given_to(calls.prefills) == {"p1": 0}
    assert given_to(calls.starts or ()) == {"c2": 20}
    assert calls.left == 0


def test_a_call_with_drafts_gets_what_it_takes_to_start():
    calls = choose(64, waiting=[follower("c2", 1)], least_call_tokens=6)
    assert given_to(calls.starts or ()) == {"c2": 6}
    assert calls.left == 58


def test_prefills_are_capped_only_for_a_reason():
    prefills = [prefill("p1", 300)]
    assert choose(512, limit=Limit.NONE, prefills=prefills).prefills == ()
    late = [call("c2", 300)]
    assert choose(512, limit=Limit.NONE, prefills=prefills, waiting=late).prefills == ()
    short = [follower("c2", 20)]
    calls = choose(512, limit=Limit.NONE, prefills=prefills, waiting=short)
    assert given_to(calls.prefills) == {"p1": 300}


def test_what_is_expected_of_calls_without_caps_is_known_all_the_same():
    calls = choose(512, limit=Limit.NONE, prefills=[prefill("p1", 300)], waiting=[call("c2", 400)])
    assert shares_of(calls) == {"p1": 300, "c2": 212}
    assert calls.left == 0


def test_nothing_starts_while_a_follower_is_due():
    calls = choose(0, limit=Limit.HOLD, prefills=[prefill("p1", 30)], waiting=[call("c2", 30)])
    assert given_to(calls.prefills) == {"p1": 0}
    assert calls.starts == ()


# ------------------------------------------------------------------ calls that are not cut


def test_a_whole_call_that_does_not_fit_comes_on_top_of_the_room():
    calls = choose(64, prefills=[prefill("p1", 500)], waiting=[call("c2", 300, whole=True)])
    assert calls.whole == 300
    assert given_to(calls.prefills) == {"p1": 64}, "it does not take the share of those that run"
    assert given_to(calls.starts or ()) == {"c2": 300}


def test_a_whole_call_that_fits_is_as_any_other():
    calls = choose(64, waiting=[call("c2", 40, whole=True)])
    assert (calls.whole, calls.left) == (0, 24)


def test_only_the_first_to_start_comes_on_top():
    """Whatever the rank says: the engine begins with the one that is due first."""
    late = call("c2", 300, rank=(0.0,), depth=0)
    soon = call("c3", 200, rank=(1.0,), depth=2, whole=True)
    calls = choose(64, waiting=[late, soon])
    assert [item.id for item in calls.starts or ()] == ["c3", "c2"]
    assert calls.whole == 200
    both = choose(64, waiting=[call("c2", 10), call("c3", 200, whole=True)])
    assert both.whole == 0
    assert given_to(both.starts or ()) == {"c2": 10, "c3": 200}
    assert both.left == 54


def test_a_blocked_whole_call_does_not_count():
    waiting = [call("c1", 300, whole=True, blocked=True), call("c2", 200, whole=True)]
    assert choose(64, waiting=waiting).whole == 200


# ------------------------------------------------------------------ whatever comes


@steady
@given(snapshots(), configs(), st.integers(0, 600), st.sampled_from(list(Limit)))
def test_shares_fit_in_the_room(snapshot, config, tokens, limit):
    calls = choose_calls(snapshot, config, Room(limit, tokens), NONE)
    views = {view.id: view for view in (*snapshot.prefills, *snapshot.waiting)}
    running = {view.id for view in snapshot.prefills}
    cut = [(view, n) for view, n in calls.shares if view.id in running or not view.whole]
    assert 0 <= calls.left <= tokens - sum(n for _, n in cut)
    for view, given_tokens in calls.shares:
        assert 0 <= given_tokens <= max(view.pending, snapshot.least_call_tokens)
    # A whole call is never offered a part.
    for item in calls.starts or ():
        view = views[item.id]
        if view.whole and not view.blocked:
            assert item.tokens >= view.pending
    assert {item.id for item in calls.prefills} in (running, set())
    started = {item.id for item in calls.starts or ()}
    assert not started & calls.refused.keys()
    able = [key for key in started if not views[key].blocked]
    assert len(able) <= snapshot.free_rows
    if (
        calls.starts is not None
        and limit is not Limit.HOLD
        and len(started) < len(snapshot.waiting)
    ):
        assert calls.refused, "the first one that does not start is told why"


@steady
@given(snapshots(), configs())
def test_a_running_prefill_always_gets_on_unless_the_step_is_a_switch(snapshot, config):
    calls = choose_calls(snapshot, config, Room(Limit.CAP, 64), NONE)
    if snapshot.prefills and not any(view.whole for view in snapshot.waiting):
        pending = sum(view.pending for view in snapshot.prefills)
        assert sum(given_to(calls.prefills).values()) >= min(pending, 16)


def test_plain_settings_decide_nothing():
    config = PolicyConfig(**PLAIN)
    assert (config.rule, config.eviction) == (Rule.FCFS, Eviction.TAIL)
    calls = choose(
        512, config, limit=Limit.NONE, prefills=[prefill("p1", 300)], waiting=[call("c2", 300)]
    )
    assert (calls.prefills, calls.starts, calls.refused) == ((), None, {})
