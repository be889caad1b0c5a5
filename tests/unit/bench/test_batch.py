from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from grape_lc.bench import batch
from grape_lc.bench.batch import Batch, Kept, code_digest, duration
from grape_lc.errors import ConfigError

ran: list[str] = []


@dataclass(frozen=True)
class Double:
    number: int
    weight: float = 1.0

    @property
    def key(self) -> str:
        return f"double {self.number}"

    def run(self) -> int:
        ran.append(self.key)
        return 2 * self.number


def results(path, numbers, code="a", planned=None):
    ran.clear()
    jobs = [Double(number) for number in numbers]
    with Batch(Kept(path, code), planned or len(jobs), 1, lambda text: None) as batch:
        return batch.results(jobs)


def test_what_is_kept_is_not_run_again(tmp_path):
    path = tmp_path / "kept.jsonl"
    assert results(path, [1, 2]) == [2, 4]
    assert results(path, [2, 3, 1]) == [4, 6, 2]
    assert ran == ["double 3"]


def test_results_of_other_code_are_not_taken_and_not_lost(tmp_path):
    path = tmp_path / "kept.jsonl"
    results(path, [1])
    results(path, [1], code="b")
    assert ran == ["double 1"]
    results(path, [1])
    assert ran == []


def test_equal_jobs_run_once():
    assert results(None, [5, 5, 6]) == [10, 10, 12]
    assert ran == ["double 5", "double 6"]


def test_a_line_cut_short_by_an_interrupt_is_taken_off(tmp_path):
    path = tmp_path / "kept.jsonl"
    results(path, [1, 2])
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert results(path, [1, 2]) == [2, 4]
    assert ran == ["double 2"]
    assert path.read_bytes() == whole


@pytest.mark.parametrize("text", ["no json\n", "[]\n", '{"code": "a"}\n', "cut"])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "kept.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="holds no results of simulations"):
        Kept(path, "a")
    assert path.read_text() == text


def test_files_that_cannot_be_read_or_written_are_told(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        Kept(tmp_path, "a")
    with pytest.raises(ConfigError, match="cannot write"):
        Kept(tmp_path / "none" / "kept.jsonl", "a").add("x", 1)


def test_the_time_left_is_that_of_the_weights_not_done(tmp_path):
    path, now = tmp_path / "kept.jsonl", [0.0]
    said: list[str] = []
    results(path, [0])

    class Slow(Double):
        def run(self) -> int:
            now[0] += 10 * self.weight
            return super().run()

    with Batch(Kept(path, "a"), 6.0, 1, said.append, clock=lambda: now[0]) as batch:
        assert batch.left_s() is None
        batch.results([Double(0), Slow(1), Slow(2, weight=3.0)])
        assert batch.left_s() == pytest.approx(10.0)  # weight 1 of 6 is left; the kept one was free
    assert said == ["1 simulations, 33% done, 40 s left", "2 simulations, 83% done, 10 s left"]


def test_processes_give_the_same_results():
    with Batch(Kept(None, "a"), 3, 2, lambda text: None) as batch:
        assert batch.results([Double(number) for number in (3, 1, 2)]) == [6, 2, 4]


def test_an_interrupt_ends_what_waits_and_keeps_what_is_done(tmp_path):
    path = tmp_path / "kept.jsonl"

    class Stopped(Double):
        def run(self) -> int:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        Batch(Kept(path, "a"), 2, 1, lambda text: None) as batch,
    ):
        batch.results([Double(1), Stopped(2)])
    assert [json.loads(line)["key"] for line in path.read_text().splitlines()] == ["double 1"]


def test_the_digest_is_that_of_the_source():
    assert code_digest() == code_digest()
    assert len(code_digest()) == 16


def test_durations_are_told_in_minutes_from_a_minute_on():
    assert [duration(s) for s in (0.2, 59.4, 60, 754)] == [
        "0 s",
        "59 s",
        "1 min 0 s",
        "12 min 34 s",
    ]


def test_the_digest_reads_all_that_a_simulation_is_made_of():
    """What only keeps, shows or compares results may change without a new simulation."""
    shown = {"batch", "intervals", "names", "paper_options", "paper_rows", "report"}
    script = """
import sys
import grape_lc.bench.paper_jobs, grape_lc.bench.regimes
prefix = "grape_lc.bench."
print(*(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)))
"""
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    names = set(loaded.stdout.decode().split()) - shown - {"workers"}
    assert {f"bench/{name}.py" for name in names} <= set(batch._SOURCES)
