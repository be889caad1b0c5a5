"""``grape demo`` for real: two vLLM engines, the workflow, the files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = ["--programs", "2", "--max-tokens", "8", "--rate", "2", "--order", "vllm,grape"]
LIMIT_S = 400


def grape(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "grape_lc.cli", *arguments]


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, model_path: str
) -> tuple[subprocess.CompletedProcess[str], Path, Path]:
    folder = tmp_path_factory.mktemp("demo")
    numbers, timeline = folder / "numbers.json", folder / "trace.json"
    command = grape("demo", *SMALL, "--model", model_path)
    command += ["--json", str(numbers), "--trace", str(timeline)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done, numbers, timeline


def test_answers_are_equal_and_the_table_is_shown(finished):
    done, numbers, _ = finished
    assert done.returncode == 0, done.stderr
    assert "answers equal: 10 of 10" in done.stdout
    assert "agentic ITL, mean" in done.stdout
    assert "\x1b" not in done.stdout  # no terminal, so plain lines
    assert json.loads(numbers.read_text())["equal"] == {"compared": 10, "identical": 10}


def test_figures_come_from_real_calls(finished):
    _, numbers, _ = finished
    document = json.loads(numbers.read_text())
    plain, ours = (document["metrics"][arm] for arm in ("vllm", "grape"))
    assert plain["ahead_share"] == 0.0
    assert 0 < ours["ahead_share"] < 1
    for metrics in (plain, ours):
        assert 0 < metrics["agentic_itl_ms"]["p50"] <= metrics["agentic_itl_ms"]["max"]
        assert metrics["switch_gap_ms"]["mean"] > 0
        assert 0 < metrics["ttft_ms"]["mean"] / 1000 < metrics["program_s"]["mean"]
        assert metrics["tokens_per_s"] > 0
    for run in document["raw"]["runs"]:
        for program in run["programs"]:
            # The graph runs role by role, so every call is made after the last one's tokens.
            ends = [call["tokens"][-1][0] for call in program["calls"]]
            made = [call["submitted"] for call in program["calls"]]
            assert len(made) == 5
            assert all(end <= start for end, start in zip(ends, made[1:], strict=False))
            assert program["arrived"] <= made[0]
            assert ends[-1] <= program["finished"]


def test_the_timeline_has_every_call_of_every_program(finished):
    _, _, timeline = finished
    events = json.loads(timeline.read_text())["traceEvents"]
    decodes = [event for event in events if event.get("cat") == "decode"]
    assert len(decodes) == 2 * 2 * 5
    assert {event["name"] for event in decodes} == {
        "product_planner",
        "framework_designer",
        "project_planner",
        "code_generator",
        "test_validator",
    }
    assert any(event.get("cat") == "ahead" for event in events)
