import pytest

from grape_lc.bench.arms import parse_arm
from grape_lc.bench.examples import load_example
from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord
from grape_lc.bench.probe import Probe, closed_loop, probe_of, run_probe
from grape_lc.bench.server import ArmServer
from grape_lc.bench.workload import Arrival
from tests.unit.bench.fakes import TestBed


def program(name: str, finished: float, *calls: tuple[int, int]) -> ProgramRecord:
    """A program from (prompt tokens, output tokens) of its calls."""
    records = tuple(
        CallRecord(n, "t", 0.0, ((1.0, output),), prompt_tokens=prompt)
        for n, (prompt, output) in enumerate(calls)
    )
    return ProgramRecord(name, 0.0, finished, records)


def test_rate_and_sizes_follow_from_the_records():
    run = RunRecord(
        "vllm-opt",
        (program("a", 5.0, (100, 10), (60, 20)), program("b", 10.0, (90, 30), (200, 40))),
    )
    probe = probe_of(run, 32)
    assert probe == Probe(10.0, 50.0, (110, 240), 32)
    assert probe.saturated_rate == pytest.approx(0.2)  # two programs in ten seconds


def test_blocks_are_a_share_of_the_largest_calls():
    probe = Probe(1.0, 1.0, (320, 640), 32)
    assert probe.kv_blocks(1.0) == 30 + 1
    assert probe.kv_blocks(0.8) == 24 + 1


def test_the_largest_call_fits_in_any_case():
    probe = Probe(1.0, 1.0, (320, 641), 32)
    assert probe.kv_blocks(0.01) == 21 + 1


def test_a_run_without_tokens_is_no_probe():
    with pytest.raises(ValueError, match="no tokens"):
        probe_of(RunRecord("vllm-opt", ()), 32)


def test_all_programs_start_at_once():
    bed = TestBed()
    arrivals = [
        Arrival("a", {"problem": "First."}, 0.0),
        Arrival("b", {"problem": "Second."}, 60.0),
    ]
    assert [arrival.at for arrival in closed_loop(arrivals)] == [0.0, 0.0]
    server = ArmServer(
        parse_arm("vllm-opt"),
        load_example("code"),
        16,
        lambda arm: bed.engine_of(arm, {}),
        limit_s=30.0,
    )
    probe = run_probe(server, arrivals)
    assert len(probe.largest) == 2
    assert probe.block_size == 32
    assert bed.log == ["open vllm-opt", "run vllm-opt"]
    server.close()
