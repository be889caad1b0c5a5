from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from grape_lc import cli
from grape_lc.bench import simulate as front
from grape_lc.bench.arms import parse_arm
from grape_lc.bench.metrics import measure
from grape_lc.bench.recorded import run_of
from grape_lc.bench.report import raw_run
from grape_lc.bench.simulation_options import SimulationSettings, read_cost
from grape_lc.bench.simulation_report import gains
from grape_lc.engine.simulator.arrivals import Renewal
from grape_lc.engine.simulator.drafting import Drafting
from grape_lc.engine.simulator.hardware import machine
from grape_lc.engine.simulator.programs import Workload
from grape_lc.engine.simulator.runs import Run
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.engine.simulator.simulation import simulate, stock
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PLAIN, PolicyConfig
from tests.unit.bench.test_simulation_figures import recorded

SMALL = ("--workload", "search", "--programs", "4", "--seeds", "2", "--jobs", "1")


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_comparison_prints_every_figure_and_writes_all_of_it(tmp_path):
    path = tmp_path / "out.json"
    code, out = run(
        "simulate", *SMALL, "--rate", "2", "--sweep", "64,512", "--arms",
        "vllm,vllm-opt,grape,grape:rule=hops", "--json", str(path),
    )  # fmt: skip
    assert code == 0
    for words in (
        "vllm-opt at several token budgets",
        "agentic ITL, p99",
        "against vllm-opt",
        "n = 2",
    ):
        assert words in out
    document = json.loads(path.read_text())
    assert set(document["figures"]) == {"vllm", "vllm-opt", "grape", "grape:rule=hops"}
    assert all(len(seeds) == 2 for seeds in document["figures"].values())
    assert [trial["budget"] for trial in document["sweep"]] == [64, 512]
    assert set(document["gains"]) == {"vllm", "grape", "grape:rule=hops"}
    mean = sum(f["agentic_itl_ms"]["mean"] for f in document["figures"]["grape"]) / 2
    assert document["means"]["grape"]["agentic_itl_ms.mean"] == pytest.approx(mean)
    assert document["rate"] == 2


def test_records_can_be_planned_anew(tmp_path):
    path = tmp_path / "steps.jsonl"
    code, out = run(
        "simulate", *SMALL, "--rate", "2", "--arms", "grape", "--records", str(path)
    )  # fmt: skip
    assert code == 0
    lines = path.read_text().splitlines()
    assert f"{len(lines) - 1} records of grape" in out
    assert run("replay", str(path)) == (0, f"{len(lines) - 1} steps planned anew, 0 differ\n")


def test_a_difference_is_told_and_changes_the_exit_code(tmp_path):
    path = tmp_path / "steps.jsonl"
    run("simulate", *SMALL, "--rate", "2", "--arms", "grape", "--records", str(path))
    lines = path.read_text().splitlines()
    record = json.loads(lines[3])
    record["plan"]["budget"] += 1
    lines[3] = json.dumps(record)
    path.write_text("\n".join(lines))
    code, out = run("replay", str(path))
    assert code == 1
    assert f"step {record['step']} budget: {record['plan']['budget']} -> " in out
    assert "1 differ" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simulate", "--workload", "chess"), "unknown workload 'chess'; known: code"),
        (("simulate", "--hardware", "abacus"), "unknown GPU 'abacus'"),
        (("simulate", "--arms", "sglang"), "no arm 'sglang'"),
        (("simulate", "--copy-rate", "1.5"), "copy_rate"),
        (("simulate", "--arms", "vllm:async_scheduling=true"), "async_scheduling"),
        (("simulate", "--base", "grape", "--arms", "vllm"), "none of the arms vllm"),
        (("simulate", "--cost", "absent.json"), "name kv_blocks too"),
        (("simulate", "--cost", "absent.json", "--kv-blocks", "9"), "cannot read absent.json"),
        (("simulate", "--sweep", "0"), "must be positive"),
        (("simulate", "--device", "tpu"), "device"),
        (("simulate", "--rate", "inf"), "rate"),
        (("simulate", "--cv", "1e-200"), "cv"),
        (("simulate", "--hop-ms", "inf"), "hop_s"),
        (("simulate", "--replicas", "2", "--records", "x"), "--replicas 1"),
        (("simulate", "--json", "x.json", "--records", "x.json"), "the same file"),
        (
            ("simulate", *SMALL, "--rate", "2", "--arms", "vllm", "--kv-blocks", "9"),
            "KV blocks, and there are 9",
        ),
        (("simulate", "--json", "/absent/x.json"), "there is no folder /absent"),
        (("replay", "absent.jsonl"), "cannot read absent.jsonl"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments, words):
    code, out = run(*arguments)
    assert code == 2
    assert words in out
    assert out.startswith("grape: ") or "\ngrape: " in out
    assert "Traceback" not in out


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(plan=[]),
        lambda record: record["snapshot"]["pool"].update(block_size=0),
        lambda record: record["snapshot"].update(max_tokens=float("inf")),
    ],
)
def test_a_step_that_cannot_be_is_no_record(tmp_path, change):
    path = tmp_path / "steps.jsonl"
    run("simulate", *SMALL, "--rate", "2", "--arms", "grape", "--records", str(path))
    lines = path.read_text().splitlines()
    record = json.loads(lines[1])
    change(record)
    path.write_text("\n".join([lines[0], json.dumps(record)]))
    code, out = run("replay", str(path))
    assert code == 2
    assert "after 0 steps" in out or "after 1 steps" in out or "line 2" in out


def test_a_file_of_something_else_is_no_record(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")
    assert run("replay", str(path))[0] == 2
    path.write_bytes(b"\xff\xfe\n")
    assert run("replay", str(path))[0] == 2


def test_recorded_runs_stand_beside_simulated_ones(tmp_path):
    # A simulated run, written down as a bench writes a real one, is simulated again.
    runs: list[tuple[Run, float]] = []
    work = Workload(SHAPES["code"], 3)
    gpu = machine("a100-40gb", "llama3-8b")
    simulate(
        stock(), gpu, work, Renewal(0.5), 4, seed=3, keep=True,
        ended=lambda run, now: runs.append((run, now)),
    )  # fmt: skip
    real = recorded(runs)
    raw = json.loads(json.dumps(raw_run(real)))
    assert raw_run(run_of(raw)) == raw_run(real)
    path, out_file = tmp_path / "bench.json", tmp_path / "out.json"
    path.write_text(json.dumps({"runs": [raw]}))
    code, out = run(
        "simulate", "--from-record", str(path), "--arms", "vllm", "--seeds", "1", "--jobs", "1",
        "--json", str(out_file),
    )  # fmt: skip
    assert code == 0
    assert "as recorded" in out
    ours, theirs = json.loads(out_file.read_text())["figures"]["vllm"][0], measure([real])
    for name in ("agentic_itl_ms", "program_s"):
        mean = theirs[name]["mean"]
        assert ours[name]["mean"] == pytest.approx(mean, rel=0.05), name


def test_the_load_is_relative_to_the_best_budget_at_saturation():
    settings = SimulationSettings(workload="search", rho=0.5, sweep=(64, 512), jobs=1, seeds=1)
    said: list[str] = []
    rate, trials = front.Simulation(settings, said.append)._load(map)
    assert rate == pytest.approx(0.5 * max(trial.saturated_rate for trial in trials))
    assert "0.5 of" in said[0]


def test_the_budget_is_taken_by_the_rule_of_the_bench():
    def trial(budget: int, p99: float, speed: float) -> front.Trial:
        return front.Trial(budget, 1.0, {"agentic_itl_ms": {"p99": p99}, "tokens_per_s": speed})

    slow = trial(64, 10.0, 97.0)  # under 0.98 of the best
    best, large = trial(128, 20.0, 98.5), trial(2048, 90.0, 100.0)
    assert front.choose((slow, best, large)) is best


def test_arms_become_engines_as_they_say():
    settings = SimulationSettings(jobs=1)
    stock = front.arm_config(parse_arm("vllm"), settings)
    assert (stock.engine.max_tokens, stock.engine.by_priority, stock.ahead) == (2048, False, False)
    assert stock.config == PolicyConfig.from_mapping(PLAIN)
    tuned = front.arm_config(front.tuned(256), settings)
    assert (tuned.engine.max_tokens, tuned.engine.by_priority) == (256, True)
    ours = parse_arm("grape:rule=shortest,max_num_seqs=8")
    assert front.arm_config(ours, settings).config.rule == "shortest"
    assert front.arm_config(ours, settings).engine.rows == 8
    on_cpu = front.arm_config(parse_arm("grape"), SimulationSettings(device="cpu", jobs=1))
    assert on_cpu.config == PolicyConfig()
    assert front.arm_config(parse_arm("grape"), settings).config != PolicyConfig()


def test_the_piped_arm_has_open_prompts_and_no_policy():
    piped = front.arm_config(parse_arm("vllm-opt+pipe"), SimulationSettings(jobs=1))
    assert piped.ahead
    assert not piped.engine.by_priority
    assert piped.config.rule == "hops"
    assert (piped.config.chunk, piped.config.lump, piped.config.near_steps) == (128, 128, 0)
    assert piped.config.constraint == "off"
    assert not any((piped.config.governor, piped.config.handover, piped.config.two_phase))


def test_a_drafting_arm_drafts_as_its_engine_would():
    settings = SimulationSettings(jobs=1, copy_rate=0.5)
    for kind in ("vllm", "vllm-opt", "grape"):
        assert front.arm_config(parse_arm(kind), settings).engine.drafting is None
        drafting = front.arm_config(parse_arm(f"{kind}+draft"), settings).engine.drafting
        assert drafting == Drafting(tokens=4, least=2, copy_rate=0.5)


def test_released_tasks_need_no_client():
    settings = SimulationSettings(jobs=1, hop_s=0.020)
    assert front.hop_s(parse_arm("vllm-opt"), settings) == 0.020
    assert front.hop_s(parse_arm("vllm-opt+release"), settings) == 0.001
    fast = SimulationSettings(jobs=1, hop_s=0.0)
    assert front.hop_s(parse_arm("vllm-opt+release"), fast) == 0.0


def test_every_baseline_of_the_table_runs(tmp_path):
    path = tmp_path / "out.json"
    arms = "vllm-opt,vllm-opt+pipe,layout,warm,vllm-opt+release"
    code, _ = run(
        "simulate", *SMALL, "--rate", "2", "--sweep", "512", "--variants", arms,
        "--json", str(path),
    )  # fmt: skip
    assert code == 0
    figures = json.loads(path.read_text())["figures"]

    def mean(arm: str, *names: str) -> float:
        value = figures[arm][0]
        for name in names:
            value = value[name]
        return float(value)

    plain = mean("vllm-opt", "switch_gap_ms", "mean")
    assert mean("vllm-opt+release", "switch_gap_ms", "mean") < plain
    assert mean("vllm-opt+pipe", "ahead_share") > 0.2
    assert mean("vllm-opt", "ahead_share") == 0
    assert mean("warm", "cached_share") > mean("vllm-opt", "cached_share")
    assert mean("layout", "prompt_tokens") > mean("vllm-opt", "prompt_tokens")


def test_a_recorded_run_has_one_order_of_prompts(tmp_path):
    settings = SimulationSettings(jobs=1, record=tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="a recorded run has prompts of one order only"):
        front.arm_config(parse_arm("layout"), settings)


def test_calls_are_ranked_by_stage_first_only():
    with pytest.raises(ConfigError, match="the simulator ranks calls by their stage first"):
        front.arm_config(parse_arm("vllm-opt:order=program"), SimulationSettings(jobs=1))


def test_gains_are_paired_by_seed():
    def figures(itl: float, speed: float) -> front.Figures:
        return {"agentic_itl_ms": {"mean": itl}, "tokens_per_s": speed}

    result = front.Result(
        1.0,
        (),
        (),
        {"vllm": [figures(20, 10), figures(40, 20)], "grape": [figures(10, 15), figures(20, 30)]},
    )
    found = gains(result, "vllm")["grape"]
    itl, speed = found["agentic_itl_ms.mean"], found["tokens_per_s"]
    assert itl is not None
    assert speed is not None
    assert (itl.ratio, itl.low, itl.high) == pytest.approx((2.0, 2.0, 2.0))
    assert speed.ratio == pytest.approx(1.5)
    assert found["ttft_ms.mean"] is None


def test_a_cost_is_read_from_the_file_of_a_profile(tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"coefficients": {"base": 0.01, "hinges": [[64, 1e-4]]}}))
    assert read_cost(path).base == 0.01
    settings = SimulationSettings(cost=path, kv_blocks=50, block_size=32, jobs=1)
    assert settings.machine().blocks == 50
    for text in ("[]", "{}", '{"coefficients": {"base": -1}}', "no"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="holds no fitted cost"):
            read_cost(path)


def test_records_need_one_engine(tmp_path: Path):
    settings = SimulationSettings(replicas=2, jobs=1)
    with pytest.raises(ConfigError, match="they need one replica"):
        front.write_records(settings, 1.0, parse_arm("grape"), tmp_path / "x")


def test_workers_end_with_a_parent_that_is_killed():
    command = [
        sys.executable,
        "-m",
        "grape_lc.cli",
        "simulate",
        "--jobs",
        "2",
        "--programs",
        "5000",
    ]
    parent = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + 60
        while len(workers := parent.children(recursive=True)) < 3 and time.monotonic() < limit:
            time.sleep(0.1)  # two workers, and the process that tracks what they share
        assert len(workers) == 3
    finally:
        parent.kill()
        parent.wait()
    _, alive = psutil.wait_procs(workers, timeout=30)
    for worker in alive:
        worker.kill()
    assert alive == []
