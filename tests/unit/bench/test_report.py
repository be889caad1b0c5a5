import io

import pytest
from rich.console import Console

from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord, measure
from grape_lc.bench.report import (
    Equal,
    compare_arms,
    compare_base,
    compare_runs,
    comparison_table,
    raw_run,
    value_of,
    verdict,
)


def run(arm: str, **programs: list[str]) -> RunRecord:
    return RunRecord(
        arm,
        tuple(
            ProgramRecord(
                name,
                10.0,
                20.0,
                tuple(
                    CallRecord(
                        n, None, 10.5 + n, ((11.0 + n, 1), (11.5 + n, 1)), text, prompt_tokens=10
                    )
                    for n, text in enumerate(texts)
                ),
            )
            for name, texts in programs.items()
        ),
    )


def test_answers_are_compared_call_by_call():
    first = run("vllm", a=["x", "y"], b=["z"])
    assert compare_runs(first, first) == Equal(3, 3)
    assert compare_runs(first, run("grape", b=["z"], a=["x", "other"])) == Equal(3, 2)


def test_missing_answers_count_as_different():
    assert compare_runs(run("vllm", a=["x", "y"]), run("grape", a=["x"])) == Equal(2, 1)
    assert compare_runs(run("vllm", a=["x"]), run("grape", b=["x"])) == Equal(2, 0)


def test_runs_of_the_two_arms_are_compared_in_pairs():
    runs = [
        run("vllm", a=["1"]),
        run("grape", a=["1"]),
        run("grape", a=["2"]),
        run("vllm", a=["2"]),
    ]
    assert compare_arms(runs) == Equal(2, 2)
    assert compare_base(runs) == Equal(1, 0)
    assert compare_arms(runs[:3]) == Equal(2, 1)  # the one vllm run serves both
    assert compare_arms(runs[1:3]) == Equal(0, 0)


@pytest.mark.parametrize(
    ("base", "ours", "lower", "said"),
    [
        (30.0, 20.0, True, "1.50x better"),
        (20.0, 30.0, True, "1.50x worse"),
        (20.0, 30.0, False, "1.50x better"),
        (30.0, 20.0, False, "1.50x worse"),
        (100.0, 100.2, True, "same"),
        (0.0, 1.0, True, "-"),
        (None, 1.0, True, "-"),
        (1.0, None, False, "-"),
    ],
)
def test_the_verdict_names_the_direction(base, ours, lower, said):
    assert verdict(base, ours, lower_is_better=lower) == said


def test_the_table_shows_every_figure_of_both_arms():
    slow = run("vllm", a=["x", "y"])
    metrics = {"vllm": measure([slow]), "grape": measure([run("grape", a=["x", "y"])])}
    metrics["grape"]["ttft_ms"] = {"mean": 2000.0, "p95": None}
    out = io.StringIO()
    Console(file=out, width=100).print(comparison_table(metrics))
    text = out.getvalue()
    for title in ("agentic ITL, p99", "switch gap, max", "TTFT, p95", "makespan", "per second"):
        assert title in text
    (ttft,) = [line for line in text.splitlines() if "TTFT, mean" in line]
    assert "1000.0" in ttft
    assert "2000.0" in ttft
    assert "2.00x worse" in ttft


def test_a_figure_is_found_by_its_path():
    metrics = measure([run("vllm", a=["x"])])
    assert value_of(metrics, ("makespan_s",)) == 10.0
    assert value_of(metrics, ("ttft_ms", "mean")) == 1000.0
    assert value_of(metrics, ("switch_gap_ms", "mean")) is None


def test_raw_times_count_from_the_first_arrival():
    raw = raw_run(run("vllm", a=["x"]))
    assert raw["arm"] == "vllm"
    (program,) = raw["programs"]
    assert (program["arrived"], program["finished"]) == (0.0, 10.0)
    (call,) = program["calls"]
    assert call["submitted"] == 0.5
    assert call["tokens"] == [[1.0, 1], [1.5, 1]]
    assert call["text"] == "x"
    assert call["prompt_tokens"] == 10
