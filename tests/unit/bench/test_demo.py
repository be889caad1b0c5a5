import io
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rich.console import Console

from grape_lc.bench.demo import DemoResult, run_demo, show, write_outputs
from grape_lc.bench.settings import DemoSettings, describe, settings_record
from grape_lc.engine.base import CallRequest
from grape_lc.errors import CallFailedError, ConfigError, EngineClosedError
from grape_lc.runtime.scripted import ScriptedEngine

# A role in the system prompt decides the answer; the problem is repeated in it by none.
ROLES = {
    "the product planner of": "Goal: as the problem says.",
    "the framework designer of": "Approach: one loop.\nInterface: solve().",
    "the project planner of": "Tasks:\nT1. solve",
    "the code generator of": "```python\ndef solve(): ...\n```",
    "the test validator of": "Verdict: PASS",
}


class DemoScript(ScriptedEngine):
    """A scripted engine with a prefix cache to reset."""

    def __init__(self, arm: str, log: list[str], **answers: str) -> None:
        super().__init__(answers or ROLES, delay=0.0005)
        self.arm = arm
        self.log = log

    def __enter__(self) -> "DemoScript":
        self.log.append(f"open {self.arm}")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.log.append(f"close {self.arm}")
        self.close()

    def reset_prefix_cache(self) -> bool:
        self.log.append(f"reset {self.arm}")
        return True


SETTINGS = DemoSettings(programs=3, rate=50.0)


def console() -> Console:
    return Console(file=io.StringIO(), width=110)


def printed(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


def demo(settings: DemoSettings = SETTINGS) -> tuple[DemoResult, dict[str, DemoScript], list[str]]:
    log: list[str] = []
    engines: dict[str, DemoScript] = {}

    def engine_of(arm: str) -> Any:
        engines[arm] = DemoScript(arm, log)
        return engines[arm]

    return run_demo(settings, console(), engine_of=engine_of), engines, log


def test_both_arms_run_the_same_programs_in_the_order_asked_for():
    result, engines, log = demo()
    assert log == [
        *("open vllm", "open grape"),
        *("reset vllm", "reset grape", "reset grape", "reset vllm"),
        *("close grape", "close vllm"),
    ]
    assert [run.arm for run in result.runs] == ["vllm", "grape", "grape", "vllm"]
    names = [[program.program for program in run.programs] for run in result.runs]
    assert names == [names[0]] * 4
    for run in result.runs:
        for program in run.programs:
            assert [call.text for call in program.calls] == list(ROLES.values())
    # Five calls of a warm-up, then two runs of three programs with five calls each.
    assert len(engines["vllm"].calls) == len(engines["grape"].calls) == 5 + 2 * 3 * 5


def test_only_grape_is_told_of_programs_and_their_prompts_are_the_same():
    _, engines, _ = demo()
    assert engines["vllm"].programs == ()
    programs = engines["grape"].programs
    assert len(programs) == 1 + 2 * 3
    assert not any(program.open for program in programs)
    (flow,) = {program.flow.to_json() for program in programs[1:]}  # the first is the warm-up
    tasks = [task["name"] for task in json.loads(flow)["tasks"]]
    assert tasks == [
        "product_planner",
        "framework_designer",
        "project_planner",
        "code_generator",
        "test_validator",
    ]
    prompts = [sorted(call.prompt for call in engine.calls) for engine in engines.values()]
    assert prompts[0] == prompts[1]


def test_the_flow_foresees_every_prompt_in_full():
    _, engines, _ = demo()
    for program in engines["grape"].programs:
        values = dict(program.inputs)
        for task in program.flow.order():
            values[task.output] = "".join(program.fed[task.name])
        for task in program.flow.tasks:
            messages = task.prompt.render_messages(values)
            foreseen = CallRequest(messages=tuple(messages))
            made = [c.request.messages for c in engines["grape"].calls]
            assert foreseen.messages in made


def test_figures_answers_and_equality_are_reported():
    result, _, _ = demo()
    assert result.equal == (30, 30)
    assert result.base_equal == (15, 15)
    assert result.answer[1] == ROLES["the code generator of"]
    assert set(result.metrics) == {"vllm", "grape"}
    to = console()
    show(SETTINGS, result, to)
    text = printed(to)
    assert "def solve(): ..." in text
    assert "answers equal: 30 of 30" in text
    assert "agentic ITL, mean" in text
    assert "drafting" not in text


def test_differing_answers_are_said_and_put_beside_vllm_itself():
    result, _, _ = demo()
    result = result._replace(equal=result.equal._replace(identical=20))
    to = console()
    show(SETTINGS, result._replace(base_equal=result.equal), to)
    assert "answers equal: 20 of 30" in printed(to)
    assert "plain vLLM with itself, between its runs: 20 of 30" in printed(to)


def test_the_files_have_their_forms(tmp_path: Path):
    result, _, _ = demo()
    numbers, timeline = tmp_path / "numbers.json", tmp_path / "trace.json"
    write_outputs(SETTINGS, result, "cpu", numbers, timeline)
    document = json.loads(numbers.read_text())
    assert set(document) == {"metrics", "equal", "raw"}
    assert document["equal"] == {"compared": 30, "identical": 30}
    for arm in ("vllm", "grape"):
        metrics = document["metrics"][arm]
        shape = {
            name: sorted(figure) if isinstance(figure, dict) else float
            for name, figure in metrics.items()
        }
        assert shape == {
            "agentic_itl_ms": ["max", "mean", "p50", "p95", "p99"],
            "switch_gap_ms": ["max", "mean", "p95"],
            "ttft_ms": ["mean", "p95"],
            "program_s": ["mean", "p95"],
            "makespan_s": float,
            "tokens_per_s": float,
            "ahead_share": float,
        }
        assert isinstance(metrics["makespan_s"], float)
    raw = document["raw"]
    assert len(raw["runs"]) == 4
    assert raw["settings"]["programs"] == 3
    assert raw["engine_args"] == {"dtype": "float32"}
    assert raw["vllm_against_itself"] == {"compared": 15, "identical": 15}
    assert len(json.loads(timeline.read_text())["traceEvents"]) > 4 * 3 * 10


def test_engines_are_closed_when_a_program_fails():
    log: list[str] = []

    def engine_of(arm: str) -> Any:
        return DemoScript(arm, log, nothing="fits")

    with pytest.raises(CallFailedError):
        run_demo(SETTINGS, console(), engine_of=engine_of)
    assert log == ["open vllm", "open grape", "close grape", "close vllm"]


def test_the_first_engine_is_closed_when_the_second_does_not_start():
    log: list[str] = []

    def engine_of(arm: str) -> Any:
        if arm == "grape":
            raise EngineClosedError("no second engine")
        return DemoScript(arm, log)

    with pytest.raises(EngineClosedError):
        run_demo(SETTINGS, console(), engine_of=engine_of)
    assert log == ["open vllm", "close vllm"]


def test_bad_problems_are_found_before_an_engine_starts(tmp_path: Path):
    def engine_of(arm: str) -> Any:
        raise AssertionError(arm)

    with pytest.raises(ConfigError, match="question_content"):
        run_demo(DemoSettings(data=tmp_path), console(), engine_of=engine_of)


@pytest.mark.parametrize("order", [("vllm",), ("grape", "grape"), ("vllm", "grape", "parrot"), ()])
def test_an_order_names_both_arms_and_nothing_else(order: tuple[str, ...]):
    with pytest.raises(ValidationError, match="both arms"):
        DemoSettings(order=order)


def test_engine_arguments_fit_the_device():
    assert DemoSettings().engine_args("cpu") == {"dtype": "float32"}
    gpu = DemoSettings().engine_args("gpu")
    assert gpu["dtype"] == "auto"
    assert 2 * gpu["gpu_memory_utilization"] < 1
    assert DemoSettings(dtype="bfloat16").engine_args("cpu") == {"dtype": "bfloat16"}
    assert DemoSettings(draft=True).engine_args("cpu")["speculative_config"]["method"] == "ngram"


def test_the_description_says_what_matters():
    text = describe(DemoSettings(draft=True, programs=5), "cpu")
    for part in ("5 programs", "float32 on cpu", "n-gram drafting in both arms", "temperature 0"):
        assert part in text
    assert "no drafting" in describe(DemoSettings(), "cpu")


def test_settings_are_recorded_with_versions():
    record = settings_record(DemoSettings(data=Path("x")), "cpu")
    assert record["settings"]["data"] == "x"
    assert "langgraph" in record["versions"]
    json.dumps(record)
