from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grape_lc.engine.simulator.programs import NO_TARGETS, Program, Workload
from grape_lc.engine.simulator.recorded import from_record, read_runs
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.errors import ConfigError

CACHED = 992  # of the first role's 1,024 + 12 tokens, in blocks of 32


def raw(program: Program, arrived: float, cached: int) -> dict[str, Any]:
    calls = [
        {
            "task": task.name,
            "prompt_tokens": task.prompt,
            "cached_tokens": cached,
            "tokens": [[arrived + n, 1] for n in range(task.output)],
        }
        for task in program.tasks
    ]
    return {"program": str(program.number), "arrived": arrived, "finished": 9e9, "calls": calls}


def document(tmp_path: Path, count: int = 4) -> tuple[Path, list[Program]]:
    """A record of programs of the shape ``code``; later ones find the first role cached."""
    work = Workload(SHAPES["code"], 5)
    programs = [work.program(number) for number in range(count)]
    runs = [
        raw(program, 2.0 * program.number, CACHED * (program.number > 0)) for program in programs
    ]
    path = tmp_path / "demo.json"
    path.write_text(json.dumps({"raw": {"runs": [{"arm": "vllm", "programs": runs[::-1]}]}}))
    return path, programs


def test_programs_come_back_with_their_arrivals_lengths_and_dependencies(tmp_path):
    path, programs = document(tmp_path)
    found = from_record(path)
    assert found.arm == "vllm"
    assert found.arrivals.at == (0.0, 2.0, 4.0, 6.0)
    for number, program in enumerate(programs):
        again = found.program(number)
        assert [task.prompt for task in again.tasks] == [task.prompt for task in program.tasks]
        assert [task.output for task in again.tasks] == [task.output for task in program.tasks]
        assert again.graph == program.graph
        assert again.targets == NO_TARGETS, "the recorded run had none"


def test_what_is_shared_is_about_what_was_shared(tmp_path):
    path, programs = document(tmp_path)
    found = from_record(path)
    for number, program in enumerate(programs):
        for task, again in zip(program.tasks, found.program(number).tasks, strict=True):
            static = sum(part.tokens for part in task.parts if part.source < 1000)
            shared = sum(part.tokens for part in again.parts if part.source < 1000)
            assert shared == pytest.approx(static, abs=60), task.name


def test_the_file_of_a_bench_is_read_too(tmp_path):
    path, _ = document(tmp_path)
    bench = tmp_path / "bench.json"
    bench.write_text(json.dumps(json.loads(path.read_text())["raw"]))
    assert read_runs(bench) == read_runs(path)


def test_what_is_no_record_is_refused_with_the_reason(tmp_path):
    path, _ = document(tmp_path)
    with pytest.raises(ConfigError, match="has 1 runs, and none at place 3"):
        from_record(path, run=3)
    with pytest.raises(ConfigError, match=r"cannot read .*absent"):
        from_record(tmp_path / "absent")
    for text, words in (
        ("no", "is not JSON"),
        ("{}", "has no raw runs"),
        ('{"runs": [{"arm": "a", "programs": [{"arrived": 0}]}]}', "is not a recorded run"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=words):
            from_record(path)


def changed(path: Path, change: Any) -> None:
    document = json.loads(path.read_text())
    change(document["raw"]["runs"][0]["programs"][0])
    path.write_text(json.dumps(document))


def test_a_call_that_was_cut_short_takes_a_step(tmp_path):
    path, _ = document(tmp_path)
    changed(path, lambda program: program["calls"][0].update(tokens=[]))
    # Programs go by arrival, and the file has the last one first.
    assert from_record(path).program(3).tasks[0].output == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda program: program["calls"][0].update(tokens=[[1.0, -5]]),
        lambda program: program["calls"][0].update(prompt_tokens=-1),
        lambda program: program.update(arrived=float("nan")),
        lambda program: program.update(arrived=float("inf")),
    ],
)
def test_records_of_what_cannot_be_are_refused(tmp_path, change):
    path, _ = document(tmp_path)
    changed(path, change)
    with pytest.raises(ConfigError, match=r"run 0|is no number of JSON"):
        from_record(path)


def test_tasks_that_no_shape_has_are_named(tmp_path):
    path, _ = document(tmp_path)
    path.write_text(path.read_text().replace("code_generator", "poet"))
    with pytest.raises(ConfigError, match=r"no known shape has the tasks .*poet.*; known: code"):
        from_record(path)
