"""The driver runs flows on any engine, the public fake included."""

from __future__ import annotations

import pytest

from grape_lc import InputVar, IntermediateVar, OutputVar, ScriptedEngine, Targets, TaskFlow
from grape_lc.errors import CallFailedError
from grape_lc.flow.events import ProgramFinished, TaskFinished, TaskStarted, TokenEvent


def diamond() -> TaskFlow:
    flow = TaskFlow(name="diamond")
    flow.add_variable(InputVar("topic"))
    for name in ("plan", "pro", "contra"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("verdict"))
    flow.add_task("Plan {topic}", "plan")
    flow.add_task("For {plan}", "pro")
    flow.add_task("Against {plan}", "contra")
    flow.add_task("Judge {pro} {contra}", "verdict")
    return flow


def answer(prompt: str) -> str:
    return f"[{prompt}]"


def engine() -> ScriptedEngine:
    return ScriptedEngine(lambda request: answer(request.text or ""))


async def test_events_tell_the_whole_run() -> None:
    """Branches start together once their source is written; the last event has every value."""
    events = [e async for e in diamond().stream(engine(), {"topic": "bees"})]
    started = [e.task for e in events if isinstance(e, TaskStarted)]
    assert started[0] == "plan"
    assert set(started[1:3]) == {"pro", "contra"}
    assert started[3] == "verdict"
    for task in started:
        pieces = "".join(e.text for e in events if isinstance(e, TokenEvent) and e.task == task)
        whole = [e.text for e in events if isinstance(e, TaskFinished) and e.task == task]
        assert [pieces] == whole
    last = events[-1]
    assert isinstance(last, ProgramFinished)
    plan = answer("Plan bees")
    pro, contra = answer(f"For {plan}"), answer(f"Against {plan}")
    assert last.outputs == {"verdict": answer(f"Judge {pro} {contra}")}
    assert last.values == {
        "topic": "bees",
        "plan": plan,
        "pro": pro,
        "contra": contra,
        **last.outputs,
    }


def test_the_program_is_open_exactly_while_it_runs() -> None:
    """Announced with its inputs, calls carry its id, closed at the end."""
    fake = engine()
    result = diamond().run_sync(fake, {"topic": "bees"})
    (program,) = fake.programs
    assert program.inputs == {"topic": "bees"}
    assert {call.request.program for call in fake.calls} == {result.program}
    assert fake.open_programs == ()


def test_one_failing_task_ends_the_run() -> None:
    """Its error comes out, the other branch is cancelled, the program is closed."""

    def script(text: str) -> str:
        if text.startswith("For"):
            raise CallFailedError("no more ideas")
        return answer(text)

    fake = ScriptedEngine(lambda request: script(request.text or ""))
    with pytest.raises(CallFailedError, match="no more ideas"):
        diamond().run_sync(fake, {"topic": "bees"})
    assert fake.open_programs == ()
    assert not any((c.request.text or "").startswith("Judge") for c in fake.calls)


def test_calls_carry_the_targets_of_their_task_and_else_those_of_the_flow() -> None:
    flow = TaskFlow(name="f", targets=Targets(ttft_s=1.5, deadline_s=60))
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("verdict"))
    flow.add_task("Plan {topic}", "plan")
    flow.add_task("Judge {plan}", "verdict", targets=Targets(ttft_s=0.2, tbt_s=0.04))
    fake = engine()
    TaskFlow.from_json(flow.to_json()).run_sync(fake, {"topic": "bees"})
    said = [(c.request.ttft_s, c.request.tbt_s, c.request.deadline_s) for c in fake.calls]
    assert said == [(1.5, None, 60.0), (0.2, 0.04, 60.0)]
