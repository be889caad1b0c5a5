"""Records of steps of vLLM's scheduler: complete, in order, and planned anew the same way."""

from __future__ import annotations

import pytest

from grape_lc.engine.vllm_steplog import load_of
from grape_lc.scheduler import record
from grape_lc.scheduler.settings import PolicyConfig
from tests.contract.simulation import Simulation
from tests.contract.test_steps import OTHER, PROMPT, run_until_decoding

COST = {"base": 1e-3, "per_row": 1e-5, "per_token": 1e-4}


def workload(s):
    s.open("o", PROMPT[:120], program="p", task="b", hint={"flow": "f", "source": "a"})
    s.call("up", [7] * 60, n=30, program="p", task="a", feeds=True, hint={"flow": "f", "depth": 0})
    run_until_decoding(s, "up")
    s.plain("big", OTHER[:250], n=20)
    while "up" not in s.finished:
        s.step()
    s.append("o", PROMPT[120:140], final=True)
    s.call("down", PROMPT[:150], adopt="o", program="p", task="b", n=20)
    s.idle()


def test_every_step_is_recorded_and_planned_anew_the_same_way(simulate):
    s = simulate(blocks=40, extra={"grape_trace": 10_000, "grape_cost": COST})
    ran = []
    schedule = s.scheduler.schedule

    def watched(*args):
        planned = schedule(*args)
        ran.append(dict(planned.num_scheduled_tokens))
        return planned

    s.scheduler.schedule = watched
    s.work_s = 0.002
    workload(s)
    config, found = record.read(s.scheduler.grape_records())
    records = list(found)
    assert config == s.scheduler._config
    assert [r.ran for r in records] == ran
    assert [r.step for r in records] == list(range(len(ran)))
    for r in records:
        assert record.differences(r, config) == [], f"step {r.step}"
        if r.ran:
            assert r.load is not None
            assert r.load.rows == len(r.ran)
            assert r.load.tokens == sum(r.ran.values())
            assert r.seconds is not None
            assert r.seconds > 0.0015
        else:
            assert r.load is None


def test_what_the_engine_refused_is_told(simulate):
    s = simulate(extra={"grape_trace": 100})
    stock = s.scheduler._stock_allocate
    s.scheduler._stock_allocate = lambda request, *args, **kwargs: (
        None if request.request_id == "o" else stock(request, *args, **kwargs)
    )
    s.open("o", PROMPT[:60])
    s.step()
    _, records = record.read(s.scheduler.grape_records())
    assert [r.refused for r in records] == [{"o": "the engine did not run it"}]
    assert s.scheduler.grape_stats()["not_run_engine"] == 1
    s.scheduler._stock_allocate = stock


def test_only_the_latest_are_kept(simulate):
    s = simulate(extra={"grape_trace": 5})
    workload(s)
    _, records = record.read(s.scheduler.grape_records())
    steps = [r.step for r in records]
    assert len(steps) == 5
    assert steps == list(range(steps[0], steps[0] + 5))


def test_records_in_a_file(model_config_dir, kind, tmp_path):
    path = tmp_path / "deep" / "steps.jsonl"
    s = Simulation(model_config_dir, kind, extra={"grape_trace": str(path)})
    workload(s)
    assert s.scheduler.grape_records() == [record.header(s.scheduler._config)]
    steps = s.scheduler.grape_counters["steps"] + s.scheduler.grape_counters["held"]
    s.scheduler.shutdown()
    config, records = record.read(path.read_text().splitlines())
    assert config == PolicyConfig.from_mapping({"validate": True, "hold_s": config.hold_s})
    assert [r.step for r in records] == list(range(steps))


def test_off_by_default(simulate):
    s = simulate()
    workload(s)
    assert s.scheduler.grape_records() == []


@pytest.mark.parametrize("keep", [0, 7])
def test_measured_steps(simulate, keep):
    s = simulate(extra={"grape_log_steps": keep})
    s.work_s = 0.002
    workload(s)
    rows = s.scheduler.grape_steps()
    assert len(rows) == keep
    for load_rows, tokens, kv_tokens, attention, seconds in rows:
        assert 1 <= load_rows <= tokens <= kv_tokens
        assert attention >= 0
        assert 0.0015 < seconds < 0.01
    assert s.scheduler.grape_steps() == []


def test_load_of_a_step_is_that_of_its_rows(simulate):
    """Summed up from what the policy saw, or counted row by row: the same."""
    s = simulate(blocks=40)
    begin = s.scheduler._begin
    compared = []

    def watched(output, new):
        load = begin(output, new)
        if load is not None:
            assert load == pytest.approx(load_of(output, s.scheduler.requests))
            compared.append(load)
        return load

    s.scheduler._begin = watched
    workload(s)
    assert len({load.rows for load in compared}) > 1
