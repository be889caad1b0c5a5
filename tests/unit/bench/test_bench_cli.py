import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from grape_lc import cli
from grape_lc.bench import command, html_report
from grape_lc.bench.options import QUICK
from grape_lc.errors import EngineError
from tests.unit.bench.fakes import TestBed, requests

SMALL = (
    *("--workloads", "code", "--programs", "2", "--rates", "50", "--repeats", "1"),
    *("--variants", "vllm,grape"),
)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, ["bench", *arguments])
    # What is no exit on purpose would be a traceback for the user.
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> TestBed:
    """Takes the place of real engines."""
    bed = TestBed()
    monkeypatch.setattr(command, "real_engine", lambda settings, console: bed.engine_of)
    return bed


def test_a_comparison_prints_its_tables_and_writes_its_file(bed: TestBed, tmp_path: Path):
    code, out, err = run(*SMALL, "--json", str(tmp_path / "x.json"))
    assert (code, err) == (0, "")
    assert out.startswith("code; rates 50/s: 1 repeats of 2 programs")
    assert "2 of 2 runs, about 0 s left: code at 50/s, repeat 1, grape: 2/2 programs" in out
    assert "grape against vllm: better in" in out
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["meta"]["settings"]["arms"] == "vllm,grape"
    assert bed.log[-2:] == ["close grape", "close vllm"]


def test_all_workloads_and_rates_are_compared_on_the_same_engines(bed: TestBed, tmp_path: Path):
    file = tmp_path / "x.json"
    both = ("--workloads", "code,search", "--rates", "0.5x,50")
    code, out, _ = run(*SMALL, *both, "--json", str(file))
    assert code == 0
    assert sum(line.startswith("open") for line in bed.log) == 3  # vllm-opt tells the load
    found = json.loads(file.read_text())
    cells = [(cell["workload"], cell["load"]) for cell in found["meta"]["cells"]]
    assert cells == [("code", 0.5), ("code", None), ("search", 0.5), ("search", None)]
    assert len(found["runs"]) == len(found["metrics"]) == 8
    for cell in found["meta"]["cells"]:
        if cell["load"]:
            assert cell["rate"] == pytest.approx(cell["load"] * cell["saturated_rate"])
        place = (cell["workload"], cell["rate"])
        pairs = [pair for pair in found["pairs"] if (pair["workload"], pair["rate"]) == place]
        assert {pair["variant"] for pair in pairs} == {"grape"}
    compared = found["equal"]["compared"]
    assert compared == sum(
        len(program["calls"])
        for run in found["runs"]
        if run["variant"] == "grape"
        for program in run["programs"]
    )
    summary = out[out.rindex("against vllm, over repeats") :]
    for name in ("code at 0.5x", "search at 50/s", "final answer"):
        assert name in summary


def test_quick_is_small_and_what_is_given_beside_it_holds(bed: TestBed, tmp_path: Path):
    file = tmp_path / "x.json"
    given = ("--rates", "50", "--workloads", "code", "--repeats", "1", "--json", str(file))
    assert run("--quick", *given)[0] == 0
    settings = json.loads(file.read_text())["meta"]["settings"]
    assert settings["repeats"] == 1
    assert {name: settings[name] for name in QUICK if name != "repeats"} == {
        name: value for name, value in QUICK.items() if name != "repeats"
    }
    assert run("--quick", *given, "--variants", "vllm", "--max-tokens", "9")[0] == 0
    settings = json.loads(file.read_text())["meta"]["settings"]
    assert (settings["arms"], settings["max_tokens"]) == ("vllm", 9)


def test_answers_of_fixed_length_are_asked_of_every_call(bed: TestBed):
    assert run(*SMALL, "--lengths", "fixed")[0] == 0
    for engine in bed.engines:
        sampling = [request.sampling for request in requests(engine)]
        assert {each.ignore_eos for each in sampling} == {True}


def test_a_failed_run_has_its_own_exit_code(bed: TestBed):
    bed.dies = {("grape", 1)}
    code, out, _ = run(*SMALL)
    assert code == 1
    assert "repeat 1, grape failed and is in no figure" in out


def test_an_interrupt_ends_all_engines(bed: TestBed, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("grape_lc.bench.server.run_programs", interrupted)
    code, _, err = run(*SMALL)
    assert code == 130
    assert "interrupted" in err
    assert bed.log == ["open vllm", "open grape", "run vllm", "close vllm", "close grape"]


def test_a_comparison_goes_on_from_its_file(bed: TestBed, tmp_path: Path):
    keep = ("--resume", str(tmp_path / "runs.jsonl"))
    assert run(*SMALL, *keep)[0] == 0
    code, out, _ = run(*SMALL, *keep)
    assert code == 0
    assert "2 runs are taken from" in out
    assert bed.log.count("run grape") == bed.log.count("run vllm") == 1
    code, _, err = run(*SMALL, *keep, "--seed", "5")
    assert code == 2
    assert "is of another comparison (seed: 0 there, 5 now)" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workloads", "chess"), "no workflow 'chess'"),
        (("--variants", "parrot"), "no arm 'parrot'"),
        (("--variants", "grape:chunk=none"), "'chunk' must be a number"),
        (("--arrivals", "7"), "no arrivals '7'"),
        (("--arrivals", "trace:/no/such.csv"), "cannot read /no/such.csv"),
        (("--rates", "fast"), "rate 'fast' is neither a number"),
        (("--arrivals", "closed:2", "--rates", "0.5x"), "a closed loop has no rate"),
        (("--sweep", "64,x"), "'x' is no token budget"),
        (("--programs", "1000"), "1000 programs asked for"),
        (("--kv-share", "0"), "kv_share"),
        (("--base", "vllm-opt", "--variants", "vllm"), "none of the arms"),
        (("--json", "/no/such/folder/x.json"), "there is no folder"),
        (("--html", "/no/such/folder/x.html"), "there is no folder"),
        (("--resume", "/no/such/folder/x.jsonl"), "there is no folder"),
    ],
)
def test_bad_settings_are_one_line_before_any_engine_starts(
    bed: TestBed, arguments: tuple[str, ...], said: str
):
    code, _, err = run(*arguments)
    assert code == 2
    assert said in err
    assert err.startswith("grape: ")
    assert err.count("\n") == 1
    assert bed.log == []


def test_a_report_without_its_libraries_is_refused_before_any_engine_starts(
    bed: TestBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = run(*SMALL, "--html", str(tmp_path / "x.html"))
    assert code == 2
    assert "pip install 'grape-lc[report]'" in err
    assert bed.log == []


def test_a_report_is_written_from_the_same_document(
    bed: TestBed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    written: list[tuple[dict[str, Any], Path]] = []
    monkeypatch.setattr(html_report, "write_html", lambda *what: written.append(what))
    html, numbers = tmp_path / "x.html", tmp_path / "x.json"
    assert run(*SMALL, "--html", str(html), "--json", str(numbers))[0] == 0
    ((content, path),) = written
    assert path == html
    assert json.loads(json.dumps(content)) == json.loads(numbers.read_text())


def documented() -> list[str]:
    """The commands that the guide begins with."""
    text = (Path(__file__).parents[3] / "docs" / "bench.md").read_text(encoding="utf-8")
    return text.split("```")[1].strip().splitlines()


@pytest.mark.parametrize("line", documented())
def test_the_commands_of_the_guide_are_understood(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
):
    def run_none(self: command.Bench) -> None:
        raise EngineError("understood")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command.Bench, "run", run_none)
    name, subcommand, *arguments = shlex.split(line)
    assert (name, subcommand) == ("grape", "bench")
    code, _, err = run(*arguments)
    assert (code, err) == (2, "grape: understood\n")


def test_the_help_names_every_option():
    code, out, _ = run("--help")
    assert code == 0
    for option in (
        *("--workloads", "--variants", "--rates", "--arrivals", "--repeats", "--seed", "--data"),
        *("--lengths", "--quick", "--sweep", "--kv-share", "--json", "--html", "--resume"),
    ):
        assert option in out
