"""``grape report``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from grape_lc import cli
from tests.unit.bench.documents import document, pair


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    made = document(("vllm-opt", "grape"), raw=False)
    made["pairs"] = [pair("grape", "answer_s.p95", 0.95, (0.9, 0.99))]
    path = tmp_path / "numbers.json"
    path.write_text(json.dumps(made))
    return path


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli.app, ["report", *map(str, arguments)])
    # What is no exit on purpose would be a traceback for the user.
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_without_options_the_tables_are_printed(numbers):
    code, out, err = run(numbers)
    assert (code, err) == (0, "")
    assert out.startswith("### Run\n")
    assert "▼ 0.950 [0.900, 0.990]" in out


def test_both_files_are_written(numbers, tmp_path):
    page, tables = tmp_path / "page.html", tmp_path / "tables.md"
    assert run(numbers, "--html", page, "--markdown", tables) == (0, "", "")
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert tables.read_text() == run(numbers)[1]


def test_several_files_go_into_one_report(numbers, tmp_path):
    other = tmp_path / "other.json"
    other.write_text(json.dumps(document(("grape",), workload="search", raw=False)))
    _, out, _ = run(numbers, other)
    assert "### code, 0.5 of saturation" in out
    assert "### search, 0.5 of saturation" in out


@pytest.mark.parametrize("option", ["--html", "--markdown"])
def test_a_file_is_not_overwritten_by_its_own_report(numbers, option):
    before = numbers.read_bytes()
    code, _, err = run(numbers, option, numbers)
    assert (code, err) == (2, f"grape: {numbers} is named twice\n")
    assert numbers.read_bytes() == before


def test_what_cannot_be_read_or_written_is_one_line(numbers, tmp_path):
    for arguments in (
        (tmp_path / "none.json",),
        (numbers, "--html", tmp_path / "no folder" / "page.html"),
        (numbers, numbers),
    ):
        code, out, err = run(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("grape: ")
