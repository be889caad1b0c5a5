"""explain: what is known, what streams and what waits, and the table."""

from __future__ import annotations

import json

import pytest

from grape_lc.errors import FlowInputError, NeverReadError
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.flow.explanation import Amount, Never, StreamsIn


def chain(last: str, **sampling) -> TaskFlow:
    """a -> x -> y -> z; ``last`` is the prompt of z, which reads x and y."""
    flow = TaskFlow(name="chain")
    flow.add_variable(InputVar("a"))
    flow.add_variable(IntermediateVar("x"))
    flow.add_variable(IntermediateVar("y"))
    flow.add_variable(OutputVar("z"))
    flow.add_task("Question: {a}", "x", name="X", **sampling)
    flow.add_task("First: {x}", "y", name="Y")
    flow.add_task(last, "z", name="Z")
    return flow


def row(flow: TaskFlow, task: str, inputs=None, count_tokens=len):
    [found] = [row for row in flow.explain(inputs, count_tokens).tasks if row.task == task]
    return found


def waits(row):
    return [
        (w.text, w.amount.tokens if w.amount else None, w.until, w.meanwhile) for w in row.waits
    ]


def test_a_first_task_is_known_whole():
    first = row(chain("{x}{y}"), "X", {"a": "why?"})
    assert first.known_at_start == Amount(len("Question: why?"), ())
    assert (first.streams_in, first.waits) == ((), ())


def test_an_input_without_a_value_has_no_size():
    assert row(chain("{x}{y}"), "X").known_at_start == Amount(len("Question: "), ("{a}",))
    assert row(chain("{x}{a|strip}{y}"), "Z").waits[0].amount == Amount(0, ("{a|strip}",))


def test_an_input_is_measured_as_it_will_stand_in_the_prompt():
    flow = chain("{x} {a|strip}!{y}")
    assert row(flow, "Z", {"a": "  why?\n"}).waits[0].amount == Amount(len(" why?!"), ())


def test_answers_in_the_order_in_which_they_are_written_stream_one_after_the_other():
    last = row(chain("Go: {x} then {y} end", max_tokens=50), "Z")
    assert last.known_at_start == Amount(4, ())
    assert last.streams_in == (StreamsIn("X", "{x}", 50, ()), StreamsIn("Y", "{y}", None, ()))
    assert waits(last) == [("then", 6, ("X",), "Y"), ("end", 4, ("Y",), None)]
    assert [w.why for w in last.waits] == [
        "known text behind {x} (while 'Y' decodes)",
        "known text behind {y}",
    ]


def test_an_older_answer_behind_a_newer_one_waits_for_it():
    last = row(chain("Go: {y} then {x|strip} end", max_tokens=50), "Z")
    assert last.streams_in == (StreamsIn("Y", "{y}", None, ()),)
    assert waits(last) == [
        ("then", 6, ("Y",), None),
        ("{x|strip}", None, ("Y",), None),
        ("end", 4, ("Y",), None),
    ]
    assert last.waits[1].tokens_at_most == 50
    assert last.waits[1].why == "output of 'X', behind {y}"


def test_a_second_reading_of_an_answer_waits_for_the_first():
    last = row(chain("{x}{x|rstrip}{y}"), "Z")
    assert [s.slot for s in last.streams_in] == ["{x}", "{y}"]
    assert waits(last) == [("{x|rstrip}", None, ("X",), "Y")]


def fork(last: str) -> TaskFlow:
    """x and y are written side by side; z reads both, and w if ``last`` does."""
    flow = TaskFlow(name="fork")
    for var in (IntermediateVar("x"), IntermediateVar("y"), OutputVar("z")):
        flow.add_variable(var)
    flow.add_task("one", "x", name="X")
    flow.add_task("two", "y", name="Y")
    flow.add_task(last, "z", name="Z")
    return flow


def test_an_answer_behind_one_that_may_be_unfinished_streams_only_after_it():
    last = row(fork("{y} and {x} end"), "Z")
    assert last.streams_in == (StreamsIn("Y", "{y}", None, ()), StreamsIn("X", "{x}", None, ("Y",)))
    assert waits(last) == [("and", 5, ("Y",), None), ("end", 4, ("Y", "X"), None)]
    assert last.waits[1].why == "known text behind {y} and {x}"


def test_chat_messages_are_counted_each_by_itself_and_without_markers():
    flow = chain("{x}{y}")
    flow.add_variable(OutputVar("w"))
    flow.add_task([("system", "abc"), ("user", "de{x}"), ("user", "f"), ("user", "gh")], "w")
    counted = []

    def count(text):
        counted.append(text)
        return len(text)

    explanation = flow.explain({"a": ""}, count)
    chat = explanation.tasks[-1]
    assert (chat.known_at_start.tokens, chat.waits[0].amount) == (5, Amount(3, ()))
    assert counted[-4:] == ["abc", "de", "f", "gh"]
    assert "template markers are not counted" in str(explanation)
    assert "template markers" not in str(chain("{x}{y}").explain())


def test_without_a_counter_four_characters_are_a_token_and_marked():
    explanation = chain("12345{x}{y}").explain({"a": "why?"})
    assert explanation.tasks[-1].known_at_start.tokens == 2
    assert "~2" in str(explanation)
    assert "~ estimated at 4 characters a token" in str(explanation)
    counted = chain("12345{x}{y}").explain({"a": "why?"}, len)
    assert "~" not in str(counted)


def test_a_long_text_is_shown_by_its_beginning():
    shown = row(chain("{x}" + "so\n it {{goes}} " * 10 + "{y}"), "Z").waits[0].text
    assert shown == "so it {goes} so it {goes} so it {goes..."
    assert len(shown) == 40


def test_the_table():
    flow = chain("Go: {y} {a} {x|strip}", max_tokens=50)
    assert (
        "\n" + str(flow.explain()) + "\n"
        == """
Flow 'chain': prompt tokens by the time at which they can be prefilled
task  known at start  streams in                must wait
----  --------------  ------------------------  ------------------------------------------------
X     ~3 + {a}        -                         -
Y     ~2              {x} from 'X', at most 50  -
Z     ~1              {y} from 'Y', no limit    ~1 + {a}: known text behind {y}: '{a}'
                                                {x|strip}, at most 50: output of 'X', behind {y}
~ estimated at 4 characters a token; count_tokens gives counts
size not known, no value given: {a}
"""
    )


def test_plain_data_is_json_and_says_the_same():
    flow = fork("{y} and {x} end")
    data = flow.explain(count_tokens=len).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["flow"] == "fork"
    assert data["estimated"] is False
    assert data["tasks"][2] == {
        "task": "Z",
        "known_at_start": 0,
        "unsized_at_start": [],
        "streams_in": [
            {"from": "Y", "slot": "{y}", "tokens_at_most": None, "after": [], "whole": True},
            {"from": "X", "slot": "{x}", "tokens_at_most": None, "after": ["Y"], "whole": True},
        ],
        "waits": [
            {
                "text": "and",
                "tokens": 5,
                "unsized": [],
                "tokens_at_most": None,
                "until": ["Y"],
                "meanwhile": None,
                "why": "known text behind {y}",
            },
            {
                "text": "end",
                "tokens": 4,
                "unsized": [],
                "tokens_at_most": None,
                "until": ["Y", "X"],
                "meanwhile": None,
                "why": "known text behind {y} and {x}",
            },
        ],
        "never": None,
    }


def test_only_valid_flows_and_fitting_inputs_are_explained():
    with pytest.raises(FlowInputError, match="unknown: 'b'"):
        chain("{x}{y}").explain({"b": ""})
    with pytest.raises(NeverReadError, match="'y'"):
        chain("{x}").explain()


def opaque(last: str) -> TaskFlow:
    """x is written from a text that no run gives; z reads both."""
    flow = TaskFlow(name="opaque")
    flow.add_variable(InputVar("a"))
    flow.add_variable(InputVar("today", opaque=True, description="runs differ"))
    flow.add_variable(IntermediateVar("x"))
    flow.add_variable(OutputVar("z"))
    flow.add_task("Of {today}: {a}", "x", name="X")
    flow.add_task(last, "z", name="Z")
    return flow


def test_nothing_behind_an_opaque_variable_is_prepared():
    last = row(opaque("Go: {x} on {today} with {a}{x|strip} end"), "Z", {"a": "why?"})
    assert last.known_at_start == Amount(4, ())
    assert [part.slot for part in last.streams_in] == ["{x}"]
    assert waits(last) == [("on", 4, ("X",), None)]
    assert last.never == Never("{today}", "runs differ", Amount(len(" with why? end"), ()), ("X",))
    first = row(opaque("{x}"), "X")
    assert (first.known_at_start, first.waits) == (Amount(3, ()), ())
    assert first.never == Never("{today}", "runs differ", Amount(2, ("{a}",)), ())


def test_what_is_not_prepared_is_said():
    text = str(opaque("{x} on {today} with {a}{x|strip}").explain())
    assert (
        "not prepared: {today} and behind it ~2 + {a} of known text, the output of 'X': runs differ"
        in text
    )
    assert "size not known, no value given: {a}" in text
    data = opaque("{x} on {today}").explain(count_tokens=len).to_dict()["tasks"][1]["never"]
    assert data == {
        "slot": "{today}",
        "why": "runs differ",
        "tokens": 0,
        "unsized": [],
        "outputs": [],
    }


def test_an_opaque_variable_that_is_given_is_an_input():
    first = row(opaque("{x}"), "X", {"today": "Monday", "a": ""})
    assert (first.known_at_start, first.never) == (Amount(len("Of Monday: "), ()), None)


def test_a_flow_with_opaque_variables_is_stored_and_others_stay_as_they_were():
    flow = opaque("{x}")
    assert TaskFlow.from_json(flow.to_json()) == flow
    variables = json.loads(flow.to_json())["variables"]
    assert [v.get("opaque") for v in variables] == [None, True, None, None]


def test_a_field_of_json_is_full_before_its_answer_ends():
    flow = chain("Go: {x|json:a} mid {x|json:b|strip} end {y}")
    last = row(flow, "Z")
    assert [(part.slot, part.whole) for part in last.streams_in] == [
        ("{x|json:a}", False),
        ("{x|json:b|strip}", False),
        ("{y}", True),
    ]
    # All text in between goes in while X decodes.
    assert waits(last) == [("mid", 5, (), "X"), ("end", 5, (), "X")]
    assert last.waits[0].why == "known text behind {x|json:a} (while 'X' decodes)"


def test_text_behind_a_field_and_a_later_answer_waits_for_that():
    last = row(chain("{x|json:a} mid {y} end"), "Z")
    assert waits(last) == [("mid", 5, (), "X"), ("end", 4, ("Y",), None)]
    assert last.waits[1].why == "known text behind {y}"


def test_a_field_behind_a_later_answer_waits_for_it():
    last = row(chain("{y} and {x|json:a} end"), "Z")
    assert waits(last) == [
        ("and", 5, ("Y",), None),
        ("{x|json:a}", None, ("Y",), None),
        ("end", 4, ("Y",), None),
    ]


def test_text_behind_a_field_of_one_of_two_side_by_side():
    last = row(fork("{y} and {x|json:a} end"), "Z")
    # X may have ended by the time Y does, so nothing is promised.
    assert waits(last)[-1] == ("end", 4, ("Y",), None)
    assert last.waits[-1].why == "known text behind {x|json:a} and {y}"
