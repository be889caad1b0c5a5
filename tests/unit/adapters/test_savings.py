"""What runs saved: noted with each call, kept for a while, written for other processes."""

from __future__ import annotations

import gc
import json
import logging
import tempfile
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grape_lc.adapters.savings import (
    MOST_CALLS,
    MOST_RUNS,
    PROGRAM,
    CallSaving,
    RunSavings,
    Savings,
    load,
    merged,
    save,
    savings_path,
)
from grape_lc.engine.base import Usage

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def run_of(*tasks: str, at: float = 0.0, prompt: int = 10) -> RunSavings:
    run = RunSavings(at=at)
    for task in tasks:
        run.note(task, PROGRAM, Usage(prompt, 5, 4, 3, "adopted"))
    return run


def test_a_call_is_noted_with_its_numbers():
    assert run_of("plan").calls == [CallSaving("plan", 10, 5, 4, 3, "adopted", PROGRAM)]


def test_a_run_notes_no_more_calls_than_it_may():
    assert len(run_of(*["a"] * (MOST_CALLS + 3)).calls) == MOST_CALLS


def test_only_the_last_runs_with_calls_are_kept():
    kept = Savings()
    kept.add(run_of())
    runs = [run_of("a", at=float(n)) for n in range(MOST_RUNS + 5)]
    for run in runs:
        kept.add(run)
    assert kept.runs == tuple(runs[5:])


def test_runs_of_several_threads_are_all_kept():
    kept = Savings()
    threads = [threading.Thread(target=kept.add, args=(run_of("a"),)) for _ in range(MOST_RUNS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept.runs) == MOST_RUNS


def test_another_process_reads_what_was_written(tmp_path: Path):
    path = tmp_path / "graphs" / "g.savings.json"
    one, other = Savings(), Savings()
    one.keep_in(lambda: path)
    other.keep_in(lambda: path)
    first, second, third = (run_of("a", at=float(n)) for n in range(3))
    one.add(second)
    one.flush()
    other.add(third)
    other.flush()
    one.add(first)
    one.flush()
    assert load(path) == (first, second, third)
    assert one.runs == other.runs == (first, second, third)
    # Nobody else's file is left behind.
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_runs_in_quick_succession_are_written_together_at_the_end(tmp_path: Path):
    path = tmp_path / "g.savings.json"
    kept = Savings()
    kept.keep_in(lambda: path, pause_s=3600)
    for number in range(3):
        kept.add(run_of("a", at=float(number)))
    assert load(path) == ()
    del kept
    gc.collect()
    assert len(load(path)) == 3


def test_a_run_is_written_soon_by_itself(tmp_path: Path):
    path = tmp_path / "g.savings.json"
    kept = Savings()
    kept.keep_in(lambda: path, pause_s=0)
    kept.add(run_of("a"))
    end = time.monotonic() + 60
    while not load(path) and time.monotonic() < end:
        time.sleep(0.01)
    assert load(path) == kept.runs


def test_no_file_is_made_without_a_run(tmp_path: Path):
    asked: list[int] = []

    def path() -> Path:
        asked.append(1)
        return tmp_path / "g.json"

    kept = Savings()
    kept.keep_in(path)
    del kept
    gc.collect()
    assert (asked, list(tmp_path.iterdir())) == ([], [])


def test_what_cannot_be_written_is_said_once_and_kept_here(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "file").write_text("")
    kept = Savings()
    kept.keep_in(lambda: tmp_path / "file" / "g.json")
    with caplog.at_level(logging.WARNING):
        for run in (run_of("a", at=1.0), run_of("b", at=2.0)):
            kept.add(run)
            kept.flush()
    assert [len(run.calls) for run in kept.runs] == [1, 1]
    assert len(caplog.records) == 1


def test_where_writing_fails_nothing_is_left_behind(tmp_path: Path):
    path = tmp_path / "g.json"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        save(path, [run_of("a")])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"version": 2, "runs": []}',
        '{"version": 1, "runs": [{"id": "x"}]}',
        '{"version": 1, "runs": [{"id": "x", "at": 1, "calls": [["a", 1, 2]]}]}',
        '{"version": 1, "runs": [{"id": "x", "at": 1, "calls": [["a", 1, 2, 3, "n", "o", "p"]]}]}',
        '{"version": 1, "runs": [{"id": "x", "at": 1, "calls": [["a", 1e999, 2, 3, 4, "", ""]]}]}',
        f'{{"version": 1, "runs": [{{"id": "x", "at": 1{"0" * 400}, "calls": []}}]}}',
        "\xff",
    ],
)
def test_a_file_that_is_no_record_is_left_alone(content: str, tmp_path: Path):
    path = tmp_path / "g.json"
    path.write_bytes(content.encode("latin-1"))
    assert load(path) == ()
    assert load(tmp_path / "none.json") == ()


def test_the_file_holds_numbers_and_names_of_calls(tmp_path: Path):
    path = tmp_path / "g.json"
    save(path, [run_of("plan", at=2.5)])
    [run] = json.loads(path.read_text())["runs"]
    assert run["calls"] == [["plan", 10, 5, 4, 3, "adopted", PROGRAM]]
    assert run["at"] == 2.5


def test_the_path_is_in_the_folder_for_graphs_and_changes_with_the_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("GRAPE_LC_GRAPHS", str(tmp_path))
    path = savings_path("My graph/../x", "0123456789abcdef")
    assert path == tmp_path / "My_graph_.._x-0123456789ab.savings.json"
    assert savings_path("My graph/../x", "f" * 64) != path


runs_of_two = st.lists(
    st.builds(RunSavings, id=st.sampled_from("abcdefgh"), at=st.integers(0, 5).map(float)),
    max_size=30,
)


@steady
@given(runs_of_two, runs_of_two)
def test_merging_keeps_the_latest_each_once(others, own):
    result = merged(others, own)
    ids = [run.id for run in result]
    assert len(ids) == len(set(ids)) == len({run.id for run in (*others, *own)})
    assert [(run.at, run.id) for run in result] == sorted((run.at, run.id) for run in result)
    # Of a run that both have, this process's state is the newer one.
    newest = {run.id: run for run in own}
    assert all(newest.get(run.id, run) is run for run in result)


numbers = st.integers(0, 10**6)


@steady
@given(
    st.lists(
        st.builds(
            RunSavings,
            id=st.uuids().map(str),
            at=st.floats(0, 1e10),
            calls=st.lists(
                st.builds(
                    CallSaving, st.text(), numbers, numbers, numbers, numbers, st.text(), st.text()
                ),
                max_size=4,
            ),
        ),
        max_size=5,
    )
)
def test_what_is_written_is_what_is_read(runs):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "g.json"
        save(path, runs)
        assert load(path) == tuple(runs)
