import json
from pathlib import Path
from typing import Any

import pytest

from grape_lc.bench.arms import Tuning
from grape_lc.bench.command import Bench
from grape_lc.bench.matrix import BenchResult, CellResult
from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.probe import Probe
from grape_lc.bench.run_log import RunLog, head_of
from grape_lc.bench.server import ArmRun, ArmServer
from grape_lc.errors import ConfigError
from tests.unit.bench.fakes import TestBed, console, printed

HEAD = {"device": "cpu", "versions": {"vllm": "1"}, "settings": {"programs": 2, "seed": 0}}
CALL = CallRecord(1, "plan", 0.25, ((0.5, 2), (1.0, 1)), "a b", 9, 4, 3, "adopted")
RECORD = RunRecord("grape", (ProgramRecord("p", 0.0, 1.25, (CALL,), 0.0, "tenant 1"),))
RUN = ArmRun("grape", 2, 1, RECORD, {"opened": 5}, offered=1)


def settings(**changes: Any) -> BenchSettings:
    small = {"workloads": "code", "programs": 2, "rates": "50", "repeats": 2, "arms": "vllm,grape"}
    return BenchSettings(**{**small, **changes})


def matrix(
    path: Path, bed: TestBed, *, device: str = "cpu", **changes: Any
) -> tuple[BenchResult, str]:
    to = console()
    got = Bench(settings(**changes), to, bed.engine_of, device, path).run()
    return got, printed(to)


def bench(
    path: Path, bed: TestBed, *, device: str = "cpu", **changes: Any
) -> tuple[CellResult, str]:
    """Of a single cell."""
    got, text = matrix(path, bed, device=device, **changes)
    (cell,) = got.cells
    return cell, text


def test_runs_and_probes_come_back_as_they_were(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    probe = Probe(120.5, 60.0, (12, 40), 16)
    log = RunLog(path, HEAD)
    log.part("code at 0.5x").add(RUN, {"block_size": 16})
    log.add_probe("code", None, probe)
    log.add_probe("search", 64, probe)
    again = RunLog(path, HEAD)
    part = again.part("code at 0.5x")
    assert part.get("grape", 2) == (RUN, {"block_size": 16})
    assert part.has("grape", 2)
    assert not part.has("grape", 1)
    assert part.get("grape", 1) is None
    assert again.part("sweep of code at 0.5x").get("grape", 2) is None
    assert again.probe("code", None) == again.probe("search", 64) == probe
    assert again.probe("code", 64) is again.probe("search", None) is None


def test_a_run_that_was_tuned_otherwise_is_none_of_those_asked_for(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    tuning = Tuning(64, "program")
    RunLog(path, HEAD).part("code").add(RUN, {}, tuning)
    part = RunLog(path, HEAD).part("code")
    assert part.get("grape", 2, tuning) == (RUN, {})
    for other in (Tuning(128, "program"), Tuning(64)):
        assert part.get("grape", 2, other) is None
    assert part.get("grape", 2) is None
    assert part.has("grape", 2)


def test_without_a_file_nothing_is_kept():
    log = RunLog(None, HEAD)
    log.part("code").add(RUN, {})
    assert log.part("code").get("grape", 2) is None


def test_failed_runs_are_not_kept(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    RunLog(path, HEAD).part("code").add(ArmRun("grape", 1, 1, None, {}, "died"), {})
    assert len(path.read_text().splitlines()) == 1


def test_a_line_that_was_cut_short_is_taken_off(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    RunLog(path, HEAD).part("code").add(RUN, {})
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[-1][:40])
    log = RunLog(path, HEAD)
    assert log.part("code").has("grape", 2)
    assert path.read_bytes() == whole
    log.part("code").add(RUN._replace(repeat=3), {})
    part = RunLog(path, HEAD).part("code")
    assert part.has("grape", 2)
    assert part.has("grape", 3)


def test_records_of_another_comparison_are_refused_with_what_differs(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    RunLog(path, HEAD)
    other = {**HEAD, "device": "gpu", "settings": {"programs": 3, "seed": 0}}
    with pytest.raises(ConfigError) as refused:
        RunLog(path, other)
    assert "device: 'cpu' there, 'gpu' now; programs: 2 there, 3 now" in str(refused.value)
    assert "seed" not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "notes without an end",
        "notes\n",
        '{"kind": "run"}\n',
        '{"kind": "head"\n',
        "[]\n",
        "\ufffd\n",
        "\n",
    ],
)
def test_other_files_are_refused_and_left_as_they_are(tmp_path: Path, text: str):
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"notes\.txt"):
        RunLog(path, HEAD)
    assert path.read_text() == text


@pytest.mark.parametrize("line", ['{"kind": "walk"}', '{"kind": "run"}', '{"kind": "probe"}', "7"])
def test_a_broken_line_is_an_error(tmp_path: Path, line: str):
    path = tmp_path / "runs.jsonl"
    RunLog(path, HEAD)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ConfigError, match="holds no records of grape bench"):
        RunLog(path, HEAD)


def test_a_file_without_a_place_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot write"):
        RunLog(tmp_path / "no" / "runs.jsonl", HEAD)
    with pytest.raises(ConfigError, match="cannot read"):
        RunLog(tmp_path, HEAD)


def test_what_only_judges_may_change():
    def head(**changes: Any) -> dict[str, Any]:
        return head_of(settings(**changes).model_dump(mode="json"), "cpu", {})

    assert head(repeats=9, limit_s=5.0, slo="tbt:5", base="vllm") == head()
    assert head(workloads="code,search", rates="0.5x,0.85x") == head()
    assert head(seed=1) != head()
    assert head(arms="vllm") != head()
    json.dumps(head())


def test_an_interrupted_comparison_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, first = tmp_path / "runs.jsonl", TestBed()
    runs = 0

    def count(self: ArmServer, *args: Any, **kwargs: Any) -> Any:
        nonlocal runs
        runs += 1
        if runs == 4:
            raise KeyboardInterrupt
        return real(self, *args, **kwargs)

    real = ArmServer.run
    monkeypatch.setattr(ArmServer, "run", count)
    with pytest.raises(KeyboardInterrupt):
        bench(path, first)
    monkeypatch.undo()
    assert first.log[-2:] == ["close vllm", "close grape"]

    second = TestBed()
    got, text = bench(path, second)
    # Of "vllm grape, grape vllm" only the last was left, and only its engine starts.
    assert second.log == ["open vllm", "run vllm", "close vllm"]
    assert f"3 runs are taken from {path}" in text
    assert "4 of 4 runs, about 0 s left: code at 50/s, repeat 2, vllm: 2/2 programs" in text
    places = [(run.arm, run.repeat, run.position) for run in got.comparison.runs]
    assert places == [("vllm", 1, 1), ("grape", 1, 2), ("grape", 2, 1), ("vllm", 2, 2)]
    assert got.comparison.equal("grape") == (20, 20)
    assert got.comparison.infos["grape"] == {"block_size": 32, "scheduler": "grape"}
    ratio = got.gains["grape"][0].ratio
    assert ratio is not None
    assert ratio.pairs == 2

    third = TestBed()
    same, _ = bench(path, third)
    assert third.log == []
    for arm in ("vllm", "grape"):
        ours, theirs = same.comparison.metrics(arm), got.comparison.metrics(arm)
        assert ours["tokens_per_s"] == pytest.approx(theirs["tokens_per_s"], rel=1e-3)
    more = TestBed()
    got, _ = bench(path, more, repeats=3)
    assert sorted(got.comparison.records("grape")) == [1, 2, 3]
    assert more.log.count("run grape") == more.log.count("run vllm") == 1


def test_probe_and_sweep_are_not_measured_twice(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    changes: dict[str, Any] = {
        "rates": None,
        "sweep": (64, "default"),
        "arms": "vllm-opt,grape",
        "repeats": 1,
    }
    once, _ = bench(path, TestBed(), **changes)
    bed = TestBed()
    again, _ = bench(path, bed, **changes)
    assert bed.log == []
    assert again.rate == once.rate
    assert again.footing == once.footing
    assert again.choice is not None
    assert once.choice is not None
    assert again.choice.tuning == once.choice.tuning


def test_a_run_that_failed_is_tried_again(tmp_path: Path):
    path, bed = tmp_path / "runs.jsonl", TestBed()
    bed.dies = {("grape", 2)}
    got, _ = bench(path, bed)
    assert len(got.comparison.failures) == 1
    bed = TestBed()
    got, _ = bench(path, bed)
    assert bed.log == ["open grape", "run grape", "close grape"]
    assert got.comparison.failures == ()


def test_a_changed_machine_is_another_comparison(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    bench(path, TestBed(), repeats=1)
    bed = TestBed()
    with pytest.raises(ConfigError, match="device: 'cpu' there, 'gpu' now"):
        bench(path, bed, repeats=1, device="gpu")
    assert bed.log == []


def test_workloads_and_rates_are_added_to_what_was_measured(tmp_path: Path):
    path = tmp_path / "runs.jsonl"
    matrix(path, TestBed(), repeats=1, rates="0.5x")
    bed = TestBed()
    got, text = matrix(path, bed, repeats=1, rates="0.5x,0.85x", workloads="code,search")
    assert "3 runs are taken from" in text  # the run of all programs at once, and one of each arm
    assert [str(each.cell) for each in got.cells] == [
        *("code at 0.5x", "code at 0.85x", "search at 0.5x", "search at 0.85x")
    ]
    # Two repeats of search, one of code, and none of code's saturation.
    assert bed.log.count("run vllm") == bed.log.count("run grape") == 3
    assert bed.log.count("run vllm-opt") == 1
    assert [line for line in bed.log if line.startswith("open")] == [
        *("open vllm-opt", "open vllm", "open grape")
    ]
    assert got.failures == {}
