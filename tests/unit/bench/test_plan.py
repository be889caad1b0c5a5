from pathlib import Path
from typing import Any

import pytest

from grape_lc.bench.options import BenchSettings
from grape_lc.bench.plan import cells_of, engines_open, plan_runs
from grape_lc.bench.probe import Probe
from grape_lc.bench.run_log import RunLog


def settings(**changes: Any) -> BenchSettings:
    return BenchSettings(**{"programs": 2, "repeats": 2, "workloads": "code,search", **changes})


def test_cells_are_workload_by_workload():
    cells = cells_of(settings(rates="0.5x,0.2"))
    assert list(map(str, cells)) == [
        *("code at 0.5x", "code at 0.2/s", "search at 0.5x", "search at 0.2/s")
    ]
    assert list(map(str, cells_of(settings(arrivals="closed:2")))) == ["code", "search"]


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 3),  # the arms; vllm-opt also tells the load
        ({"arms": "grape"}, 2),
        ({"arms": "grape", "rates": "0.2"}, 1),
        ({"arms": "vllm-opt,warm"}, 1),
        ({"arms": "vllm-opt,grape", "sweep": (64, "default")}, 3),
        ({"sweep": (32, 64, 128, "default")}, 4),
        ({"arms": "grape", "rates": "0.2", "kv_share": 0.5}, 4),
    ],
)
def test_engines_that_are_open_are_no_more_than_there_are(changes: dict[str, Any], count: int):
    assert engines_open(settings(**changes)) == count


def test_the_plan_has_probes_then_sweeps_then_comparisons():
    chosen = settings(rates="0.5x,0.2", arms="vllm-opt,grape", sweep=(64,))
    plan = plan_runs(chosen, RunLog(None, {}), {})
    assert plan.taken == 0
    assert [run.kind for run in plan.runs] == [
        *(("code", "saturation"), ("search", "saturation")),
        # Each sweep tries a budget and another order of calls.
        *[("code", "0.5x")] * 2,
        *[("code", "0.2/s")] * 2,
        *[("search", "0.5x")] * 2,
        *[("search", "0.2/s")] * 2,
        *[("code", "0.5x")] * 4,
        *[("code", "0.2/s")] * 4,
        *[("search", "0.5x")] * 4,
        *[("search", "0.2/s")] * 4,
    ]
    assert len({run.engine for run in plan.runs}) == 3


def test_what_was_measured_is_not_planned_again(tmp_path: Path):
    log = RunLog(tmp_path / "runs.jsonl", {})
    log.add_probe("code", None, Probe(10.0, 5.0, (4,), 16))
    plan = plan_runs(settings(), log, {})
    assert plan.taken == 1
    assert [run.kind for run in plan.runs][:2] == [("search", "saturation"), ("code", "0.85x")]


def test_a_share_of_kv_is_another_engine_for_each_workload():
    plan = plan_runs(settings(kv_share=0.5, arms="vllm-opt", rates="0.2"), RunLog(None, {}), {})
    assert [run.kind[1] for run in plan.runs[:2]] == ["saturation"] * 2
    assert len({run.engine for run in plan.runs}) == 2
