"""The page of a comparison, parsed again."""

from __future__ import annotations

import copy
import json
import re
import sys
from html.parser import HTMLParser
from typing import Any

import pytest

from grape_lc.bench.document import write
from grape_lc.bench.html_input import Document, parse_document, read_documents
from grape_lc.bench.html_report import render, write_html
from grape_lc.errors import ConfigError
from tests.unit.bench.documents import document, failed_run, pair, regimes
from tests.unit.bench.test_bench_command import matrix, settings

VOID = {"meta", "br", "link", "img"}
HOSTILE = '<script>alert("x")</script>&"\'{{7*7}}$a_$\x00\n`|'


class Page(HTMLParser):
    """What stands where: tags in balance, text of sections, tables, addresses, ids."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.refs: list[str] = []
        self.sections: dict[str, str] = {}
        self.rows: dict[str, list[list[str]]] = {}
        self.figures: dict[str, list[str]] = {}
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def section(self) -> str | None:
        found = [attrs.get("id") for tag, attrs in self.open if tag == "section"]
        return found[-1] if found else None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        self.refs += [str(given[name]) for name in ("href", "src") if name in given]
        self.refs += re.findall(r"url\((.*?)\)", json.dumps(given))
        if tag not in VOID:
            self.open.append((tag, given))
        if self.section is not None:
            if tag == "tr":
                self.rows.setdefault(self.section, []).append([])
            elif tag in {"td", "th"}:
                self.rows[self.section][-1].append("")
            elif tag == "figure":
                self.figures.setdefault(self.section, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        names = [tag for tag, _ in self.open]
        data = data.replace("\xa0", " ")
        self.text += data
        if self.section is None:
            return
        self.sections[self.section] = self.sections.get(self.section, "") + data
        if {"td", "th"} & set(names):
            self.rows[self.section][-1][-1] += data
        if names and names[-1] == "title":
            self.figures[self.section][-1] += data


def as_read(made: dict[str, Any]) -> Document:
    """A document as it is read from a file: JSON has no tuples."""
    return parse_document(json.loads(json.dumps(made)), "the test")


def page_of(*documents: dict[str, Any]) -> Page:
    return Page(render([as_read(made) for made in documents]))


def full() -> dict[str, Any]:
    made = document(("vllm", "vllm-opt", "grape", "grape-static"), rates=(0.3, 0.5), repeats=3)
    made["pairs"] = [
        pair("grape", "agentic_itl_ms.p99", 1.5, (1.3, 1.7)),
        pair("grape", "answer_s.p95", 0.95, (0.9, 0.98)),
        pair("grape", "tokens_per_s", 0.99, (0.95, 1.02)),
        pair("grape", "ttft_ms.mean", 0.91, (0.8, 0.99), over="programs", n=40),
        pair("vllm", "answer_s.p95", 0.9, (0.8, 0.95)),
        pair("grape-static", "answer_s.p95", 0.93, (0.9, 0.95)),
    ]
    made["runs"].append(failed_run("vllm", "EngineDiedError: gone", repeat=9))
    return made | {
        "regimes": regimes(),
        "paper": [{"setting": "one", "paper": 3.8, "ours_tuned": None, "ci95": [1.0, 2.0]}],
        "marks": [{"mark": "a mark", "met": True}],
    }


@pytest.fixture(scope="module")
def text() -> str:
    return render([as_read(full())])


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_every_section_is_there_and_the_contents_lead_to_it(page):
    names = (
        *("run", "glance", "losses", "rates", "cell-1", "cell-2"),
        *("regimes", "paper", "marks", "failures"),
    )
    assert tuple(page.sections) == names
    assert {ref.removeprefix("#") for ref in page.refs} >= set(names)


def test_nothing_outside_is_referred_to(page, text):
    assert {"script", "iframe", "object", "link", "img", "foreignobject"}.isdisjoint(page.tags)
    assert all(ref.startswith("#") for ref in page.refs)
    assert {ref.removeprefix("#") for ref in page.refs} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    assert not re.search(r"https?:|@import|//\w+\.", text)
    assert "#0a0" not in text  # no placeholder of a colour is left


def test_it_says_what_was_run(page):
    rows = {row[0]: row[1] for row in page.rows["run"] if len(row) == 2}
    assert rows["command"] == "grape bench --workloads code --repeats 2"
    assert rows["date"] == "2026-02-03"
    assert rows["machine"] == "A Processor, 2 cores, cpu, Linux"
    assert rows["versions"] == "vllm 0.32.0, torch 2.13.0"
    assert rows["model"] == "a-model"
    assert "17 of 18" in rows["equal answers"]
    assert rows["settings.seed"] == "7"
    assert rows["settings.sweep"] == "[64, 128]"
    assert rows["cells.0.arms.grape.scheduler"] == "ours"


def test_figures_stand_in_the_column_of_their_variant(page):
    made = full()
    head, *rows = page.rows["cell-2"]
    assert head == ["figure", "vllm", "vllm-opt", "grape", "grape-static"]
    found = next(row for row in rows if row[0] == "agentic ITL, p99 (ms)")
    entries = [entry for entry in made["metrics"] if entry["rate"] == 0.5]
    assert found[1:] == [f"{e['metrics']['agentic_itl_ms']['p99']:.1f}" for e in entries]


def test_figures_that_no_table_knows_are_shown_by_their_path():
    made = document(("grape",), raw=False)
    made["metrics"][0]["metrics"] |= {
        "a_new_share": 0.123456,
        "deep": {"er": 7},
        "flag": True,
        "endless": float("inf"),
    }
    rows = {row[0]: row[1] for row in page_of(made).rows["cell-1"]}
    assert (rows["a new share"], rows["deep er"]) == ("0.1235", "7")
    assert {"flag", "endless"}.isdisjoint(rows)


def test_ratios_have_intervals_and_signs(page):
    texts = [cell for row in page.rows["cell-2"] for cell in row]
    assert "▲better 1.500 [1.300, 1.700]" in texts
    assert "▼worse 0.950 [0.900, 0.980]" in texts
    assert "0.990 [0.950, 1.020]" in texts


def test_losses_are_listed_those_of_grape_first(page):
    rows = page.rows["losses"]
    ours = [row for row in rows if row[0] == "grape"]
    assert [row[2] for row in ours] == ["final answer, p95 (s)", "TTFT, mean (ms)"]
    assert ours[1][5:] == ["programs", "40"]
    assert any(row[0] == "agentic ITL, p95 (ms)" for row in rows)  # of the map
    assert [row[0] for row in rows if row[0] in {"vllm", "grape-static"}] == [
        "vllm",
        "grape-static",
    ]
    assert "2 of 6 ratios" in page.sections["losses"]


def test_without_losses_it_says_so():
    made = document(raw=False)
    made["pairs"] = [pair("grape", "answer_s.p95", 1.2, (1.1, 1.3))]
    assert "There is none" in page_of(made).sections["losses"]
    made["pairs"] = [pair("grape", "answer_s.p95", 0.5, None, n=1)]
    text = page_of(made).sections["losses"]
    assert "There is none" in text
    assert "1 more below 1 has no interval" in text


def test_few_pairs_are_told():
    made = document(raw=False)
    made["pairs"] = [pair("grape", "answer_s.p95", 1.2, (1.1, 1.3), n=3)]
    assert "n = 3: with fewer than 6" in page_of(made).sections["glance"]
    made["pairs"] = [pair("grape", "answer_s.p95", 1.2, (1.1, 1.3), n=6)]
    assert "with fewer than" not in page_of(made).sections["glance"]


def test_every_plot_says_in_words_what_it_shows(page):
    itl, switch, timeline, ablation = page.figures["cell-1"]
    assert itl.startswith("Distribution of the agentic ITL gap in code, 0.3 of saturation")
    assert "task-switch gap" in switch
    assert "program-1" in timeline
    assert "grape-static" in ablation
    assert "0.3/s" in page.figures["rates"][0]
    assert len(page.figures["regimes"]) == 2
    assert "lowest ratio is 0.900, at depth 2, output 16, static 64" in page.figures["regimes"][0]


def test_runs_that_failed_are_told(page):
    assert page.rows["failures"][1][0] == "vllm"
    assert page.rows["failures"][1][2:] == ["9", "EngineDiedError: gone"]


def test_the_highest_rates_stand_below_the_curves(page):
    head, *rows = page.rows["rates"]
    assert head == ["workload", "variant", "max_rate", "ci95", "censored"]
    assert [row[:3] for row in rows if row[1] == "grape"] == [["code", "grape", "0.5"]]
    assert next(row for row in rows if row[1] == "vllm")[2] == "-"


def test_a_map_needs_no_runs_and_its_losses_are_listed():
    page = page_of({"regimes": regimes(), "meta": {"settings": {"model": "m"}}})
    assert set(page.sections) == {"run", "losses", "regimes"}
    assert [row[1] for row in page.rows["run"]] == ["m", "value", "m"]
    assert "8 of 32 figures" in page.sections["regimes"]
    assert len(page.rows["losses"]) == 1 + 8
    assert {row[5] for row in page.rows["losses"][1:]} == {"▼worse 0.900 [0.850, 0.950]"}


def test_points_with_the_variable_at_the_head_have_a_map_of_their_own():
    head = [point for point in regimes() if point["ratio"] > 1 and point["depth"] == 2]
    page = page_of({"regimes": head, "head": [p for p in head if p["rho"] == 0.5]})
    assert len(page.figures["regimes"]) == 4
    assert "no figure is shown to be worse at any point" in page.sections["losses"]


def test_rows_of_the_papers_table_are_shown_by_their_names():
    rows = [
        {"arm": "grape", "ratio": 4.12345, "ci95": [4.0, 4.2], "paper": 3.8, "values": [1, 2]},
        {"arm": "layout", "ratio": 1.0, "ci95": None, "paper": None, "more": True},
    ]
    marks = [{"mark": "P95", "met": False, "lowest": {"value": 1.25, "rho": 0.5}}]
    errors = {"rows": [{"arm": "grape", "error": 0.0521}], "left_out": {}}
    page = page_of({"paper": rows, "marks": marks, "errors": errors})
    assert page.rows["paper"] == [
        ["arm", "ratio", "ci95", "paper"],
        ["grape", "4.123", "[4, 4.2]", "3.8"],
        ["arm", "error"],
        ["grape", "0.0521"],
        ["arm", "ratio", "ci95", "paper", "more"],
        ["grape", "4.123", "[4, 4.2]", "3.8", "-"],
        ["layout", "1", "-", "-", "yes"],
    ]
    assert page.rows["marks"][1] == ["P95", "no", "value 1.25, rho 0.5"]


def test_tables_of_very_many_rows_are_cut_and_say_so():
    page = page_of({"paper": [{"ratio": float(n)} for n in range(2_500)]})
    assert len(page.rows["paper"]) == 1 + 2_000
    assert "500 more rows are in the file" in page.sections["paper"]


def test_names_and_texts_from_outside_are_escaped():
    made = document((HOSTILE, "grape"), workload=HOSTILE)
    for run in made["runs"]:
        run["programs"][0]["program"] = "_" + HOSTILE
    made["runs"].append({**failed_run("grape", HOSTILE), "workload": HOSTILE})
    made["pairs"] = [{**pair("grape", HOSTILE, 0.5, (0.4, 0.6)), "workload": HOSTILE}]
    made["meta"]["environment"]["command"] = HOSTILE
    made["meta"][HOSTILE] = HOSTILE
    made["equal"]["baseline"] = HOSTILE
    made["regimes"] = [{**point, "metric": HOSTILE} for point in regimes()]
    made["paper"] = [{HOSTILE: HOSTILE}]
    page = page_of(made)
    assert "script" not in page.tags
    assert "49" not in page.sections["paper"]
    assert "<script>alert" in page.text
    assert "\x00" not in page.text
    assert page.rows["failures"][1][3] == HOSTILE.replace("\x00", "\ufffd")


def test_a_comparison_and_its_file_give_the_same_page(tmp_path):
    chosen = settings(arms="vllm-opt,grape", programs=1, max_tokens=8, slo="ttft:900")
    result, _, _ = matrix(chosen)
    numbers, html = tmp_path / "numbers.json", tmp_path / "page.html"
    write(chosen, result, "cpu", json_file=numbers, html_file=html)
    assert html.read_text() == render(read_documents([numbers]))
    page = Page(html.read_text())
    assert tuple(page.sections) == ("run", "glance", "losses", "cell-1")
    assert len(page.figures["cell-1"]) == 3
    assert "grape, vllm-opt" in [row[0] for row in page.rows["glance"]]


def test_one_variant_has_figures_and_plots_but_no_ratio():
    page = page_of(document(("grape",)))
    assert "there are not two variants" in page.sections["glance"]
    assert "Nothing can be said" in page.sections["losses"]
    assert len(page.figures["cell-1"]) == 3


def test_a_comparison_of_which_every_run_failed():
    made = document(("vllm", "grape"), repeats=1)
    made["metrics"], made["equal"] = [], {"compared": 0, "identical": 0}
    made["runs"] = [failed_run("vllm", "a"), failed_run("grape", "b")]
    page = page_of(made)
    assert "no run succeeded" in page.sections["cell-1"]
    assert len(page.rows["failures"]) == 3
    assert page.figures == {}


def test_calls_and_programs_without_tokens_are_borne():
    made = document(("vllm", "grape"))
    for run in made["runs"]:
        for program in run["programs"]:
            for call in program["calls"]:
                call["tokens"] = []
    assert page_of(made).figures == {}


def test_a_document_with_nothing_in_it():
    page = page_of({"meta": {}, "metrics": [], "runs": [], "pairs": [], "equal": {}})
    assert set(page.sections) == {"run"}
    assert "No run" in page.text


def test_files_are_put_together_and_alike_cells_told_apart():
    other = document(rates=(0.5, 0.8), raw=False)
    page = page_of(document(rates=(0.5,), raw=False), other)
    titles = [page.sections[f"cell-{n}"].split("\n")[1] for n in (1, 2, 3)]
    assert titles == [
        "code, 0.5 of saturation (0.5 programs/s), file 1",
        "code, 0.5 of saturation (0.5 programs/s), file 2",
        "code, 0.8 of saturation (0.8 programs/s)",
    ]
    assert "rates" in page.sections
    assert "File 2" in page.sections["run"]


def test_a_closed_loop_has_no_curve_over_rates():
    page = page_of(document(rates=(None,), raw=False), document(rates=(0.5,), raw=False))
    assert "rates" not in page.sections
    assert "code, closed loop" in page.sections["cell-1"]


def test_a_huge_document_makes_a_page_that_opens(tmp_path):
    made = document(("vllm", "vllm-opt", "grape"), repeats=1, programs=40, tokens=285)
    gaps = sum(len(c["tokens"]) for r in made["runs"] for p in r["programs"] for c in p["calls"])
    assert gaps > 100_000
    write_html(made, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 1_000_000


def test_the_same_document_gives_the_same_page(tmp_path):
    made = document(("vllm", "grape"), repeats=1)
    for name in ("a", "b"):
        write_html(copy.deepcopy(made), tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "is no file of results"),
        ({"figures": 1}, "has none of meta, metrics"),
        ({"metrics": {"vllm": {}}}, "metrics: Input should be a valid list"),
        ({"pairs": [{"workload": "code"}] * 9}, "and "),
        ({"pairs": [pair("a", "b", float("nan"), None)]}, "pairs.0.ratio: Input should be a fin"),
    ],
)
def test_other_data_is_refused_with_what_is_wrong(data, words):
    with pytest.raises(ConfigError, match=words):
        parse_document(data, "here")


def test_raw_records_of_another_form_are_refused():
    made = document(("grape",))
    del made["runs"][0]["programs"][0]["calls"][0]["tokens"]
    with pytest.raises(ConfigError, match="the records of grape in repeat 1 have another form"):
        render([parse_document(made, "here")])


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        read_documents([tmp_path / "none.json"])
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ConfigError, match="is no JSON"):
        read_documents([tmp_path / "bad.json"])


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_without_the_extra_it_says_what_to_install(module, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=rf"{module}.*grape-lc\[report\]"):
        write_html(document(("grape",), repeats=1), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
