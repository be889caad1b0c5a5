from __future__ import annotations

import json

import pytest
from rich.console import Console
from typer.testing import CliRunner

from grape_lc import cli
from grape_lc.bench import regimes as front
from grape_lc.bench.arms import OURS, TUNED
from grape_lc.bench.html_input import parse_document
from grape_lc.bench.regimes import MAPPED, MOST_WORSE, Regime, Regimes, violations
from grape_lc.bench.regimes_options import Kind, Point, RegimeSettings
from grape_lc.bench.regimes_report import marks, show, to_document
from grape_lc.engine.simulator.programs import Answer, Static, Workload


def figures(final: float, itl: float) -> dict[str, object]:
    return {
        "program_s": {"p50": final, "p95": final},
        "switch_gap_ms": {"mean": 5.0},
        "agentic_itl_ms": {"p95": itl},
        "tokens_per_s": 100.0,
    }


def regime(ours: tuple[float, float], rho: float = 0.5, place: str = "end") -> Regime:
    """One whose baseline takes 10 s and 10 ms; ``ours``: the same of grape."""
    point = Point(Kind(5, 128, 1024, place), rho)  # type: ignore[arg-type]
    both = {TUNED: (figures(10.0, 10.0),) * 2, OURS: (figures(*ours),) * 2}
    return Regime(point, 1.0, 512, both)


def test_a_chain_has_its_depth_lengths_and_order():
    shape = Kind(3, 128, 1024).shape()
    (tasks,) = shape.variants
    assert len(tasks) == 3
    assert [part.tokens for part in tasks[1].parts if isinstance(part, Static)] == [1024, 16]
    assert isinstance(tasks[2].parts[-2], Answer)
    assert isinstance(Kind(3, 128, 1024, "head").shape().variants[0][2].parts[0], Answer)
    outputs = [task.output for n in range(300) for task in Workload(shape, 1).program(n).tasks]
    assert sum(outputs) / len(outputs) == pytest.approx(128, rel=0.1)


def test_the_map_has_every_combination_and_the_points_that_are_hard():
    points = RegimeSettings(depths=(2, 5), outputs=(32, 256), statics=(256, 4096)).points()
    assert len(points) == len(set(points)) == 8 * 3 + 4 + 4 * 2
    assert {point.kind.depth for point in points if point.rho > 1} == {5}
    assert {point.rho for point in points if point.kind.place == "head"} == {0.5, 0.85}


def test_short_programs_are_more_and_light_loads_fewer():
    long, short = Kind(10, 256, 1024), Kind(2, 32, 1024)
    assert Point(long, 0.85).programs(40) == 40
    assert Point(short, 0.85).programs(40) == 160
    assert Point(long, 0.1).programs(40) == 20


def test_points_that_are_worse_are_listed_the_worst_first():
    least = 10.0 * MOST_WORSE
    fine = regime((least - 0.01, 5.0))
    worse, worst = regime((10.5, 5.0), 0.85), regime((9.0, 20.0), 1.2)
    found = violations([fine, worse, worst])
    assert [(v.point.rho, v.metric) for v in found] == [
        (1.2, "agentic_itl_ms.p95"),
        (0.85, "program_s.p95"),
    ]
    assert found[0].ratio.ratio == pytest.approx(0.5)


def test_a_single_bad_point_misses_the_mark():
    final, itl = marks([regime((5.0, 5.0)), regime((5.0, 10.4), place="head")])
    assert final["met"]
    assert final["value"] == pytest.approx(2.0)
    assert not itl["met"]
    assert itl["violations"] == 1
    assert itl["lowest"]["place"] == "head"
    assert not any(mark["met"] for mark in marks([]))


def test_the_document_keeps_the_map_apart_from_the_heads():
    settings = RegimeSettings()
    document = to_document(settings, [regime((5.0, 5.0)), regime((9.0, 20.0), place="head")])
    assert {entry["place"] for entry in document["regimes"]} == {"end"}
    assert {entry["metric"] for entry in document["regimes"]} == set(MAPPED)
    assert {entry["place"] for entry in document["head"]} == {"head"}
    assert [entry["metric"] for entry in document["violations"]] == ["agentic_itl_ms.p95"]
    assert len(parse_document(document, "map").regimes) == len(MAPPED)


def test_a_tiny_map_is_computed_shown_and_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(front, "SATURATING", 8)
    settings = RegimeSettings(
        depths=(2,), outputs=(16,), statics=(64,), loads=(0.5,), head_loads=(0.5,),
        programs=2, seeds=2, sweep=(512,), jobs=1,
    )  # fmt: skip
    path = tmp_path / "kept.jsonl"
    found = Regimes(settings, lambda text: None, path).run()
    assert [regime.point for regime in found] == list(settings.points())
    assert all(len(regime.figures[arm]) == 2 for regime in found for arm in (OURS, TUNED))
    console = Console(width=160, record=True)
    show(settings, found, console)
    assert "never worse than 1.03" in console.export_text()
    json.dumps(to_document(settings, found))

    def never(self):
        raise AssertionError("a kept simulation ran again")

    monkeypatch.setattr(front.ChainJob, "run", never)
    assert Regimes(settings, lambda text: None, path).run() == found


@pytest.mark.parametrize("given", [{"depths": ()}, {"loads": (0.0,)}, {"head_loads": (-1.0,)}])
def test_settings_that_cannot_be_are_refused(given):
    with pytest.raises(ValueError, match="positive"):
        RegimeSettings.model_validate(given)


def test_an_unknown_machine_is_told_in_one_line():
    result = CliRunner().invoke(cli.app, ["regimes", "--quick", "--hardware", "abacus"])
    assert result.exit_code == 2
    assert "abacus" in result.output
