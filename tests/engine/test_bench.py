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

SMALL = ["--programs", "2", "--max-tokens", "8", "--repeats", "1", "--rate", "2"]
LIMIT_S = 900


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, model_path: str
) -> tuple[subprocess.CompletedProcess[str], Path]:
    numbers = tmp_path_factory.mktemp("bench") / "numbers.json"
    command = [sys.executable, "-m", "grape_lc.cli", "bench", "code", *SMALL, "--model", model_path]
    command += ["--arms", "vllm-opt:max_num_batched_tokens=128,grape:static=false"]
    command += ["--kv-blocks", "64", "--json", str(numbers)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done, numbers


def test_both_arms_answer_alike_and_are_compared(finished):
    done, numbers = finished
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10 of 10" in done.stdout
    assert "grape:static=false against vllm-opt:max_num_batched_tokens=128: better" in done.stdout
    document = json.loads(numbers.read_text())
    assert document["equal"]["variants"]["grape:static=false"] == {"compared": 10, "identical": 10}
    for arm, metrics in document["metrics"].items():
        assert metrics["tokens_per_s"] > 0, arm
        assert metrics["switch_gap_ms"]["mean"] > 0, arm


def test_the_settings_reached_the_engines(finished):
    _, numbers = finished
    document = json.loads(numbers.read_text())
    for info in document["meta"]["engines"].values():
        assert info["num_blocks"] == 64
        assert info["max_model_len"] == 63 * 32  # vLLM keeps one block empty
    tuned, ours = document["meta"]["engines"].values()
    assert (tuned["scheduler"], ours["scheduler"]) == ("stock", "grape")
    runs = {run["arm"]: run for run in document["runs"]}
    assert "preemptions" in runs["grape:static=false"]["counters"]


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
        started = threading.Event()
        threads = [threading.Thread(target=call, args=("first", 0, 120, started))]
        threads[0].start()
        assert started.wait(60)
        for name, priority in (("late", 0), ("urgent", -4)):
            thread = threading.Thread(target=call, args=(name, priority, 2, threading.Event()))
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join(120)
    assert order == ["first", "urgent", "late"]
