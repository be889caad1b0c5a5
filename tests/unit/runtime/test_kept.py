"""What is kept for calls and programs is told, in the user's process and in the host."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grape_lc import GrapeEngine, InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.engine.base import CallRequest
from grape_lc.runtime import client


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[GrapeEngine]:
    """In the place of vLLM, an engine that answers with the words of the prompt."""
    monkeypatch.setattr(client, "_VLLM", "word_engine:WordEngine")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "hosted"))
    with GrapeEngine("someone/words", progress=False) as engine:
        yield engine


def flow() -> TaskFlow:
    flow = TaskFlow(name="two")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("text"))
    flow.add_task("plan {topic} now", "plan")
    flow.add_task([("user", "write {plan|strip} out")], "text")
    return flow


def test_a_call_and_a_program_are_seen_while_they_last(engine: GrapeEngine) -> None:
    before = engine.stats()
    assert before["client"] == {"calls": 0}
    assert before["host"]["calls"] == before["host"]["programs"] == 0
    program = engine.open_program(flow(), {"topic": "bees"})
    stream = engine.stream(CallRequest(text="one slow"))
    assert next(stream).text == "one "
    during = engine.stats()
    assert during["client"] == {"calls": 1}
    assert {name: during["host"][name] for name in ("calls", "programs", "prompts")} == {
        "calls": 1,
        "programs": 1,
        "prompts": 1,
    }
    assert during["host"]["tasks"] == before["host"]["tasks"] + 1
    stream.close()  # type: ignore[attr-defined]
    engine.close_program(program)
    end = time.monotonic() + 60
    while engine.stats()["host"]["calls"]:  # the host has heard of it, but a call takes time to end
        assert time.monotonic() < end, engine.stats()
        time.sleep(0.01)
    after = engine.stats()
    assert after["client"] == before["client"]
    assert after["host"] == {**before["host"], "flows": 1}, "how often tasks are called is kept"
