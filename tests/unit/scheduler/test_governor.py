"""Whether early work pays, row by row of the governor's table."""

from __future__ import annotations

import pytest
from hypothesis import given

from grape_lc.scheduler.governor import judge
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import Level
from tests.unit.scheduler.factories import configs, make_pool, make_snapshot, snapshots, steady

CONFIG = PolicyConfig(least_hits=0.5, most_misses=8, crowd=4.0, wide_margin=0.25)


def test_nothing_speaks_against_it():
    assert judge(make_snapshot(), CONFIG) == (Level.FULL, "")


@pytest.mark.parametrize(
    ("fields", "level", "reason"),
    [
        ({"thrashing": True}, Level.OFF, "a running call was preempted"),
        ({"pressed": True}, Level.OFF, "an open prompt gave up its KV"),
        ({"misses": 8}, Level.OFF, "8 open prompts in a row were of no use"),
        ({"hit_rate": 0.49}, Level.NEAR, "49% of early tokens were adopted"),
        ({"queue": 4.1}, Level.NEAR, "4.1 calls wait"),
        ({"pool": make_pool(free=249)}, Level.NEAR, "KV is expected to be short"),
        ({"pool": make_pool(growth=600, waiting=151)}, Level.NEAR, "KV is expected to be short"),
    ],
)
def test_table(fields, level, reason):
    assert judge(make_snapshot(**fields), CONFIG) == (level, reason)
    assert judge(make_snapshot(**fields), CONFIG.but(governor=False)) == (Level.FULL, "")


@pytest.mark.parametrize(
    "fields",
    [
        {"misses": 7},
        {"hit_rate": 0.5},
        {"queue": 4.0},
        {"pool": make_pool(free=250)},
        {"pool": make_pool(growth=600, waiting=150)},
    ],
)
def test_just_inside(fields):
    assert judge(make_snapshot(**fields), CONFIG).count(Level.FULL) == 1


def test_misses_do_not_count_if_no_number_is_too_many():
    assert judge(make_snapshot(misses=99), CONFIG.but(most_misses=0))[0] is Level.FULL


def test_the_hardest_rule_speaks():
    everything = make_snapshot(
        thrashing=True, pressed=True, misses=9, hit_rate=0.0, queue=9.0, pool=make_pool(free=0)
    )
    assert judge(everything, CONFIG) == (Level.OFF, "a running call was preempted")
    last = make_snapshot(queue=9.0, hit_rate=0.0, pool=make_pool(free=0))
    assert judge(last, CONFIG) == (Level.NEAR, "0% of early tokens were adopted")


@steady
@given(snapshots(), configs())
def test_every_level_but_the_full_one_has_a_reason(snapshot, config):
    level, reason = judge(snapshot, config)
    assert (level is Level.FULL) == (reason == "")
