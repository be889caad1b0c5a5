"""The step log: when a step begins and ends, one at a time and overlapping."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.vllm_steplog import StepLog, load_of
from grape_lc.scheduler.cost import StepLoad

A, B, C = StepLoad(1, 5, 5, 14.0), StepLoad(2, 2, 30, 0.0), StepLoad(3, 3, 40, 0.0)


def test_one_at_a_time_a_step_lasts_from_schedule_to_update():
    log = StepLog(10)
    log.begin(A, 1.0)
    assert log.end(1.25) == (A, 0.25)
    log.begin(B, 2.0)
    assert log.end(2.5) == (B, 0.5), "the pause between them is no step's"


def test_overlapping_steps_last_from_completion_to_completion():
    log = StepLog(10)
    log.begin(A, 1.0)
    log.begin(B, 1.125)
    assert log.end(1.25) == (A, 0.25)
    log.begin(C, 1.3125)
    assert log.end(1.5) == (B, 0.25)
    assert log.end(2.0) == (C, 0.5)


def test_an_end_without_a_beginning_is_no_step():
    log = StepLog(10)
    assert log.end(1.0) is None
    log.begin(A, 2.0)
    assert log.end(2.5) == (A, 0.5)


def test_draining_gives_the_latest_once():
    log = StepLog(2)
    for second, load in enumerate((A, B, C)):
        log.begin(load, float(second))
        log.end(second + 0.5)
    assert log.drain() == [[2, 2, 30, 0.0, 0.5], [3, 3, 40, 0.0, 0.5]]
    assert log.drain() == []


def test_nothing_is_kept_unless_asked():
    log = StepLog()
    log.begin(A, 1.0)
    assert log.end(1.5) == (A, 0.5), "measured all the same"
    assert log.drain() == []


@given(st.lists(st.tuples(st.booleans(), st.floats(0.001, 1.0)), max_size=60))
def test_times_add_up_to_no_more_than_the_clock(events):
    log, now, total = StepLog(100), 0.0, 0.0
    for begins, pause in events:
        now += pause
        if begins:
            log.begin(A, now)
        else:
            step = log.end(now)
            if step is not None:
                assert step[1] >= 0.0
                total += step[1]
    assert total <= now + 1e-9


def test_a_load_is_read_from_what_vllm_scheduled():
    output = SimpleNamespace(num_scheduled_tokens={"decode": 1, "chunk": 4})
    requests = {
        "decode": SimpleNamespace(num_computed_tokens=100),
        "chunk": SimpleNamespace(num_computed_tokens=14),
        "waits": SimpleNamespace(num_computed_tokens=0),
    }
    assert load_of(output, requests) == StepLoad.of([(1, 99), (4, 10)])
    with pytest.raises(KeyError):
        load_of(output, {})
