"""What the example workflows run on, and that a comparison runs all of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grape_lc.bench import results
from grape_lc.bench.command import Bench
from grape_lc.bench.examples import PARTS, load_example, parse_workloads
from grape_lc.bench.options import BenchSettings
from grape_lc.errors import ConfigError
from grape_lc.workflow_package import workflow_names
from tests.unit.bench.fakes import TestBed, console, printed, requests

# A role in the system prompt decides the answer.
ANSWERS = {
    "You are the first reader": "A summary. Details: none.",
    "You are the editor in a team": "A better summary. Details: none.",
    "the query rewriter of": "loop statement ends",
    "the searcher of": "Facts: - break ends a loop [1].",
    "the answer generator of": "Answer: break",
    "the safety checker of": "Verdict: PASS",
}


@pytest.mark.parametrize("name", workflow_names())
def test_every_workflow_has_inputs_that_its_graph_takes(name: str):
    example = load_example(name)
    assert len(example.cases) >= 12
    assert len({case.name for case in example.cases}) == len(example.cases)
    taken = set(example.build(None, 4).channels)
    for case in example.cases:
        assert set(case.state) <= taken
        assert set(case.state) == set(example.warm_up)


def test_workloads_are_read_in_order():
    assert parse_workloads("search") == ("search",)
    assert parse_workloads(" code, summary ,search,") == ("code", "summary", "search")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no workload in ''; there are: code,"),
        ("code,chess", "no workflow 'chess'; there are: code,"),
        ("code,search,code", "code stands twice"),
        ("code:depth=3", "code has no axes"),
        ("depth=3,code", "no workflow 'depth=3'"),
    ],
)
def test_unknown_workloads_are_refused(text: str, said: str):
    with pytest.raises(ConfigError, match=said):
        parse_workloads(text)


def test_documents_are_cut_into_parts_that_small_models_can_read():
    for case in load_example("summary").cases:
        assert len(case.state["chunks"]) == PARTS
        assert max(map(len, case.state["chunks"])) < 4000


def test_cases_are_drawn_without_repetition():
    example = load_example("code")
    first = example.draw(8, seed=3)
    assert len({case.name for case in first}) == 8
    assert first == example.draw(8, seed=3)
    assert first != example.draw(8, seed=4)


@pytest.mark.parametrize(
    ("name", "record", "state"),
    [
        ("code", {"question_content": "Add."}, {"problem": "Add."}),
        ("summary", {"text": "A b. C d."}, {"chunks": ["A", "b.", "C", "d."]}),
        (
            "search",
            {"question": "Q?", "paragraphs": [{"title": "T", "text": "some words"}]},
            {"question": "Q?"},
        ),
    ],
)
def test_inputs_come_from_any_folder_with_the_field(
    name: str, record: dict[str, Any], state: dict[str, Any], tmp_path: Path
):
    lines = [{"id": "a", **record}, {"other": "no input"}]
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    example = load_example(name, tmp_path)
    assert example.cases == (("a", state),)
    if name == "search":
        [found] = example.options["retriever"].invoke("words")
        assert found.page_content == "some words"


def test_too_few_inputs_and_bad_sources_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="1000 programs asked for"):
        load_example("code").draw(1000, seed=0)
    with pytest.raises(ConfigError, match="at least one"):
        load_example("code").draw(0, seed=0)
    with pytest.raises(ConfigError, match="no file or directory"):
        load_example("code", tmp_path / "missing")
    with pytest.raises(ConfigError, match="question_content"):
        load_example("code", tmp_path)
    with pytest.raises(ConfigError, match="no workflow 'chess'"):
        load_example("chess")


def test_a_missing_library_is_told(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(ConfigError, match=r"grape-lc\[workflows\]"):
        load_example("search")


@pytest.mark.parametrize(("name", "calls"), [("summary", PARTS), ("search", 4)])
def test_a_comparison_runs_on_them(name: str, calls: int):
    bed, to = TestBed(), console()
    bed.answers = dict.fromkeys(("vllm", "vllm-opt", "grape"), ANSWERS)
    settings = BenchSettings(workflow=name, programs=2, rate=50.0, repeats=1, max_tokens=16)
    result = Bench(settings, to, bed.engine_of, "cpu").run()
    assert result.comparison.failures == (), printed(to)
    for arm in ("vllm", "vllm-opt", "grape"):
        [record] = result.comparison.records(arm).values()
        assert [len(program.calls) for program in record.programs] == [calls, calls]
    [engine] = bed.of("grape")
    programs = engine.programs[-2:]
    named = [request.task for request in requests(engine) if request.program is not None]
    assert len(named) >= 2 * calls
    for program in programs:
        assert {task.name for task in program.flow.tasks} == set(program.fed)


@pytest.mark.parametrize("asked", [True, False])
def test_right_answers_are_counted_when_asked_for(asked: bool):
    bed, to = TestBed(), console()
    bed.answers = dict.fromkeys(("vllm", "grape"), ANSWERS)
    settings = BenchSettings(
        workflow="search", programs=36, rate=500.0, repeats=1, arms="vllm,grape", quality=asked
    )
    result = Bench(settings, to, bed.engine_of, "cpu").run()
    counted = {
        name: [result.comparison.counter(arm, name) for arm in ("vllm", "grape")]
        for name in ("answers_checked", "answers_exact", "answers_containing")
    }
    text = printed_tables(settings, result)
    if asked:
        assert list(counted.values()) == [[36, 36], [1, 1], [1, 1]]
        assert "answers that match" in text
        assert "1 of 36" in text
    else:
        assert list(counted.values()) == [[None, None]] * 3
        assert "answers that match" not in text


def printed_tables(settings: BenchSettings, result: Any) -> str:
    to = console()
    results.show(settings, result, to)
    return printed(to)


def test_programs_are_run_on_the_public_tests_of_their_problems(tmp_path: Path):
    tests = [{"input": "1", "output": "2"}, {"input": "2", "output": "9"}]
    lines = [
        {"id": "a", "question_content": "Add one.", "public_test_cases": tests},
        {"id": "b", "question_content": "No tests."},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    scorer = load_example("code", tmp_path).scorer
    assert scorer is not None
    states = {name: {"code": "```python\nprint(int(input()) + 1)\n```"} for name in "ab"}
    assert scorer(states) == {"tests_run": 2, "tests_passed": 1}


def test_nothing_is_scored_where_nothing_is_known(tmp_path: Path):
    record = {"question": "Q?", "paragraphs": [{"title": "T", "text": "words"}]}
    (tmp_path / "x.jsonl").write_text(json.dumps(record))
    examples = [load_example(name) for name in ("code", "summary")]
    assert [e.scorer for e in [*examples, load_example("search", tmp_path)]] == [None] * 3
