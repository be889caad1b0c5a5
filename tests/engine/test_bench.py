"""``grape bench`` for real, in small; and the priorities that its tuned arm rests on."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from grape_lc import GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.flow.sampling import Sampling
from tests.engine.conftest import SETTINGS

SMALL = ["--programs", "2", "--max-tokens", "8", "--repeats", "1", "--rates", "2"]
TUNED, OURS = "vllm-opt:max_num_batched_tokens=128", "grape:static=false"
LIMIT_S = 400


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, model_path: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    numbers = tmp_path_factory.mktemp("bench") / "numbers.json"
    command = [sys.executable, "-m", "grape_lc.cli", "bench", *SMALL, "--model", model_path]
    command += ["--workloads", "code,search", "--variants", f"{TUNED},{OURS}"]
    command += ["--kv-blocks", "64", "--json", str(numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done, numbers


def test_both_arms_answer_alike_and_are_compared(finished):
    done, numbers = finished
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{OURS} against {TUNED}: better" in done.stdout
    document = json.loads(numbers.read_text())
    # Two programs of five calls, and two of four.
    assert document["equal"]["variants"][OURS] == {"compared": 18, "identical": 18}
    places = [(entry["workload"], entry["variant"]) for entry in document["metrics"]]
    assert places == [(w, variant) for w in ("code", "search") for variant in (TUNED, OURS)]
    for entry in document["metrics"]:
        assert entry["metrics"]["tokens_per_s"] > 0, entry["variant"]
        assert entry["metrics"]["switch_gap_ms"]["mean"] > 0, entry["variant"]


def test_both_workloads_run_on_the_same_engines(finished):
    done, _ = finished
    for arm in (TUNED, OURS):
        assert done.stdout.count(f"starting the {arm} engine") == 1
    assert "4 of 4 runs" in done.stdout


def test_the_settings_reached_the_engines(finished):
    _, numbers = finished
    document = json.loads(numbers.read_text())
    for cell in document["meta"]["cells"]:
        for info in cell["engines"].values():
            assert info["num_blocks"] == 64
            assert info["max_model_len"] == 63 * 32  # vLLM keeps one block empty
        tuned, ours = cell["engines"].values()
        assert (tuned["scheduler"], ours["scheduler"]) == ("stock", "grape")
    runs = {run["arm"]: run for run in document["runs"]}
    assert "preemptions" in runs[OURS]["counters"]


def test_a_call_of_higher_priority_overtakes_one_that_waits(model_path: str):
    """One slot: while it is taken, two calls wait, the less urgent one came first."""
    order: list[str] = []

    def call(name: str, priority: int, tokens: int, began: threading.Event) -> None:
        sampling = Sampling(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        request = CallRequest(text=f"The {name} call.", sampling=sampling, priority=priority)
        for delta in engine.stream(request):
            began.set()
            if delta.finish_reason is not None:
                order.append(name)

    args = {**SETTINGS, "max_num_seqs": 1, "scheduling_policy": "priority"}
    with GrapeEngine(model_path, scheduler="stock", progress=False, **args) as engine:
        for _ in range(3):  # on a busy machine the first call may end before the others came
            order.clear()
            started = threading.Event()
            threads = [threading.Thread(target=call, args=("first", 0, 120, started))]
            threads[0].start()
            assert started.wait(240)
            for name, priority in (("late", 0), ("urgent", -4)):
                thread = threading.Thread(target=call, args=(name, priority, 2, threading.Event()))
                thread.start()
                threads.append(thread)
            for thread in threads:
                thread.join(240)
            if order == ["first", "urgent", "late"]:
                return
    assert order == ["first", "urgent", "late"]
