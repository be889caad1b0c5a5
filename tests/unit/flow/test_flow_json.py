"""A flow as JSON: the round trip, and what is said of JSON that is not a flow."""

from __future__ import annotations

import json

import pytest

from grape_lc.errors import FlowError, FlowFormatError, PromptSyntaxError, UnknownVariableError
from grape_lc.flow import InputVar, OutputVar, Targets, TaskFlow


def small() -> TaskFlow:
    flow = TaskFlow(name="größe", targets=Targets(deadline_s=30.0))
    flow.add_variable(InputVar("a", description="what is asked"))
    flow.add_variable(OutputVar("o"))
    flow.add_task(
        [("system", "{{brief}}"), ("user", "{a|strip}")],
        "o",
        name="answer it",
        targets=Targets(ttft_s=0.5),
        temperature=0.5,
        stop=("\n\n",),
        extra={"top_a": [1, {"b": None}]},
    )
    return flow


def changed(**changes) -> str:
    return json.dumps({**json.loads(small().to_json()), **changes})


def test_round_trip():
    text = small().to_json()
    assert TaskFlow.from_json(text) == small()
    assert TaskFlow.from_json(text.encode()) == small()
    assert TaskFlow.from_json(text).to_json() == text


def test_the_text_carries_its_version_and_is_readable():
    text = small().to_json()
    assert json.loads(text)["version"] == 1
    assert "größe" in text


TASK = {"name": "t", "prompt": {"text": "{a}"}, "output": "o"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "read from JSON"),
        ("{", "read from JSON"),
        (b"\xff", "read from JSON"),
        ("[" * 100_000, "read from JSON"),
        ("[]", "a flow is a JSON object, not list"),
        ("{}", "unknown version of the flow format: found none, can read 1"),
        (changed(version=2), "found 2, can read 1"),
        (changed(version="1"), "found '1', can read 1"),
        (changed(version=True), "found True, can read 1"),
        (changed(colour="red"), "colour: Extra inputs"),
        (changed(targets={"ttft_s": 0}), "ttft_s: Input should be greater than 0"),
        (changed(self="red"), "self: Extra inputs"),
        (changed(tasks=[{**TASK, "retries": 3}]), "task 't'"),
        (changed(tasks=[{**TASK, "retries": 3}]), "retries: Extra inputs"),
        (changed(tasks=[{"name": "t", "output": "o"}]), "prompt: Field required"),
        (changed(tasks=[{**TASK, "sampling": {"top_p": 3}}]), "sampling.top_p"),
        (changed(tasks=[{**TASK, "prompt": {"messages": [{"role": "user"}]}}]), "content: Field"),
        (changed(tasks=[{**TASK, "prompt": {}}]), "neither given"),
        (changed(variables=[{"name": "a", "kind": "secret"}]), "'input', 'intermediate', 'output'"),
        (changed(variables=[{"kind": "input"}]), "name: Field required"),
        (changed(variables={"a": "input"}), "variables"),
    ],
)
def test_what_is_not_a_flow_is_refused_with_its_reason(text, said):
    with pytest.raises(FlowFormatError) as caught:
        TaskFlow.from_json(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("task", "error", "said"),
    [
        ({**TASK, "prompt": {"text": "{a"}}, PromptSyntaxError, "task 't': stray '{'"),
        ({**TASK, "prompt": {"text": "{b}"}}, UnknownVariableError, "task 't' reads 'b'"),
    ],
)
def test_a_flow_that_is_wrong_is_refused_as_if_it_had_been_built(task, error, said):
    with pytest.raises(FlowError) as caught:
        TaskFlow.from_json(changed(tasks=[task]))
    assert type(caught.value) is error
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), {5: -100}, (1,)])
def test_what_json_cannot_express_is_refused_and_not_changed(value):
    flow = TaskFlow(name="f", variables=(OutputVar("o"),))
    flow.add_task("go", "o", extra={"x": value})
    with pytest.raises(FlowFormatError, match="flow 'f' cannot be JSON"):
        flow.to_json()


def test_infinity_in_a_field_of_its_own_is_refused_too():
    flow = TaskFlow(name="f", variables=(OutputVar("o"),))
    flow.add_task("go", "o", temperature=float("inf"))
    with pytest.raises(FlowFormatError, match="flow 'f' cannot be JSON"):
        flow.to_json()


def test_half_of_a_surrogate_pair_is_refused_with_the_task_that_has_it():
    flow = TaskFlow(name="f", variables=(OutputVar("a"), OutputVar("b")))
    flow.add_task("good", "a")
    flow.add_task("bad \ud83d", "b")
    with pytest.raises(FlowFormatError, match=r"surrogate pair '\\ud83d' \(task 'b'\)"):
        flow.to_json()
