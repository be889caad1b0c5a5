"""Running a flow: the checks before, and the result gathered from a runner's events."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest

from grape_lc.errors import EngineError, FlowInputError, NeverReadError
from grape_lc.flow import (
    FlowResult,
    InputVar,
    IntermediateVar,
    OutputVar,
    ProgramFinished,
    TaskFinished,
    TaskFlow,
    TaskStarted,
    TokenEvent,
)


class Counts(NamedTuple):
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    ahead_tokens: int = 0
    ahead_outcome: str = "none"


class EchoRunner:
    """A runner whose model answers each prompt with the prompt in capitals, at once."""

    def __init__(self, *, stop_before: str | None = None) -> None:
        self.stop_before = stop_before
        self.closed = 0

    def run_flow_events_sync(self, flow, inputs, tenant=""):
        values = dict(inputs)
        try:
            for at, task in enumerate(flow.order()):
                if task.name == self.stop_before:
                    return
                prompt = task.prompt.render_text(values)
                answer = prompt.upper()
                values[task.output] = answer
                yield TaskStarted("p1", task.name, at)
                yield TokenEvent("p1", task.name, answer, (7,), at)
                yield TaskFinished(
                    "p1", task.name, answer, "stop", Counts(len(prompt), len(answer)), at
                )
            outputs = {v.name: values[v.name] for v in flow.variables if v.kind == "output"}
            yield ProgramFinished("p1", outputs, values, len(flow.tasks))
        finally:
            self.closed += 1

    async def run_flow_events(self, flow, inputs, tenant=""):
        for event in self.run_flow_events_sync(flow, inputs, tenant):
            await asyncio.sleep(0)
            yield event


def echo() -> TaskFlow:
    flow = TaskFlow(name="echo")
    flow.add_variable(InputVar("a"))
    flow.add_variable(IntermediateVar("x"))
    flow.add_variable(OutputVar("o"))
    flow.add_task("say {a}", "x")
    flow.add_task("again: {x|strip}", "o", name="again")
    return flow


EXPECTED = FlowResult(
    program="p1",
    outputs={"o": "AGAIN: SAY HI"},
    values={"a": "hi ", "x": "SAY HI ", "o": "AGAIN: SAY HI"},
    usage={"x": Counts(7, 7), "again": Counts(13, 13)},
)


def test_the_result_holds_outputs_values_and_usage():
    runner = EchoRunner()
    assert echo().run_sync(runner, {"a": "hi "}) == EXPECTED
    assert runner.closed == 1, "the runner came to its own end"


async def test_the_same_on_an_event_loop():
    runner = EchoRunner()
    assert await echo().run(runner, {"a": "hi "}) == EXPECTED
    assert runner.closed == 1


async def test_streams_give_the_runner_s_events():
    flow = echo()
    events = list(flow.stream_sync(EchoRunner(), {"a": "hi "}))
    assert [type(event).__name__ for event in events] == [
        *["TaskStarted", "TokenEvent", "TaskFinished"] * 2,
        "ProgramFinished",
    ]
    assert [event async for event in flow.stream(EchoRunner(), {"a": "hi "})] == events


def test_streams_check_before_the_runner_is_asked():
    flow = echo()
    with pytest.raises(FlowInputError, match="missing: 'a'"):
        flow.stream_sync(EchoRunner(), {})
    with pytest.raises(FlowInputError, match="unknown: 'b'"):
        flow.stream(EchoRunner(), {"a": "", "b": ""})
    flow.add_variable(InputVar("b"))
    for start in (flow.stream, flow.stream_sync):
        with pytest.raises(NeverReadError, match="'b'"):
            start(EchoRunner(), {"a": "", "b": ""})


async def test_a_run_that_ends_without_a_result_is_the_engine_s_fault():
    said = "run of flow 'echo' without a result; finished tasks: 'x'"
    with pytest.raises(EngineError, match=said):
        echo().run_sync(EchoRunner(stop_before="again"), {"a": "hi"})
    with pytest.raises(EngineError, match=said):
        await echo().run(EchoRunner(stop_before="again"), {"a": "hi"})
