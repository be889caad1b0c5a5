"""Answers of a trace: they fit what was asked for, and texts in them are found again."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, TypeAdapter

from grape_lc.adapters.markers import Found, marker, split
from grape_lc.adapters.trace_answers import LENGTHS, NUMBERS, Answer, answer
from grape_lc.adapters.trace_choices import Choices
from grape_lc.engine.base import CallRequest
from grape_lc.flow import Sampling

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
TIME = {"type": "function", "function": {"name": "time"}}


def ask(
    rules: dict[str, Any] | None = None, *, variant: int = 0, tools: tuple[Any, ...] = ()
) -> Answer:
    request = CallRequest(
        messages=({"role": "user", "content": "x"},),
        sampling=Sampling(structured_outputs=rules),
        tools=tools,
    )
    return answer(request, 5, Choices({}).choose, variant, thinks=False)


def of_schema(kind: Any, variant: int = 0) -> Any:
    text = ask({"json": TypeAdapter(kind).json_schema()}, variant=variant).text
    return TypeAdapter(kind).validate_json(text)


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Step(BaseModel):
    do: str
    minutes: int = Field(ge=5, le=10)


class Node(BaseModel):
    name: str
    below: list[Node] = []


class Plan(BaseModel):
    title: str
    note: str | None = None
    steps: list[Step]
    mood: Mood
    kind: Literal["a", "b"]
    sure: bool
    share: float = Field(gt=0, lt=1)
    short: str = Field(max_length=3)
    pair: tuple[str, int]
    few: Annotated[list[str], Field(min_length=1, max_length=1)]
    first: Step | Node


@pytest.mark.parametrize("variant", [0, 1])
@pytest.mark.parametrize(
    "kind", [Plan, Node, list[Step], dict[str, int], str, int, float, bool, Mood, int | None]
)
def test_an_answer_fits_its_schema(kind: Any, variant: int) -> None:
    of_schema(kind, variant)  # raises ValidationError if it does not


def test_texts_are_markers_of_their_fields() -> None:
    plan = of_schema(Plan)
    assert [*split(plan.title)] == [Found(5, "json:title")]
    assert [*split(plan.note)] == [Found(5, "json:note")]
    assert [*split(plan.steps[1].do.strip())] == [Found(5, "json:steps.1.do|strip")]
    assert [*split(plan.pair[0])] == [Found(5, "json:pair.0")]


def test_variants_differ_in_numbers_lengths_and_short_texts() -> None:
    one, other = of_schema(Plan), of_schema(Plan, variant=1)
    assert (len(one.steps), len(other.steps)) == LENGTHS
    assert (one.pair[1], other.pair[1]) == NUMBERS
    assert one.short != other.short
    assert one.steps[0].minutes != other.steps[0].minutes
    assert one.share != other.share


def test_what_was_chosen_is_known() -> None:
    found = ask({"json": Plan.model_json_schema()})
    assert found.chosen == {"json:mood": "good", "json:kind": "a"}
    assert found.document
    assert ask({"choice": ["yes", "no"]}).chosen == {"identity": "yes"}


def test_plain_texts() -> None:
    assert ask() == Answer(marker(5))
    assert ask({"regex": "a*"}) == Answer(marker(5))


def test_a_call_of_each_tool_and_then_a_text() -> None:
    request = CallRequest(messages=({"role": "user", "content": "x"},), tools=(WEATHER, TIME))
    choices = Choices({})
    answers = [answer(request, 5, choices.choose, 0, thinks=False) for _ in range(3)]
    assert [[call.name for call in a.calls] for a in answers] == [["weather"], ["time"], []]
    assert answers[0].text == ""
    assert list(json.loads(answers[0].calls[0].args)) == ["city"]
    assert json.loads(answers[1].calls[0].args) == {}
    assert answers[2] == Answer(marker(5))


def test_an_answer_that_must_be_a_call_is_one() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"const": "weather"}, "arguments": {"$ref": "#/$defs/args"}},
        "$defs": {"args": {"type": "object", "properties": {"city": {"type": "string"}}}},
    }
    call = json.loads(ask({"json": schema}, tools=(WEATHER,)).text)
    assert call["name"] == "weather"
    assert [*split(call["arguments"]["city"])] == [Found(5, "json:arguments.city")]


@pytest.mark.parametrize("most", [40, 80, 128, 400])
@pytest.mark.parametrize("variant", [0, 1])
def test_a_text_of_few_characters_is_found_again(most: int, variant: int) -> None:
    class Bounded(BaseModel):
        summary: str = Field(max_length=most)
        points: list[Annotated[str, Field(max_length=most)]]

    found = of_schema(Bounded, variant)
    assert [*split(f"It is {found.summary.strip()}!")] == [
        "It is ",
        Found(5, "json:summary|strip"),
        "!",
    ]
    assert [*split(found.points[1])] == [Found(5, "json:points.1")]


@pytest.mark.parametrize(("least", "most"), [(0, 3), (10, 20), (30, 30), (60, 80), (500, 900)])
def test_what_has_no_room_for_a_marker_fits_and_differs(least: int, most: int) -> None:
    class Bounded(BaseModel):
        a_summary_of_all_of_it_in_short: str = Field(min_length=least, max_length=most)

    one, other = (of_schema(Bounded, v).a_summary_of_all_of_it_in_short for v in (0, 1))
    assert one != other
