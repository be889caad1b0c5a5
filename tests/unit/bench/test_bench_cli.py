import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grape_lc import cli
from grape_lc.bench import command
from tests.unit.bench.fakes import TestBed

SMALL = ("--programs", "2", "--rate", "50", "--repeats", "1", "--arms", "vllm,grape")


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
    code, out, err = run("code", *SMALL, "--json", str(tmp_path / "x.json"))
    assert (code, err) == (0, "")
    assert out.startswith("code: 1 repeats of 2 programs")
    assert "repeat 1 grape (done): 2/2 programs" in out
    assert "grape against vllm: better in" in out
    document = json.loads((tmp_path / "x.json").read_text())
    assert document["meta"]["settings"]["arms"] == "vllm,grape"
    assert bed.log[-2:] == ["close grape", "close vllm"]


def test_a_failed_run_has_its_own_exit_code(bed: TestBed):
    bed.dies = {("grape", 1)}
    code, out, _ = run(*SMALL)
    assert code == 1
    assert "repeat 1 grape failed and is in no figure" in out


def test_an_interrupt_ends_all_engines(bed: TestBed, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("grape_lc.bench.server.run_programs", interrupted)
    code, _, err = run(*SMALL)
    assert code == 130
    assert "interrupted" in err
    assert bed.log == ["open vllm", "open grape", "run vllm", "close grape", "close vllm"]


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
        (("chess",), "no workflow 'chess'"),
        (("--arms", "parrot"), "no arm 'parrot'"),
        (("--arms", "grape:chunk=none"), "'chunk' must be a number"),
        (("--arrivals", "7"), "no arrivals '7'"),
        (("--arrivals", "trace:/no/such.csv"), "cannot read /no/such.csv"),
        (("--rate", "fast"), "neither a number nor 'auto'"),
        (("--sweep", "64,x"), "'x' is no token budget"),
        (("--programs", "1000"), "1000 programs asked for"),
        (("--kv-share", "0"), "kv_share"),
        (("--base", "vllm-opt", "--arms", "vllm"), "none of the arms"),
        (("--json", "/no/such/folder/x.json"), "there is no folder"),
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


def test_the_help_names_every_option():
    code, out, _ = run("--help")
    assert code == 0
    for option in (
        "--arrivals",
        "--seed",
        "--arms",
        "--sweep",
        "--kv-share",
        "--rate",
        "--repeats",
        "--json",
    ):
        assert option in out
