"""What plots are drawn from, and the SVG that a page gets."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest

from grape_lc.bench.html_cells import Cell, cells_of, whole_variants
from grape_lc.bench.html_input import parse_document
from grape_lc.bench.html_ratios import ablations, verdict
from grape_lc.bench.metrics import CallRecord
from grape_lc.bench.plots import SERIES, drawing, label, line_styles, plain_ticks, printable, to_svg
from grape_lc.bench.plots_gaps import gap_plot, thinned
from grape_lc.bench.plots_rates import curves
from grape_lc.bench.plots_regimes import colour_of
from grape_lc.bench.plots_timeline import chosen_program, lanes_of
from tests.unit.bench.documents import document


def cell_of(made: dict[str, Any]) -> Cell:
    (cell,) = cells_of([parse_document(made, "")])
    return cell


def test_few_points_are_all_kept_with_the_share_up_to_each():
    assert thinned([1.0, 2.0, 2.0, 8.0]) == [(1.0, 0.25), (2.0, 0.5), (2.0, 0.75), (8.0, 1.0)]
    assert thinned([3.0]) == [(3.0, 1.0)]


def test_zeros_are_passed_over_at_the_height_of_their_share():
    assert thinned([0.0, 0.0, 0.0, 4.0]) == [(4.0, 1.0)]


def test_of_many_points_both_ends_and_a_dense_tail_are_kept():
    count = 100_000
    kept = thinned([float(n + 1) for n in range(count)])
    assert len(kept) <= 201
    assert kept[0] == (1.0, 1 / count)
    assert kept[-5:] == [(float(n), n / count) for n in range(count - 4, count + 1)]
    assert all(share == pytest.approx(value / count) for value, share in kept)
    assert max(b - a for (_, a), (_, b) in pairwise(kept)) < 0.011


def test_known_variants_look_alike_in_every_report_and_others_differ():
    alone, many = line_styles(["grape"]), line_styles(["x", "vllm", "y", "grape", "vllm-opt"])
    assert alone["grape"] == many["grape"]
    assert len(set(many.values())) == 5
    assert len(set(line_styles([f"arm {n}" for n in range(20)]).values())) == 20


def test_mechanisms_are_judged_by_repeat_and_below_one_is_worse_without():
    made = document(("grape", "grape-static"), repeats=2, raw=False)
    itl = {("grape", 1): 10.0, ("grape", 2): 20.0, ("grape-static", 1): 20.0}
    speed = {("grape", 1): 50.0, ("grape", 2): 50.0, ("grape-static", 1): 40.0}
    for run in made["runs"]:
        key = (run["variant"], run["repeat"])
        run["metrics"] = {
            "agentic_itl_ms": {"mean": itl.get(key, 40.0)},
            "tokens_per_s": speed.get(key, 40.0),
        }
    found = ablations(cell_of(made))
    assert set(found) == {("agentic_itl_ms", "mean"), ("tokens_per_s",)}
    assert found["agentic_itl_ms", "mean"]["grape-static"].ratio == pytest.approx(0.5)
    assert found["tokens_per_s",]["grape-static"].ratio == pytest.approx(0.8)
    assert found["tokens_per_s",]["grape-static"].pairs == 2


def test_a_mechanism_without_a_run_of_the_whole_has_no_bar():
    made = document(("vllm", "grape-static"), raw=False)
    assert ablations(cell_of(made)) == {}
    assert whole_variants(cell_of(made)) == ["vllm", "grape-static"]


def test_verdicts_are_those_of_the_interval():
    assert verdict(1.2, (1.1, 1.3)) == "better"
    assert verdict(0.8, (0.7, 0.9)) == "worse"
    assert verdict(1.2, (1.0, 1.4)) == verdict(0.8, (0.6, 1.0)) == "same"
    assert verdict(0.5, None) == "unsure"


def test_the_median_program_that_all_ran_is_shown():
    made = document(("vllm", "grape"), programs=4)
    chosen = chosen_program(cell_of(made))
    assert chosen is not None
    repeat, name, by_variant = chosen
    vllm = next(run for run in made["runs"] if run["variant"] == "vllm")
    seconds = {p["program"]: p["finished"] - p["arrived"] for p in vllm["programs"]}
    assert repeat == 1
    assert name == sorted(seconds, key=lambda each: seconds[each])[1]
    assert {record.program for record in by_variant.values()} == {name}
    assert list(by_variant) == ["vllm", "grape"]


def test_a_program_that_a_variant_lacks_is_not_chosen():
    made = document(("vllm", "grape"), programs=3, repeats=1)
    for run in made["runs"]:
        if run["variant"] == "grape":
            del run["programs"][1:]
    chosen = chosen_program(cell_of(made))
    assert chosen is not None
    assert chosen[1] == "program-0"


def test_calls_at_the_same_time_have_lanes_of_their_own():
    times = [(0.0, 2.0), (2.0, 5.0), (2.0, 3.0), (2.5, 4.0), (3.0, 6.0), (6.0, 7.0)]
    calls = [
        CallRecord(number, None, begin, ((begin + 0.1, 1), (end, 1)))
        for number, (begin, end) in enumerate(times)
    ]
    assert lanes_of(calls) == [0, 0, 1, 2, 1, 0]


def test_curves_go_by_rate_and_leave_closed_loops_out():
    made = document(("vllm", "grape"), rates=(0.5, None, 0.2), raw=False)
    cells = cells_of([parse_document(made, "")])
    found = curves(cells, ("tokens_per_s",))
    assert [rate for rate, _ in found["grape"]] == [0.2, 0.5]


def test_without_gaps_there_is_no_plot():
    assert gap_plot(cell_of(document(("vllm",), raw=False)), "itl", "name") is None
    assert gap_plot(cell_of(document(("vllm",), tokens=1, repeats=1)), "itl", "name") is not None


def test_colours_of_the_map_are_told_apart_by_the_side_of_one():
    assert colour_of(2.0) == colour_of(9.0) != colour_of(0.5)
    assert colour_of(0.5) == colour_of(0.1) == colour_of(0.0)
    assert len({colour_of(r) for r in (0.7, 1.0, 1.4)}) == 3


def test_labels_are_short_and_hold_nothing_that_a_page_must_not():
    assert label("_x") == "\u200b_x"
    assert label("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    assert len(label("long " * 40)) == 40
    assert printable("naïve 漢字\u00a0▲") == "naïve 漢字\u00a0▲"


def test_the_svg_is_fit_for_a_page():
    with drawing() as figure_of:
        figure = figure_of(figsize=(4, 2), layout="constrained")
        axes = figure.subplots()
        axes.plot([1, 10, 100], [1, 2, 3], color=SERIES[0], label="a $b_c$ <i> 漢")
        axes.bar([1], [1], color=SERIES[1], hatch="//")
        axes.set_xscale("log")
        plain_ticks(axes.xaxis)
        axes.legend()
        svg = to_svg(figure, "one", 'an "alt" & <text>')
    root = ET.fromstring(svg)  # noqa: S314 - our own
    assert root.tag == "svg"
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", "one-title")
    assert root.findtext("title") == 'an "alt" & <text>'
    texts = [element.text for element in root.iter("text")]
    assert "a $b_c$ <i> 漢" in texts
    assert {"1", "10", "100"} <= set(texts)
    ids = {element.get("id") for element in root.iter()} - {None}
    assert ids
    assert all(str(found).startswith("one-") for found in ids)
    assert set(re.findall(r"url\(#(.*?)\)", svg)) <= ids
    assert "var(--series-0)" in svg
    assert "var(--series-1)" in svg
    assert "http" not in svg
    assert root.find(".//style") is None


def test_the_settings_of_matplotlib_are_left_as_they_were():
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    with drawing():
        assert mpl.rcParams["svg.hashsalt"] == "grape"
    assert dict(mpl.rcParams) == before
