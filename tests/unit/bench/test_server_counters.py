from typing import Any

from grape_lc.bench.arms import parse_arm
from grape_lc.bench.examples import load_example
from grape_lc.bench.server import ArmServer
from grape_lc.bench.workload import Arrival
from tests.unit.bench.fakes import BenchScript, TestBed


class Counting(BenchScript):
    """Tells of one more preemption, and of another peak, whenever it is asked."""

    asked = 0

    def stats(self) -> dict[str, Any]:
        self.asked += 1
        return {"preemptions": self.asked, "peak_kv_bytes": 100 * self.asked, "pressed": True}


def test_counters_are_what_they_rose_by_and_peaks_what_they_are():
    bed, example = TestBed(), load_example("code", None)
    server = ArmServer(
        parse_arm("vllm"), example, 8, lambda arm: Counting(arm, {}, bed), limit_s=60.0
    )
    try:
        case = example.cases[0]
        _, counters = server.run([Arrival(case.name, case.state, 0.0)], 1)
    finally:
        server.close()
    assert counters["preemptions"] == 1
    assert counters["peak_kv_bytes"] == 200
    assert "pressed" not in counters
