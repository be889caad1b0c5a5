import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import grape_lc
from grape_lc import cli
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.variables import InputVar, IntermediateVar, OutputVar


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, list(arguments))
    # What is no exit on purpose would be a traceback for the user.
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def flow_file(tmp_path: Path) -> Path:
    flow = TaskFlow(name="two")
    flow.add_variable(InputVar("problem"))
    plan = flow.add_variable(IntermediateVar("plan"))
    flow.add_task("Plan for {problem}", plan)
    flow.add_task("Code for {plan}", flow.add_variable(OutputVar("code")))
    path = tmp_path / "flow.json"
    path.write_text(flow.to_json())
    return path


def test_version():
    assert run("--version") == (0, f"grape_lc {grape_lc.__version__}\n", "")


@pytest.mark.parametrize("module", ["grape_lc", "grape_lc.cli"])
def test_the_package_is_run_as_the_command(module: str):
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"grape_lc {grape_lc.__version__}\n"


def test_no_arguments_show_the_commands():
    _, out, err = run()
    for command in ("demo", "explain", "model"):
        assert command in out + err


def test_explain_shows_every_task(flow_file: Path):
    code, out, err = run("explain", str(flow_file))
    assert (code, err) == (0, "")
    assert "plan" in out
    assert "code" in out


def test_explain_of_what_is_no_flow_is_one_line(flow_file: Path, tmp_path: Path):
    data = json.loads(flow_file.read_text())
    data["tasks"][0]["output"] = "unknown_variable"
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps(data))
    code, out, err = run("explain", str(bad))
    assert (code, out) == (2, "")
    assert err.startswith("grape: ")
    assert "unknown_variable" in err
    assert "Traceback" not in err


def test_explain_of_a_missing_file_names_it(tmp_path: Path):
    code, _, err = run("explain", str(tmp_path / "none.json"))
    assert code == 2
    assert "none.json" in err
    assert err.count("\n") == 1


def test_model_prints_the_folder_that_is_loaded(tmp_path: Path):
    (tmp_path / "config.json").write_text("{}")
    assert run("model", str(tmp_path)) == (0, f"{tmp_path}\n", "")


def test_model_refuses_a_folder_without_a_model(tmp_path: Path):
    code, out, err = run("model", str(tmp_path))
    assert (code, out) == (2, "")
    assert "config.json" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--order", "vllm"], "both arms"),
        (["--programs", "0"], "programs"),
        (["--programs", "1000"], "1000 programs asked for"),
        (["--rate", "-1"], "rate"),
        (["--data", "/no/such/folder"], "/no/such/folder"),
        (["--json", "/no/such/folder/x.json"], "there is no folder"),
        (["--trace", "."], "it is a folder"),
    ],
)
def test_demo_refuses_bad_settings_before_any_engine_starts(arguments: list[str], said: str):
    code, out, err = run("demo", *arguments)
    assert code == 2
    assert said in err
    assert "starting" not in out


def test_an_interrupt_has_its_own_exit_code(monkeypatch: pytest.MonkeyPatch):
    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("grape_lc.bench.demo.run_demo", interrupted)
    code, _, err = run("demo")
    assert code == 130
    assert "interrupted" in err
