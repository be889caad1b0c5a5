"""``grape profile`` around the measurement: what is shown, written, kept and refused."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grape_lc.bench import profile
from grape_lc.cli import app
from grape_lc.engine import profile_store
from grape_lc.engine.profile_cells import Step
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost, StepLoad

COST = LinearCost(0.030, 0.0008, 0.004, 4e-6, 1e-6, ((64, 1e-4),))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def document(**single_errors):
    single = {"mape": 0.083, "p95_error": 0.28, "steps": 400, **single_errors}
    return {
        "machine": {"processor": "some CPU", "cores": 2, "threads": "1"},
        "model": "m",
        "dtype": "float32",
        "settings": {"block_size": 32},
        "coefficients": COST.to_mapping(),
        "heldout": {"mape": 0.05, "p95_error": 0.12, "steps": 90},
        "heldout_by_kind": {"decode": {"mape": 0.021, "p95_error": 0.04, "steps": 30}},
        "heldout_single": single,
        "heldout_unpaced": {"mape": 0.07, "p95_error": 0.31, "steps": 90},
        "slowest_pace": 1.25,
        "cells": 120,
        "measured_steps": 1400,
        "rounds": 3,
        "seconds": 121.0,
    }


def shown(value):
    out = io.StringIO()
    profile.show(value, Console(file=out, width=120))
    return out.getvalue()


def test_it_shows_errors_and_what_the_coefficients_mean():
    text = shown(document())
    assert "some CPU, 2 cores; float32; 1400 steps of 120 kinds, rounds: 3, 121 s" in text
    for cells in (
        ("median of the repeats", "90", "5.0%", "12.0%"),
        ("decode", "30", "2.1%", "4.0%"),
        ("single steps", "400", "8.3%", "28.0%"),
    ):
        assert any(all(cell in line for cell in cells) for line in text.splitlines())
    load = StepLoad.of([(1, 512)] * 4)
    assert "T [ms] = 30.00 + 0.8 x rows" in text
    assert f"{1e3 * COST.seconds(load):.1f} ms" in text


def test_the_formula_leaves_out_what_costs_nothing():
    assert profile.formula(COST) == (
        "T [ms] = 30.00 + 0.8 x rows + 4 x tokens + 0.1 x tokens beyond 64 "
        "+ 0.004 x KV tokens + 0.001 x pairs"
    )
    assert profile.formula(LinearCost(0.01)) == "T [ms] = 10.00"
    falling = LinearCost(0.1, per_token=0.006, hinges=((16, -0.002),))
    assert profile.formula(falling) == "T [ms] = 100.00 + 6 x tokens - 2 x tokens beyond 16"


def test_a_good_profile_is_kept_under_the_engines_key():
    path, why = profile.store(document())
    assert why is None
    key = {name: document()[name] for name in ("machine", "model", "dtype", "settings")}
    assert path == profile_store.path_of(key)
    assert profile_store.load(key) == COST


def test_a_bad_profile_is_refused_with_its_reason():
    path, why = profile.store(document(mape=0.2))
    assert path is None
    assert why == "the mean of its errors on single steps is 20.0%, above 15%"


def test_everything_measured_is_written(tmp_path):
    steps = [Step(StepLoad(2, 9, 300, 12.5), 0.04)]
    profile.write(document(), steps, tmp_path / "p.json")
    content = json.loads((tmp_path / "p.json").read_text())
    assert content["steps"] == [[2, 9, 300, 12.5, 0.04]]
    assert content["heldout"]["mape"] == 0.05
    with pytest.raises(ConfigError, match="cannot write"):
        profile.write(document(), steps, tmp_path)


def test_progress_is_a_line_now_and_then_off_a_terminal():
    now = [0.0]
    out = io.StringIO()
    with profile.ProgressLine(Console(file=out), clock=lambda: now[0]) as tell:
        for second in range(25):
            now[0] = float(second)
            tell(f"at {second}")
    assert out.getvalue().split("\n") == ["at 0", "at 10", "at 20", ""]


def test_progress_is_one_line_on_a_terminal():
    out = io.StringIO()
    with profile.ProgressLine(Console(file=out, force_terminal=True)) as tell:
        tell("half done")
    assert "half done" in out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seconds", "0"], "seconds=0.0: a positive number"),
        (["--seconds", "nan"], "seconds=nan"),
        (["--seconds", "inf"], "seconds=inf"),
        (["--json", "/nowhere/p.json"], "cannot write /nowhere/p.json"),
    ],
)
def test_bad_arguments_are_told_in_one_line(arguments, message):
    run = CliRunner().invoke(app, ["profile", *arguments])
    assert run.exit_code == 2
    assert message in run.stderr
