"""Advice on prompts: what breaks the prefix cache, and what would better stand elsewhere."""

from __future__ import annotations

import datetime
import json
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.flow.layout import LEAST_TOKENS, advise, volatile

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

LONG = "Answer in plain words, and say what you do not know. " * 40


def one(prompt, *variables) -> TaskFlow:
    flow = TaskFlow(name="one")
    for variable in variables:
        flow.add_variable(variable)
    flow.add_variable(OutputVar("z"))
    flow.add_task(prompt, "z", name="Z")
    return flow


def kinds(flow: TaskFlow):
    return [(item.task, item.kind, item.what) for item in advise(flow)]


def test_a_value_in_front_of_static_text_is_named_with_what_it_costs():
    flow = one("Topic: {topic}\n" + LONG, InputVar("topic"))
    [advice] = advise(flow, count_tokens=lambda text: len(text.split()))
    words = len(LONG.split())
    assert (advice.kind, advice.what, advice.tokens) == ("static", "{topic}", words)
    assert advice.text == (
        f"{{topic}} stands before {words} static tokens: put it behind them and every run shares "
        "them"
    )
    assert advise(one(LONG + "Topic: {topic}\n", InputVar("topic"))) == ()


def test_numbers_are_marked_where_they_are_estimates():
    [advice] = advise(one("{topic}" + LONG, InputVar("topic")))
    assert f"before ~{advice.tokens:,} static tokens" in advice.text


def test_the_static_text_of_later_messages_counts():
    chat = [("system", "You know {topic}."), ("user", LONG)]
    assert kinds(one(chat, InputVar("topic"))) == [("Z", "static", "{topic}")]


def test_little_static_text_is_not_worth_a_word():
    few = "x" * 4 * (LEAST_TOKENS - 1)
    assert advise(one("{topic}" + few, InputVar("topic"))) == ()
    assert kinds(one("{topic}" + few + "x", InputVar("topic"))) == [("Z", "static", "{topic}")]


def test_an_opaque_value_at_the_head_says_why_nothing_is_prepared():
    flow = one("{o}" + LONG, InputVar("o", opaque=True, description="runs differ"))
    [advice] = advise(flow)
    assert advice.kind == "opaque"
    assert "{o} (runs differ) stands before" in advice.text
    assert "never prepared" in advice.text


def test_a_date_in_front_of_static_text_breaks_the_cache():
    flow = one("Today is 2026-11-30. " + LONG + "{topic}", InputVar("topic"))
    [advice] = advise(flow)
    assert (advice.kind, advice.what) == ("volatile", "2026-11-30")
    assert "'2026-11-30' looks like a date" in advice.text
    # Where it costs nothing, nothing is said.
    assert advise(one(LONG + "Today is 2026-11-30: {topic}", InputVar("topic"))) == ()


def test_a_date_behind_a_value_is_not_what_breaks_the_cache():
    flow = one("{topic} of 2026-11-30. " + LONG, InputVar("topic"))
    assert kinds(flow) == [("Z", "static", "{topic}")]


@pytest.mark.parametrize(
    ("text", "kind", "match"),
    [
        (
            "at 2026-11-30T21:07:01.5Z",
            "a date and time",
            "2026-11-30T21:07:01.5Z",
        ),
        ("on 30.11.2026", "a date", "30.11.2026"),
        ("on 11/30/26", "a date", "11/30/26"),
        ("on November 3rd, 2026", "a date", "November 3rd, 2026"),
        ("on 3 Nov 2026", "a date", "3 Nov 2026"),
        ("it is Monday", "a weekday", "Monday"),
        ("it is 9:05 pm now", "a time of day", "9:05 pm"),
        ("since 1764536821 s", "a time stamp", "1764536821"),
        ("since 1764536821123 ms", "a time stamp", "1764536821123"),
        ("session 0f8fad5bd9cb469fa16570867728950e", "an id", "0f8fad5bd9cb469fa16570867728950e"),
        ("ticket 98765432101234", "a long number", "98765432101234"),
    ],
)
def test_what_looks_volatile(text, kind, match):
    found = volatile(text)
    assert found is not None
    assert (found[0], found[1].group()) == (kind, match)


@pytest.mark.parametrize(
    "text",
    [
        "Write 3 to 5 sentences, at most 1,000 words.",
        "Version 1.2.3, section 4.5.6, ratio 16:9 or 3:2.",
        "the mayor of a Mondayish town; 2026; 12345",
        "aaaaaaaaaaaaaaaaaaaa 0x1f deadbeef",
        "2026-13-45",
    ],
)
def test_what_does_not_look_volatile(text):
    assert volatile(text) is None


@steady
@given(st.datetimes(min_value=datetime.datetime(1990, 1, 1)), st.text("ab \n.", max_size=20))  # noqa: DTZ001
def test_every_iso_date_is_seen(moment, before):
    found = volatile(f"{before} {moment.isoformat()}")
    assert found is not None
    assert found[1].group().startswith(moment.date().isoformat())


@steady
@given(st.uuids())
def test_every_uuid_is_seen(value: uuid.UUID):
    found = volatile(f"run {value} of the flow")
    assert found is not None
    assert found[1].group() == str(value)


def two(last: str) -> TaskFlow:
    flow = TaskFlow(name="two")
    for variable in (InputVar("a"), IntermediateVar("x"), IntermediateVar("y"), OutputVar("z")):
        flow.add_variable(variable)
    flow.add_task("Of {a}", "x", name="X")
    flow.add_task("Of {x}", "y", name="Y")
    flow.add_task(last, "z", name="Z")
    return flow


def test_an_older_answer_and_an_input_would_better_stand_in_front():
    by = {(item.task, item.what): item.text for item in advise(two("{y} {x} {a}"))}
    assert by["Z", "{x}"] == (
        "{x} is complete before {y}, and stands behind: in front it would be prefilled meanwhile"
    )
    assert by["Z", "{a}"] == (
        "{a} is known at the start, and must wait behind {y}: in front of it, it would be "
        "prefilled at once"
    )
    assert advise(two("{a} {x} {y}")) == ()


def test_an_answer_that_is_read_twice_is_not_behind_itself():
    assert advise(two("{a} {x} {x|strip} {y}")) == ()


def test_plain_data_is_json():
    data = [item.to_dict() for item in advise(two("{y} {x} {a}"))]
    assert json.loads(json.dumps(data)) == data
    assert set(data[0]) == {"task", "kind", "what", "tokens", "text"}
