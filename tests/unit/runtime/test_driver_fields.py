"""Flows that read a part of an answer."""

from __future__ import annotations

import json

import pytest

from grape_lc import IntermediateVar, OutputVar, ScriptedEngine, TaskFlow
from grape_lc.engine.base import CallRequest
from grape_lc.errors import TransducerError


def fields() -> TaskFlow:
    """The title and the steps of a plan, each in a prompt of its own."""
    flow = TaskFlow(name="fields")
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("cover"))
    flow.add_variable(OutputVar("text"))
    flow.add_task("Plan", "plan")
    flow.add_task("Cover for {plan|after_think|json:title|strip}, {plan|json:pages} pages", "cover")
    flow.add_task([("user", "Write [{plan|json:steps.0|repr}]")], "text")
    return flow


def engine(plan: str) -> ScriptedEngine:
    def answer(request: CallRequest) -> str:
        return plan if request.task == "plan" else "done"

    return ScriptedEngine(answer)


PLAN = json.dumps({"title": " Bees\n", "pages": 12, "steps": ['Don\'t say "hi"', "Go"]})


def test_prompts_have_the_parts() -> None:
    fake = engine(f"```json\n{PLAN}\n```")
    result = fields().run_sync(fake, {})
    assert result.outputs == {"cover": "done", "text": "done"}
    sent = {call.request.task: call.request for call in fake.calls}
    assert sent["cover"].text == "Cover for Bees, 12 pages"
    assert sent["text"].messages == ({"role": "user", "content": "Write ['Don\\'t say \"hi\"']"},)


def test_an_answer_of_another_form_fails_the_run_and_says_why() -> None:
    fake = engine('{"title": "Bees", "pages": 12, "steps": []}')
    with pytest.raises(TransducerError) as caught:
        fields().run_sync(fake, {})
    assert str(caught.value).startswith(
        "slot {plan|json:steps.0|repr}: 'json:steps.0' does not fit the value"
    )
    assert str(caught.value).endswith("steps is a list of 0 without '0'")
    assert fake.open_programs == ()


async def test_the_same_on_an_event_loop() -> None:
    with pytest.raises(TransducerError, match="it holds no JSON object or list"):
        await fields().run(engine("I cannot plan that."), {})
