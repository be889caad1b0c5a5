"""Tenants take turns for the room of a step too, not only for a place among who may start."""

from __future__ import annotations

import pytest

from grape_lc.scheduler.settings import Rule
from grape_lc.scheduler.types import Reason
from tests.unit.scheduler.selections import CONFIG, PHASELESS, call, choose, follower, prefill


def flood(pending=50, **fields):
    """Nine calls of tenant ``a``, each of its own program, and one of ``b`` that came last."""
    calls = [call(f"c{n}", pending, tenant="a", program=f"p{n}", **fields) for n in range(9)]
    return [*calls, call("c9", pending, tenant="b", program="p9", **fields)]


@pytest.mark.parametrize("config", [CONFIG, PHASELESS], ids=["phases", "phaseless"])
@pytest.mark.parametrize("rule", [Rule.DEADLINE, Rule.SHORTEST, Rule.HOPS, Rule.AUTO])
def test_the_tenant_that_was_served_less_gets_the_room(config, rule):
    calls = choose(64, config.but(rule=rule), waiting=flood(), served={"a": 900.0})
    assert [(item.id, item.tokens) for item in (calls.starts or ())][:2] == [("c9", 50), ("c0", 14)]


def test_equal_tenants_take_turns():
    calls = choose(400, waiting=flood(), served={"a": 1.0, "b": 1.0})
    assert [item.id for item in calls.starts or ()][:3] == ["c0", "c9", "c1"]


def test_a_running_prefill_of_the_other_tenant_leaves_room():
    running = prefill("p0", 900, tenant="a", program="p0")
    waiting = [call("c9", 50, tenant="b")]
    calls = choose(100, prefills=[running], waiting=waiting, served={"a": 500.0})
    assert [(item.id, item.tokens) for item in calls.starts or ()] == [("c9", 50)]
    assert [item.tokens for item in calls.prefills] == [50]


def test_short_rests_go_first_whosever_they_are():
    waiting = [*flood()[6:], follower("c10", 10, tenant="a")]
    calls = choose(200, waiting=waiting, served={"a": 900.0})
    assert [(item.id, item.reason) for item in calls.starts or ()][:2] == [
        ("c10", Reason.SWITCH),
        ("c9", Reason.FAIR),
    ]


def test_under_fcfs_there_are_no_turns():
    config = CONFIG.but(rule=Rule.FCFS, two_phase=False)
    calls = choose(64, config, waiting=flood(), served={"a": 900.0})
    assert next(item.id for item in calls.starts or ()) == "c0"
