from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grape_lc import cli
from grape_lc.bench import paper_jobs
from grape_lc.bench.arms import TUNED
from grape_lc.bench.paper import Table
from grape_lc.bench.paper_error import Cost, simulator_errors
from grape_lc.bench.paper_options import PaperSettings
from grape_lc.bench.paper_report import show, to_document
from grape_lc.bench.report import raw_run
from grape_lc.engine.simulator.arrivals import Renewal
from grape_lc.engine.simulator.hardware import machine
from grape_lc.engine.simulator.programs import Workload
from grape_lc.engine.simulator.runs import Run
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.engine.simulator.simulation import simulate, stock
from grape_lc.errors import ConfigError
from tests.unit.bench.test_simulation_figures import recorded

GPU = machine("a100-40gb", "llama3-8b")


def a_run(arm, budget=2048, *, deepest=False, slower=1.0):
    """A simulated run, written down as a bench writes a real one; every time ``slower``."""
    ended: list[tuple[Run, float]] = []
    simulate(
        stock(max_tokens=budget, deepest_first=deepest), GPU, Workload(SHAPES["code"], 3),
        Renewal(0.5), 3, seed=3, keep=True, ended=lambda run, now: ended.append((run, now)),
    )  # fmt: skip
    raw = {**raw_run(recorded(ended)), "arm": arm, "workload": "code", "rate": 0.5}
    for program in raw["programs"]:
        for call in program["calls"]:
            call["tokens"] = [[at * slower, count] for at, count in call["tokens"]]
        program["finished"] *= slower
    return raw


@pytest.fixture
def cost(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"coefficients": GPU.cost.to_mapping()}))
    return Cost(path, GPU.blocks, GPU.block_size)


def written(tmp_path, runs, meta=None):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"meta": meta or {}, "runs": runs}))
    return path


def of(errors, arm, metric, baseline=None):
    (found,) = [e for e in errors.found if (e.arm, e.metric, e.baseline) == (arm, metric, baseline)]
    return found


def test_a_run_of_the_simulator_itself_has_hardly_an_error(tmp_path, cost):
    meta = {
        "cells": [
            {"workload": "code", "rate": 0.5, "arms": {TUNED: {"max_num_batched_tokens": 256}}}
        ]
    }
    runs = [a_run("vllm"), a_run(TUNED, 256, deepest=True), {"arm": "vllm", "error": "it failed"}]
    found = simulator_errors(written(tmp_path, runs, meta), cost)
    for arm in ("vllm", TUNED):
        assert abs(of(found, arm, "agentic_itl_ms.mean").error) < 0.05
        assert abs(of(found, arm, "program_s.p95").error) < 0.05
    assert abs(of(found, "vllm", "agentic_itl_ms.mean", TUNED).error) < 0.05
    assert not found.left_out


def test_a_slower_machine_than_the_cost_says_is_told_as_an_error(tmp_path, cost):
    found = simulator_errors(written(tmp_path, [a_run("vllm", slower=2.0)]), cost)
    error = of(found, "vllm", "agentic_itl_ms.mean")
    assert error.error == pytest.approx(-0.5, abs=0.05)
    assert error.to_record()["error"] == error.error
    settings = PaperSettings(seeds=6)
    console = Console(width=160, record=True)
    table = Table({}, {}, ())
    show(settings, table, found, console)
    out = console.export_text()
    assert "error against a real engine" in out
    assert f"{error.error:+.1%}" in out
    assert to_document(settings, table, found)["errors"]["rows"]


def test_the_means_of_repeats_are_compared(tmp_path, cost):
    path = written(tmp_path, [a_run("vllm"), a_run("vllm", slower=3.0)])
    error = of(simulator_errors(path, cost), "vllm", "agentic_itl_ms.mean")
    assert error.runs == 2
    assert error.error == pytest.approx(-0.5, abs=0.05)


def test_blocks_are_those_of_the_record_unless_named(tmp_path, cost):
    unknown = cost._replace(kv_blocks=None)
    path = written(tmp_path, [a_run("vllm")])
    found = simulator_errors(path, unknown)
    assert "--kv-blocks" in found.left_out["vllm"]
    assert not found.found
    path = written(tmp_path, [a_run("vllm")], {"kv_blocks": GPU.blocks})
    assert of(simulator_errors(path, unknown), "vllm", "tokens_per_s")


def test_drafting_is_left_out_and_told(tmp_path, cost):
    found = simulator_errors(written(tmp_path, [a_run(f"{TUNED}+draft")]), cost)
    assert "copy" in found.left_out[f"{TUNED}+draft"]


def test_a_file_without_runs_is_refused(tmp_path, cost):
    with pytest.raises(ConfigError, match="no raw runs"):
        simulator_errors(written(tmp_path, []), cost)


def test_the_command_prints_the_error_beside_the_table(tmp_path, cost, monkeypatch):
    tiny = PaperSettings(
        programs=2, seeds=2, loads=(0.7,), sweep=(512,), settings=(0,), workloads=("search",),
        ablated=(), copy_rates=(),
    )  # fmt: skip
    monkeypatch.setattr(PaperSettings, "quick", classmethod(lambda cls: tiny))
    monkeypatch.setattr(paper_jobs, "SATURATING", 8)
    out = tmp_path / "paper.json"
    found = CliRunner().invoke(
        cli.app,
        [
            "paper", "--quick", "--programs", "3", "--jobs", "1", "--json", str(out),
            "--resume", str(tmp_path / "kept.jsonl"), "--record",
            str(written(tmp_path, [a_run("vllm")])), "--cost", str(cost.file),
            "--kv-blocks", str(cost.kv_blocks), "--block-size", str(cost.block_size),
        ],
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "error against a real engine" in found.output
    document = json.loads(out.read_text())
    assert document["meta"]["settings"]["programs"] == 3
    assert document["errors"]["rows"]
    assert len(document["marks"]) > 10
    assert (tmp_path / "kept.jsonl").exists()
