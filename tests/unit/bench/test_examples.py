"""What the example workflows run on, and that a comparison runs all of them."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.bench.arms import parse_arm
from grape_lc.bench.examples import PARTS, load_example, parse_workloads
from grape_lc.bench.quality import QUALITY
from grape_lc.bench.server import ArmServer
from grape_lc.bench.workload import Arrival
from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.errors import ConfigError
from grape_lc.runtime.scripted import ScriptedEngine
from grape_lc.workflow_package import workflow_names
from tests.unit.bench.fakes import TestBed, requests

# A role in the system prompt decides the answer.
ANSWERS = {
    "You are the first reader": "A summary. Details: none.",
    "You are the editor in a team": "A better summary. Details: none.",
    "You are the editor in chief": "The summary. Key facts: none.",
    "You write the note of": "A note.",
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
    text = "code,synthetic:depth=8, fan_out=2,summary:mode=map_reduce,search,synthetic"
    assert parse_workloads(text) == (
        "code",
        "synthetic:depth=8,fan_out=2",
        "summary:mode=map_reduce",
        "search",
        "synthetic",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no workload in ''; there are: code,"),
        ("code,chess", "no workflow 'chess'; there are: code,"),
        ("code,search,code", "code stands twice"),
        ("code:depth=3", "code:depth=3.: it has no axes; there are some of: summary, synthetic"),
        ("synthetic:width=3", "no axis 'width'; there are: depth, fan_out"),
        ("synthetic:depth=99,code", "depth=99: a whole number from 1 to 32"),
        ("synthetic:depth", "'depth' sets no axis"),
        ("synthetic,synthetic:fan_out=2,depth=2", "fan_out=2 needs depth=3"),
        ("summary:pages=3", "no axis 'pages'; there are: mode, parts"),
        ("summary:mode=chain", "mode=chain: refine or map_reduce"),
        ("summary:parts=0", "parts=0: a whole number from 1 to 64"),
        ("summary:parts=2.5", "parts=2.5"),
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


FOLDER: dict[str, list[dict[str, Any]]] = {
    "hotpotqa": [{"id": "h", "question": "Q?", "paragraphs": [{"title": "T", "text": "words"}]}],
    "livecode": [{"id": "l", "question_content": "Add."}],
    "papers": [{"id": "p", "text": "A b. C d."}],
    # Has a line for each, and is meant for none.
    "other": [
        {"id": "o", "question": "?", "question_content": "?", "text": "a b c d", "task": "?"}
    ],
}


def folder(path: Path, *names: str) -> Path:
    for name in names:
        text = "\n".join(json.dumps(line) for line in FOLDER[name])
        (path / f"{name}.jsonl").write_text(text)
    return path


def test_each_workload_takes_the_file_of_a_folder_that_is_meant_for_it(tmp_path: Path):
    whole = folder(tmp_path, *FOLDER)
    found = {name: [c.name for c in load_example(name, whole).cases] for name in NAMED}
    assert found == {"code": ["l"], "search": ["h"], "summary": ["p"]}


def test_without_such_a_file_all_files_are_read(tmp_path: Path):
    part = folder(tmp_path, "hotpotqa", "other")
    assert [case.name for case in load_example("code", part).cases] == ["o"]
    assert [case.name for case in load_example("search", part).cases] == ["h"]
    (tmp_path / "other.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"question_content in .*hotpotqa"):
        load_example("code", part)


def test_synthetic_has_its_own_tasks_unless_a_file_is_meant_for_it(tmp_path: Path):
    assert load_example("synthetic", folder(tmp_path, *FOLDER)) == load_example("synthetic")
    (tmp_path / "synthetic.jsonl").write_text('{"task": "T", "id": "s"}')
    case = ("s", {"task": "T"})
    assert load_example("synthetic", tmp_path).cases == (case,)
    assert load_example("synthetic", tmp_path / "synthetic.jsonl").cases == (case,)
    with pytest.raises(ConfigError, match=r"task in .*papers"):
        load_example("synthetic", tmp_path / "papers.jsonl")


NAMED = ("code", "search", "summary")


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


def ran(arm: str, workload: str, programs: int, **changes: Any) -> tuple[Any, Any, Any]:
    """A run of an arm on a workload: what was measured, what was counted, its engine."""
    bed = TestBed()
    bed.answers[arm] = ANSWERS
    example = load_example(workload)._replace(**changes)
    arrivals = [Arrival(case.name, case.state, 0.0) for case in example.draw(programs, seed=1)]
    server = ArmServer(parse_arm(arm), example, 16, lambda arm: bed.engine_of(arm, {}), 60.0)
    try:
        return *server.run(arrivals, 1), bed.engines[-1]
    finally:
        server.close()


@pytest.mark.parametrize("arm", ["vllm", "vllm-opt", "grape"])
@pytest.mark.parametrize(
    ("workload", "calls"),
    [
        ("summary", PARTS),
        ("summary:parts=2", 2),
        ("summary:mode=map_reduce,parts=3", 4),
        ("search", 4),
        ("synthetic:depth=3,static=40", 3),
        ("synthetic:depth=4,fan_out=2,static=40,tool_failure=0.3", 5),
    ],
)
def test_an_arm_runs_on_them(arm: str, workload: str, calls: int):
    record, _, engine = ran(arm, workload, 2)
    assert [len(program.calls) for program in record.programs] == [calls, calls]
    if arm == "grape":
        named = [request.task for request in requests(engine) if request.program is not None]
        assert len(named) >= 2 * calls
        for program in engine.programs[-2:]:
            assert {task.name for task in program.flow.tasks} <= set(program.fed)


class Together(ScriptedEngine):
    """Answers only when so many calls are there that nothing but siblings can be."""

    def __init__(self, siblings: int, tells: str) -> None:
        super().__init__(ANSWERS, delay=0.0)
        self.barrier = threading.Barrier(siblings)
        self.tells = tells

    def stream(self, request: CallRequest) -> Generator[CallDelta, None, None]:
        if self.tells in str(request.messages):
            self.barrier.wait(20)
        yield from super().stream(request)


@pytest.mark.parametrize(
    ("workload", "siblings", "tells"),
    [
        ("synthetic:depth=3,fan_out=16,static=20", 16, "the note of stage_2"),
        ("summary:mode=map_reduce,parts=40", 40, "You are the first reader"),
    ],
)
def test_siblings_run_side_by_side_whatever_the_machine(workload: str, siblings: int, tells: str):
    example = load_example(workload)
    engine = Together(siblings, tells)
    graph = example.build(ChatGrape(engine=engine, temperature=0), 8)
    graph.invoke(example.cases[0].state)
    assert len(engine.calls) >= siblings


@pytest.mark.parametrize("asked", [True, False])
def test_right_answers_are_counted_when_asked_for(asked: bool):
    _, counters, _ = ran("grape", "search", 36, **({} if asked else {"scorer": None}))
    found = {name: counters.get(name) for name in QUALITY}
    if asked:
        assert counters["answers_checked"] == 36
        assert (found["answers_exact"], found["answers_containing"]) == (1, 1)
        assert found["tests_passed"] is None
    else:
        assert found == dict.fromkeys(QUALITY)


def test_tool_calls_are_counted_also_where_no_answers_are_judged():
    axes = "synthetic:depth=4,tool_failure=0.5,static=20"
    counted = [ran(arm, axes, 8, scorer=None)[1] for arm in ("vllm", "grape")]
    for counters in counted:
        assert counters["tool_calls"] == 8 * 3 + counters["tool_failures"]
        assert counters["tool_failures"] > 0
        assert counters["tool_duplicates"] == 0
    assert counted[0]["tool_failures"] == counted[1]["tool_failures"]


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
    found = {"tests_run": 2, "tests_passed": 1, "programs_tested": 1, "programs_solved": 0}
    assert scorer(states) == found


def test_nothing_is_scored_where_nothing_is_known(tmp_path: Path):
    record = {"question": "Q?", "paragraphs": [{"title": "T", "text": "words"}]}
    (tmp_path / "x.jsonl").write_text(json.dumps(record))
    examples = [load_example(name) for name in ("code", "summary")]
    assert [e.scorer for e in [*examples, load_example("search", tmp_path)]] == [None] * 3
