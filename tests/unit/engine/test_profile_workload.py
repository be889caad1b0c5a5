"""The workload: it fits the engine and the time, and holds every kind of step."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.profile_workload import Limits, Speed, Workload
from grape_lc.errors import ConfigError

SMALL = Limits(rows=128, length=8192, step_tokens=2048, block=32, blocks=728)
SLOW, FAST = Speed(0.1, 0.004), Speed(0.01, 2e-5)


def planned(limits=SMALL, seconds=150.0, speed=SLOW, seed=0):
    return Workload.plan(limits, seconds, speed, random.Random(seed))


@given(
    st.builds(
        Limits,
        rows=st.integers(1, 300),
        length=st.integers(1, 40_000),
        step_tokens=st.integers(1, 9000),
        block=st.sampled_from([1, 16, 32, 128]),
        blocks=st.integers(1, 20_000),
    ),
    st.floats(1.0, 1000.0),
    st.builds(Speed, st.floats(1e-3, 1.0), st.floats(1e-6, 0.1)),
    st.integers(0, 100),
)
def test_it_fits_the_engine(limits, seconds, speed, seed):
    small = limits.length < 4 * limits.block or limits.blocks < 2
    if small or 0.2 * seconds < limits.block * speed.token_s:
        with pytest.raises(ConfigError, match="too small" if small else "not enough"):
            planned(limits, seconds, speed, seed)
        return
    plan = planned(limits, seconds, speed, seed)
    assert all(length % limits.block == 0 for length in plan.bases)
    assert sum(plan.bases) <= 0.75 * limits.blocks * limits.block
    assert 1 <= len(plan.bases) <= limits.rows
    for task in plan.tasks:
        assert task.decodes <= len(plan.bases)
        assert task.decodes + bool(task.chunks) <= limits.rows
        assert task.decodes or task.chunks
        assert task.context <= max(plan.bases)
        for tokens, context in task.chunks:
            assert 1 <= tokens <= limits.step_tokens
            assert context % limits.block == 0
            assert context <= max(plan.bases)
            assert tokens + context < limits.length


def test_where_time_allows_every_kind_of_step_is_there():
    tasks = planned(dataclasses.replace(SMALL, blocks=20_000), speed=FAST).tasks
    decodes = {task.decodes for task in tasks if not task.chunks}
    chunks = {task.chunks[0][0] for task in tasks if not task.decodes and not task.together}
    beside = {task.decodes for task in tasks if task.decodes and task.chunks}
    assert {1, 2, 4, 8, 16, 32, 64} <= decodes
    assert {1, 2, 8, 64, 256, 512, 1024} <= chunks
    assert {1, 3, 6, 24, 48} <= beside
    assert {task.together for task in tasks} == {True, False}
    assert {context for task in tasks for _, context in task.chunks} == {0, 32, 256, 1024}


@pytest.mark.parametrize("seed", range(20))
def test_on_a_slow_machine_a_part_of_it_is_there(seed):
    tasks = planned(seed=seed).tasks
    assert len(tasks) >= 24
    assert any(not task.chunks for task in tasks)
    assert any(task.decodes and task.chunks for task in tasks)
    assert any(not task.decodes for task in tasks)


@pytest.mark.parametrize("seconds", [60.0, 150.0, 300.0])
@pytest.mark.parametrize("speed", [SLOW, Speed(0.02, 6e-4), FAST])
def test_three_rounds_fit_the_time(seconds, speed):
    plan = planned(seconds=seconds, speed=speed)
    bases = speed.token_s * sum(plan.bases)
    assert bases <= 0.3 * seconds
    least = len(plan.tasks) == 24
    assert least or bases + 3 * sum(t.seconds(speed) for t in plan.tasks) <= 1.1 * seconds


def test_rounds_run_the_same_steps_in_another_order():
    plan = planned()
    draw = random.Random(5)
    first, second = plan.round(draw), plan.round(draw)
    assert first != second
    assert set(first) == set(second) == set(plan.tasks)
    assert plan.round(random.Random(5)) == first
    assert planned() == plan


def test_a_faster_engine_is_tried_with_more():
    slow, fast = planned(), planned(speed=FAST)
    assert max(n for t in fast.tasks for n, _ in t.chunks) > max(
        n for t in slow.tasks for n, _ in t.chunks
    )
    assert len(fast.tasks) > len(slow.tasks)
    assert len(fast.bases) > len(slow.bases)


@pytest.mark.parametrize("field", ["rows", "length", "step_tokens", "block", "blocks"])
def test_limits_are_positive(field):
    values = {"rows": 1, "length": 1, "step_tokens": 1, "block": 1, "blocks": 1, field: 0}
    with pytest.raises(ConfigError, match=f"{field}=0"):
        Limits(**values)
