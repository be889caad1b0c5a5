from __future__ import annotations

import json
import math

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grape_lc import cli
from grape_lc.bench import paper as front
from grape_lc.bench import paper_jobs
from grape_lc.bench.arms import OURS, TUNED, parse_arm
from grape_lc.bench.html_input import parse_document
from grape_lc.bench.paper_marks import AIMS, Aim, marks
from grape_lc.bench.paper_options import (
    COMPARED,
    DEFAULT,
    DRAFTING,
    WITHOUT,
    PaperSettings,
    spelled,
)
from grape_lc.bench.paper_report import show, to_document
from grape_lc.bench.paper_rows import Cell, Row, rows
from grape_lc.bench.simulate import arm_config
from grape_lc.bench.simulation_options import SimulationSettings

ITL, GOODPUT, MET = "agentic_itl_ms.p95", "goodput_per_s", "calls_met"


def row(metric, values, base, *, workload="code", rho=0.7, arm=OURS, baseline=TUNED, copies=None):
    cell = Cell("a machine", workload, rho, 1.0, 512, copies)
    return Row(cell, arm, baseline, metric, tuple(values), tuple(base))


def the_mark(aim, *given):
    (found,) = marks(given, [aim])
    return found


def test_a_ratio_is_above_1_where_the_arm_is_better():
    assert row(ITL, [10.0, 10.0], [20.0, 20.0]).ratio().ratio == pytest.approx(2.0)
    assert row("tokens_per_s", [10.0], [20.0]).ratio().ratio == pytest.approx(0.5)
    assert row(GOODPUT, [3.0, 1.0], [2.0, 0.0]).ratio().ratio == pytest.approx(2.0)
    assert row(ITL, [None], [20.0]).ratio() is None


def test_a_mark_is_the_geometric_mean_of_its_cells():
    aim = Aim("P95", ITL, TUNED, 1.3)
    found = the_mark(
        aim,
        row(ITL, [10.0, 10.0], [20.0, 20.0]),
        row(ITL, [10.0, 10.0], [10.0, 10.0], workload="summary"),
    )
    assert found.value is not None
    assert found.value.ratio == pytest.approx(math.sqrt(2))
    assert found.met
    assert (found.cells, found.reached) == (2, 1)
    lowest, value = found.lowest
    assert (lowest.cell.workload, value) == ("summary", pytest.approx(1.0))


def test_a_missed_mark_is_told_as_missed():
    aim = Aim("P95", ITL, TUNED, 1.3)
    found = the_mark(aim, row(ITL, [10.0, 10.0], [12.0, 13.0]))
    assert not found.met
    record = found.to_record()
    assert record["met"] is False
    assert record["target"] == 1.3
    assert 1.2 < record["value"] < 1.3
    assert record["ci95"] == pytest.approx([1.2, 1.3], abs=0.01)


def test_never_is_the_worst_cell_of_all_workloads_and_loads():
    aim = next(aim for aim in AIMS if aim.metric == ITL and aim.kind == "never")
    good = row(ITL, [10.0], [30.0])
    for workload, rho in (("search", 0.5), ("code", 1.2)):
        found = the_mark(aim, good, row(ITL, [10.0], [9.0], workload=workload, rho=rho))
        assert not found.met
        assert found.to_record()["value"] == pytest.approx(0.9)
        assert found.to_record()["lowest"]["workload"] == workload
    assert the_mark(aim, good).met


def test_a_mark_without_rows_was_not_measured_and_is_not_met():
    for found in marks([]):
        assert not found.met
        assert found.to_record()["value"] is None


def test_marks_take_their_own_loads_workloads_and_arms_only():
    aim = Aim("P95", ITL, TUNED, 1.3)
    others = (
        row(ITL, [10.0], [1.0], rho=0.3),
        row(ITL, [10.0], [1.0], rho=1.2),
        row(ITL, [10.0], [1.0], workload="search"),
        row(ITL, [10.0], [1.0], baseline=DEFAULT),
        row(ITL, [10.0], [1.0], arm="layout"),
        row(ITL, [10.0], [1.0], copies=0.3),
    )
    assert the_mark(aim, *others).value is None
    assert the_mark(aim, *others, row(ITL, [10.0], [20.0])).cells == 1


def test_attainment_is_a_level_and_goodput_a_ratio_of_sums():
    level = next(aim for aim in AIMS if aim.kind == "level")
    met = [
        row(MET, [0.99, 0.97], [0.5, 0.5], baseline=DEFAULT),
        row(MET, [1.0, 1.0], [0.5, 0.5], baseline=DEFAULT, workload="summary"),
    ]
    found = the_mark(level, *met)
    assert found.value.ratio == pytest.approx(0.99)
    assert found.met
    goodput = next(aim for aim in AIMS if aim.metric == GOODPUT)
    found = the_mark(goodput, row(GOODPUT, [1.0, 1.0], [0.0, 0.5]))  # one side was never in time
    assert found.value.ratio == pytest.approx(4.0)


def test_drafting_marks_take_drafting_rows():
    aim = next(aim for aim in AIMS if aim.drafting and aim.metric == "program_s.p50")
    plain = row("program_s.p50", [10.0], [20.0], arm=aim.arm)
    copying = row("program_s.p50", [10.0], [15.0], arm=aim.arm, copies=0.3)
    found = the_mark(aim, plain, copying)
    assert found.cells == 1
    assert not found.met


def test_tuned_arms_get_the_budget_written_out():
    assert spelled(TUNED, 512) == f"{TUNED}:max_num_batched_tokens=512"
    assert spelled(f"{TUNED}:max_num_seqs=8", 512).endswith(
        "max_num_seqs=8,max_num_batched_tokens=512"
    )
    assert parse_arm(spelled("layout", 512)).budget == 512
    assert [spelled(arm, 512) for arm in (DEFAULT, "vllm", OURS)] == [DEFAULT, "vllm", OURS]


def test_every_arm_of_the_table_is_simulated():
    for arm in (*COMPARED, *WITHOUT, *DRAFTING):
        assert arm_config(parse_arm(spelled(arm, 512)), SimulationSettings(jobs=1)).name


def test_ours_is_compared_with_all_and_mechanisms_with_ours():
    pairs = front.pairs((*COMPARED, "grape-static"))
    assert (OURS, TUNED) in pairs
    assert (OURS, DEFAULT) in pairs
    assert ("layout", TUNED) in pairs
    assert (OURS, "grape-static") in pairs
    assert (TUNED, TUNED) not in pairs
    assert len(pairs) == len(set(pairs))
    assert (f"{OURS}+draft", f"{TUNED}+draft") in front.pairs((TUNED, OURS, *DRAFTING))


def test_rows_of_an_arm_that_is_missing_are_none():
    assert rows(Cell("a", "code", 0.7, 1.0, 512), {OURS: []}, OURS, TUNED) == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"loads": ()}, "loads must be positive"),
        ({"loads": (0.0,)}, "loads must be positive"),
        ({"sweep": (0,)}, "token budgets must be positive"),
        ({"cost": "x.json"}, "needs both"),
    ],
)
def test_settings_that_cannot_be_are_refused(given, told):
    with pytest.raises(ValueError, match=told):
        PaperSettings.model_validate(given)


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(paper_jobs, "SATURATING", 8)
    return PaperSettings(
        programs=3,
        seeds=2,
        loads=(0.7, 1.2),
        sweep=(512,),
        settings=(0,),
        workloads=("search",),
        ablated=("search",),
        copy_rates=(),
        jobs=1,
    )


def test_the_whole_table_in_little_and_again_from_what_is_kept(tiny, tmp_path, monkeypatch):
    said: list[str] = []
    path = tmp_path / "kept.jsonl"
    table = front.Paper(tiny, said.append, path).run()
    assert any("saturates at" in line for line in said)
    compared = {(row.cell.rho, row.arm, row.baseline) for row in table.rows}
    assert (0.7, OURS, DEFAULT) in compared
    assert (1.2, "layout", TUNED) in compared
    assert (0.7, OURS, "grape-incremental") in compared
    assert (1.2, OURS, "grape-incremental") not in compared
    assert all(len(row.values) == 2 for row in table.rows)
    assert all(
        v is not None and 0 < v < 1 for r in table.rows if r.metric == "mfu" for v in r.values
    )
    document = json.loads(json.dumps(to_document(tiny, table, None)))
    assert parse_document(document, "table").paper == document["paper"]
    assert {mark["mark"] for mark in document["marks"]} == {aim.mark for aim in AIMS}
    console = Console(width=200, record=True)
    show(tiny, table, None, console)
    out = console.export_text()
    for words in (
        "the paper's figures and ours",
        "3.80",
        "missed",
        "what a mechanism adds",
        "n = 2",
    ):
        assert words in out

    def never(*args):
        raise AssertionError("a kept simulation ran again")

    monkeypatch.setattr(paper_jobs.Simulated, "run", never)
    monkeypatch.setattr(paper_jobs.Saturated, "run", never)
    assert front.Paper(tiny, said.append, path).run() == table


def test_what_cannot_be_written_is_told_before_the_run(tmp_path):
    result = CliRunner().invoke(cli.app, ["paper", "--quick", "--json", str(tmp_path / "no" / "x")])
    assert result.exit_code == 2
    assert "there is no folder" in result.output
