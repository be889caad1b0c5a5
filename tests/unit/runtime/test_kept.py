"""What is kept for calls and programs is told, in the user's process and in the host."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from grape_lc import GrapeEngine
from grape_lc.engine.base import CallRequest
from tests.unit.runtime.word_graphs import MODEL, two_tasks, word_hosts


@pytest.fixture
def engine() -> Iterator[GrapeEngine]:
    """In the place of vLLM, an engine that answers with the words of the prompt."""
    with word_hosts(), GrapeEngine(MODEL, progress=False) as engine:
        yield engine


def test_a_call_and_a_program_are_seen_while_they_last(engine: GrapeEngine) -> None:
    before = engine.stats()
    assert before["client"] == {"calls": 0}
    assert before["host"]["calls"] == before["host"]["programs"] == 0
    program = engine.open_program(two_tasks(), {"topic": "bees"})
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
