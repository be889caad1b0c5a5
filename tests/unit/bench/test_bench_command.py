import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from grape_lc.bench import results
from grape_lc.bench.command import Bench
from grape_lc.bench.document import write
from grape_lc.bench.matrix import BenchResult, CellResult
from grape_lc.bench.metrics import measure
from grape_lc.bench.options import BenchSettings, parse_sweep
from grape_lc.bench.recorded import recorded_metrics
from grape_lc.bench.sweep import choose
from grape_lc.errors import ConfigError, EngineDiedError
from tests.unit.bench.fakes import TestBed, console, printed, requests


def settings(**changes: Any) -> BenchSettings:
    small = {"workloads": "code", "programs": 2, "rates": "50", "repeats": 2, "max_tokens": 16}
    return BenchSettings(**{**small, **changes})


def matrix(chosen: BenchSettings, bed: TestBed | None = None) -> tuple[BenchResult, str, TestBed]:
    to, bed = console(), bed or TestBed()
    got = Bench(chosen, to, bed.engine_of, "cpu").run()
    results.show(chosen, got, to)
    return got, printed(to), bed


def bench(chosen: BenchSettings, bed: TestBed | None = None) -> tuple[CellResult, str, TestBed]:
    """Of a single cell."""
    got, text, bed = matrix(chosen, bed)
    (cell,) = got.cells
    return cell, text, bed


def test_figures_ratios_and_answers_of_all_arms_are_shown():
    got, text, _ = bench(settings())
    assert got.rate == 50.0
    assert "vllm against vllm-opt: better in" in text
    assert "grape against vllm-opt: better in" in text
    assert "n = 2: with fewer than 6 repeats the intervals are too narrow" in text
    assert "20 of 20" in text
    for figure in ("agentic ITL, p99", "switch gap, mean", "TTFT, mean", "preemptions"):
        assert figure in text


def test_the_base_is_the_one_asked_for():
    got, text, _ = bench(settings(base="vllm", arms="vllm,grape"))
    assert set(got.gains) == {"grape"}
    assert "against vllm: above 1 is better" in text


def test_an_arm_alone_has_figures_and_no_ratios():
    got, text, _ = bench(settings(arms="grape"))
    assert got.gains == {}
    assert "against" not in text


def test_gains_turn_with_what_is_better():
    got, _, _ = bench(settings(arms="vllm,vllm-opt", base="vllm"))
    by_name = {gain.key: gain.ratio for gain in got.gains["vllm-opt"]}
    slower, faster = by_name["makespan_s"], by_name["tokens_per_s"]
    assert slower is not None
    assert faster is not None
    # All answers are the same, so tokens per second rise just as the makespan falls.
    assert slower.ratio == pytest.approx(faster.ratio, rel=1e-6)
    records = got.comparison.records
    spans = [measure([records(arm)[1]])["makespan_s"] for arm in ("vllm", "vllm-opt")]
    others = [measure([records(arm)[2]])["makespan_s"] for arm in ("vllm", "vllm-opt")]
    product = (spans[0] / spans[1]) * (others[0] / others[1])  # type: ignore[operator]
    assert slower.ratio == pytest.approx(product**0.5)


def test_the_automatic_rate_is_a_share_of_what_the_tuned_arm_carries():
    got, text, bed = bench(settings(rates="0.5x", arms="vllm-opt,grape", repeats=1))
    (probe,) = got.footing.probes
    assert got.footing.saturated_rate == probe.saturated_rate
    assert got.rate == pytest.approx(0.5 * probe.saturated_rate)
    assert got.load == 0.5
    assert "0.5 of what vllm-opt carries" in " ".join(text.split())
    assert "code: vllm-opt saturates at" in text
    assert bed.log == [
        *("open vllm-opt", "run vllm-opt", "open grape", "run vllm-opt", "run grape"),
        *("close grape", "close vllm-opt"),
    ]


def test_a_run_of_all_programs_that_fails_is_made_once_more():
    bed = TestBed()
    bed.dies = {("vllm-opt", 1)}
    got, text, _ = bench(settings(rates="0.5x", arms="grape", repeats=1), bed)
    assert got.footing.saturated_rate is not None
    assert "code: EngineDiedError: the engine of vllm-opt is gone [dead]; once more" in text
    assert bed.log[:4] == ["open vllm-opt", "run vllm-opt", "close vllm-opt", "open vllm-opt"]
    bed = TestBed()
    bed.dies = {("vllm-opt", 1), ("vllm-opt", 2)}
    with pytest.raises(EngineDiedError):
        bench(settings(rates="0.5x", arms="grape", repeats=1), bed)
    assert bed.log[-1] == "close vllm-opt"


def test_cells_at_one_rate_each_have_a_sweep_of_their_own():
    chosen = settings(rates="20,50", sweep=(64,), arms="vllm-opt,grape", repeats=1)
    got, text, bed = matrix(chosen)
    assert [each.choice is not None for each in got.cells] == [True, True]
    assert "code at 20/s: vllm-opt takes max_num_batched_tokens = 64" in text
    assert "code at 50/s: vllm-opt at each token budget" in text
    # Two sweeps and two comparisons on the same engine, whatever the arm is called.
    assert sum(line.startswith("open") for line in bed.log) == 2
    summary = text[text.rindex("against vllm-opt, over repeats") :]
    assert "code at 20/s" in summary
    assert "code at 50/s" in summary


def test_kv_blocks_are_told_to_every_engine():
    _, _, bed = bench(settings(kv_blocks=40, repeats=1))
    for engine in bed.engines:
        assert engine.shared["num_gpu_blocks_override"] == 40
        assert engine.shared["max_model_len"] == -1
    _, _, bed = bench(settings(repeats=1))
    assert all("num_gpu_blocks_override" not in engine.shared for engine in bed.engines)


def test_a_share_of_kv_is_measured_before_the_rate_is():
    got, text, bed = bench(settings(kv_share=0.5, rates=None, arms="grape", repeats=1))
    sizes, speed = got.footing.probes
    blocks = got.footing.kv_blocks
    assert blocks == sizes.kv_blocks(0.5)
    assert [engine.shared.get("num_gpu_blocks_override") for engine in bed.engines] == [
        None,
        blocks,
        blocks,
    ]
    assert got.rate == pytest.approx(0.85 * speed.saturated_rate)
    assert f"code: KV of {blocks} blocks of 32 tokens, 0.5 of 2 programs" in text


def test_the_sweep_chooses_the_budget_of_the_tuned_arm():
    got, text, bed = bench(settings(sweep=(64, "default"), arms="vllm-opt,grape", repeats=1))
    *budgets, other = got.trials
    assert [trial.budget for trial in budgets] == [64, None]
    assert got.choice is not None
    # The other order was tried at the best of the budgets.
    assert other.order == "program"
    assert other.budget == choose(budgets).best.budget
    chosen = next(arm for arm in got.arms if arm.name == "vllm-opt")
    assert chosen.tuning == got.choice.tuning
    # The engine of the sweep that was chosen serves the comparison as well.
    assert [line for line in bed.log if line.startswith("open")] == [
        *("open vllm-opt:max_num_batched_tokens=64", "open vllm-opt", "open grape")
    ]
    assert "vllm-opt at each token budget" in text
    assert "vllm-opt takes max_num_batched_tokens = " in text


def test_what_failed_is_said_at_the_end():
    bed = TestBed()
    bed.dies = {("grape", 2)}
    got, text, _ = bench(settings(), bed)
    assert len(got.comparison.failures) == 1
    last = text.splitlines()[-1]
    assert last.startswith(
        "code at 50/s, repeat 2, grape failed and is in no figure: EngineDiedError"
    )
    ratio = got.gains["grape"][0].ratio
    assert ratio is not None
    assert ratio.pairs == 1


def test_the_files_hold_everything(tmp_path: Path):
    chosen = settings(sweep=(64,), kv_share=0.5, arms="vllm,vllm-opt,grape:chunk=4")
    bed = TestBed()
    bed.dies = {("vllm", 1)}
    result, _, _ = matrix(chosen, bed)
    (got,) = result.cells
    numbers, timeline = tmp_path / "numbers.json", tmp_path / "trace.json"
    write(chosen, result, "cpu", json_file=numbers, trace_file=timeline)
    document = json.loads(numbers.read_text())
    assert set(document) == {"meta", "metrics", "runs", "pairs", "equal"}
    assert [entry["variant"] for entry in document["metrics"]] == list(got.comparison.arms)
    for entry in document["metrics"]:
        assert (entry["workload"], entry["rate"], entry["load"]) == ("code", 50.0, None)
        assert entry["metrics"]["tokens_per_s"] > 0
    meta = document["meta"]
    assert meta["base"] == "vllm-opt"
    assert meta["settings"]["programs"] == 2
    assert meta["environment"]["cores"] >= 1
    (cell,) = meta["cells"]
    assert (cell["workload"], cell["rate"], cell["load"]) == ("code", 50.0, None)
    assert cell["saturated_rate"] is None
    assert cell["arms"]["grape:chunk=4"]["grape"] == {"chunk": 4}
    assert cell["arms"]["vllm-opt"]["max_num_batched_tokens"] == 64
    assert cell["kv_blocks"] == got.footing.kv_blocks
    assert [probe["block_size"] for probe in cell["probes"]] == [32]
    assert cell["sweep"]["best"] == 64
    assert cell["sweep"]["trials"][0]["metrics"]["tokens_per_s"] > 0
    assert cell["engines"]["vllm"]["block_size"] == 32
    pairs = {(p["variant"], p["metric"], p["over"]): p for p in document["pairs"]}
    pair = pairs["grape:chunk=4", "agentic_itl_ms.p99", "repeats"]
    assert (pair["workload"], pair["rate"], pair["baseline"]) == ("code", 50.0, "vllm-opt")
    ratio = next(g.ratio for g in got.gains["grape:chunk=4"] if g.key == "agentic_itl_ms.p99")
    assert ratio is not None
    assert (pair["ratio"], pair["ci95"], pair["n"]) == (ratio.ratio, [ratio.low, ratio.high], 2)
    assert pairs["grape:chunk=4", "agentic_itl_ms.p99", "programs"]["n"] == 4
    assert pairs["vllm", "makespan_s", "repeats"]["ci95"] is None  # one pair has no interval
    assert ("vllm", "makespan_s", "programs") not in pairs
    # vllm is compared with itself by nobody; its failed repeat is missing in all others.
    assert (document["equal"]["compared"], document["equal"]["identical"]) == (20, 20)
    assert document["equal"]["variants"]["vllm-opt"] == {"compared": 10, "identical": 10}
    assert len(document["runs"]) == 6
    failed = [run for run in document["runs"] if run["error"]]
    assert [(run["arm"], run["repeat"]) for run in failed] == [("vllm", 1)]
    assert failed[0]["metrics"] is None
    assert failed[0]["offered"] == 2
    whole = next(run for run in document["runs"] if run["variant"] == "grape:chunk=4")
    assert (whole["workload"], whole["rate"]) == ("code", 50.0)
    assert whole["metrics"]["tokens_per_s"] > 0
    assert recorded_metrics(numbers, document["runs"].index(whole))[0] == "grape:chunk=4"
    assert len(whole["programs"]) == 2
    assert whole["counters"]["preemptions"] == 2
    assert json.loads(timeline.read_text())["traceEvents"]


def test_a_file_without_a_place_is_an_error(tmp_path: Path):
    got, _, _ = matrix(settings(arms="vllm", repeats=1))
    with pytest.raises(ConfigError, match="cannot write"):
        write(settings(), got, "cpu", json_file=tmp_path / "no" / "file.json")


def test_too_few_inputs_are_found_before_an_engine_starts():
    bed = TestBed()
    with pytest.raises(ConfigError, match="1000 programs asked for"):
        bench(settings(programs=1000), bed)
    assert bed.log == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rates": "0"}, "both are above zero"),
        ({"rates": ""}, "no rate in ''"),
        ({"workloads": "chess"}, "no workflow 'chess'; there are: code"),
        ({"lengths": "long"}, "'eos' or 'fixed'"),
        ({"kv_blocks": 40, "kv_share": 0.5}, "exclude each other"),
        ({"sweep": (64, 64)}, "twice in the sweep"),
        ({"sweep": (0,)}, "must be positive"),
        ({"sweep": (64,), "arms": "vllm,grape"}, "a sweep tunes vllm-opt"),
        ({"base": "parrot"}, "base 'parrot' is none of the arms"),
        ({"arms": "parrot"}, "no arm 'parrot'"),
        ({"repeats": 0}, "repeats"),
        ({"arrivals": "weekly"}, "no arrivals 'weekly'; there are: poisson"),
        ({"arrivals": "closed:4"}, "a closed loop has no rate"),
        ({"tenants": 0}, "tenants"),
        ({"slo": "tpot:9"}, "'tpot' is unknown or stands twice"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], said: str):
    with pytest.raises(ValidationError) as refused:
        settings(**changes)
    assert said in str(refused.value)


def test_budgets_are_read():
    assert parse_sweep("64, 128,default,") == (64, 128, "default")
    assert parse_sweep("") == ()
    with pytest.raises(ConfigError, match="'many' is no token budget"):
        parse_sweep("64,many")


def test_engine_arguments_fit_the_device_and_the_number_of_engines():
    args = settings().engine_args("cpu", None, 3)
    assert args["dtype"] == "float32"
    assert "gpu_memory_utilization" not in args
    shares = [settings().engine_args("gpu", None, n)["gpu_memory_utilization"] for n in (1, 2, 4)]
    assert shares[0] < 1
    assert shares[1] * 2 < 1
    assert shares[2] * 4 < 1
    assert settings(dtype="bfloat16").engine_args("cpu", None, 1)["dtype"] == "bfloat16"


def test_programs_that_meet_the_targets_are_counted_and_lost_ones_are_misses():
    bed = TestBed()
    bed.dies = {("grape", 2)}
    chosen = settings(slo="ttft:60000,tbt:60000,program:60000", arms="vllm,grape")
    got, text, _ = bench(chosen, bed)
    goodput = {arm: got.comparison.metrics(arm)["goodput"] for arm in ("vllm", "grape")}
    assert goodput["vllm"]["strict_share"] == 1.0
    assert goodput["grape"]["strict_share"] == 0.5
    assert (goodput["grape"]["mean_calls_per_s"] or 0.0) > 0
    words = " ".join(text.split())  # the title of a table is wrapped
    assert "SLO ttft 60000 ms, tbt 60000 ms, program 60000 ms" in words
    assert "met the SLO, strict (share)" in text
    tight, text, _ = bench(settings(slo="program:0.001", arms="vllm,grape"))
    assert tight.comparison.metrics("vllm")["goodput"]["strict_per_s"] == 0.0


def test_only_figures_that_were_asked_for_are_shown():
    _, text, _ = bench(settings(arms="vllm,grape", repeats=1))
    assert "final answer, p99 (s)" in text
    assert "goodput" not in text
    assert "fairness" not in text
    _, text, _ = bench(settings(arms="vllm,grape", repeats=1, tenants=2))
    assert "fairness of tenants (Jain)" in text


def test_a_closed_loop_has_no_rate_and_needs_no_probe():
    got, text, _ = bench(settings(rates=None, arrivals="closed:1", arms="vllm,grape"))
    assert (got.rate, got.load) == (None, None)
    assert got.footing.probes == ()
    assert "code: 2 programs, a closed loop with 1 in flight, 2 repeats" in text
    for run in got.comparison.runs:
        assert run.record is not None
        first, second = run.record.programs
        assert first.finished <= second.arrived
        assert second.due == second.arrived


def test_programs_are_dealt_to_tenants_and_their_calls_say_so():
    got, _, bed = bench(settings(tenants=2, arms="vllm", repeats=1))
    (run,) = got.comparison.runs
    assert run.record is not None
    assert [program.tenant for program in run.record.programs] == ["tenant 1", "tenant 2"]
    (engine,) = bed.engines
    tenants = [request.tenant for request in requests(engine)][5:]  # the warm-up has none
    assert sorted(tenants) == ["tenant 1"] * 5 + ["tenant 2"] * 5
    _, _, bed = bench(settings(arms="vllm", repeats=1))
    assert {request.tenant for request in requests(bed.engines[0])} == {""}


def test_the_gaps_of_a_trace_are_kept_in_all_arms(tmp_path: Path):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s\n0\n1\n4\n")
    got, text, _ = bench(
        settings(arrivals=f"trace:{trace}", programs=3, rates="20", arms="vllm,grape", repeats=1)
    )
    assert "arrivals with the gaps of trace.csv at 20/s" in " ".join(text.split())
    for run in got.comparison.runs:
        assert run.record is not None
        dues = [program.due for program in run.record.programs]
        assert dues[1] - dues[0] == pytest.approx(0.025)
        assert dues[2] - dues[1] == pytest.approx(0.075)
        assert all(program.arrived >= program.due for program in run.record.programs)


def test_repeats_have_seeds_of_their_own():
    assert list(settings(seed=7).seeds(3)) == [7, 8, 9]
    assert "seeds 7 to 8" in results.describe(settings(seed=7), "cpu")
