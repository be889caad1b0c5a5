"""Prompt templates: parsing, escaping, cutting and rendering."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from grape_lc.errors import FlowError, FlowFormatError, FlowInputError, PromptSyntaxError
from grape_lc.flow import (
    TRANSDUCERS,
    Literal_,
    MessageTemplate,
    PromptTemplate,
    Segment,
    Slot,
    StaticRun,
    literal_to_template,
    parse_template,
)

# A busy machine may take its time.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Braces, white space and what a slot is made of come up far more often than in free text.
texts = st.text(st.one_of(st.sampled_from("{}|ab \n"), st.characters(codec="utf-8")))
slots = st.builds(
    Slot,
    st.sampled_from(["a", "b_1", "größe"]),
    st.sampled_from(list(TRANSDUCERS.values())),
)


def written(segments):
    """The template that consists of these segments."""
    return "".join(str(s) if isinstance(s, Slot) else literal_to_template(s.text) for s in segments)


def merged(segments):
    """What a parser makes of these segments: literals joined, empty ones gone."""
    out: list[Segment] = []
    for segment in segments:
        if isinstance(segment, Slot):
            out.append(segment)
        elif out and isinstance(out[-1], Literal_):
            out[-1] = Literal_(out[-1].text + segment.text)
        elif segment.text:
            out.append(segment)
    return tuple(out)


@steady
@given(texts)
def test_an_escaped_text_is_one_literal(text):
    assert parse_template(literal_to_template(text)) == merged([Literal_(text)])


@steady
@given(st.lists(st.one_of(texts.map(Literal_), slots)))
def test_segments_survive_being_written_as_a_template(segments):
    assert parse_template(written(segments)) == merged(segments)


@steady
@given(texts)
def test_every_text_either_parses_or_is_refused_with_a_position(text):
    try:
        segments = parse_template(text)
    except PromptSyntaxError as error:
        said = str(error)
    else:
        said = "no fault at line 0"
        assert written(segments) == text
    assert " at line " in said


@steady
@given(texts, st.sampled_from(["{", "}", "{}", "{1}", "{a b}", "{ a}", "{a|}", "{a|upper}"]))
def test_the_position_is_that_of_the_fault(text, fault):
    before = literal_to_template(text)
    line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
    with pytest.raises(PromptSyntaxError, match=f"at line {line}, column {column}(?!\\d)"):
        parse_template(before + fault)


@pytest.mark.parametrize(
    ("template", "segments"),
    [
        ("{a}", (Slot("a"),)),
        ("{a|identity}", (Slot("a"),)),
        ("{a|strip}{b}", (Slot("a", TRANSDUCERS["strip"]), Slot("b"))),
        ("{{a}}", (Literal_("{a}"),)),
        ("{{{a}}}", (Literal_("{"), Slot("a"), Literal_("}"))),
        ('{{"key": "{a}"}}', (Literal_('{"key": "'), Slot("a"), Literal_('"}'))),
        ("", ()),
    ],
)
def test_syntax(template, segments):
    assert parse_template(template) == segments


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("Dear {name", "stray '{' at line 1, column 6"),
        ("a\nb}", "stray '}' at line 2, column 2"),
        ("x {}", "slot '{}' at line 1, column 3 does not name a variable"),
        ("{a!r}", "slot '{a!r}' at line 1, column 1 does not name a variable"),
        ('{"json": 1}', "write {name} or {name|transducer}, and {{ or }} for a brace"),
        ("{a|upper}", "unknown transducer 'upper'; known: identity, strip, lstrip, rstrip"),
        ("{a|strip|low}", "slot '{a|strip|low}' at line 1, column 1: unknown transducer 'low'"),
        ("{a|json:}", "slot '{a|json:}' at line 1, column 1: path '' has an empty part"),
        ("{" + "x y " * 99 + "}", "'{" + "x y " * 10 + "...}' at"),
    ],
)
def test_syntax_errors_say_what_is_wrong_and_what_would_be_right(template, said):
    with pytest.raises(PromptSyntaxError) as caught:
        parse_template(template)
    assert said in str(caught.value)


def test_a_prompt_is_made_from_a_text_pairs_mappings_or_templates():
    chat = PromptTemplate.of([("system", "Be brief."), {"role": "user", "content": "{a}"}])
    assert chat.messages == (MessageTemplate("system", "Be brief."), MessageTemplate("user", "{a}"))
    assert PromptTemplate.of(list(chat.messages)) == chat
    assert PromptTemplate.of(chat) is chat
    assert PromptTemplate.of("{a}").text == "{a}"


@pytest.mark.parametrize(
    ("prompt", "error", "said"),
    [
        ("", PromptSyntaxError, "no text at all"),
        ([], PromptSyntaxError, "no messages"),
        ([("system", ""), ("user", "")], PromptSyntaxError, "no text at all"),
        ([("user", "ok"), ("user", "{")], PromptSyntaxError, "message 2 (user): stray '{'"),
        (("user", "hello"), FlowFormatError, "message 1 is 'user': write (role, content)"),
        (["ab"], FlowFormatError, "message 1 is 'ab'"),
        ([("user", "a", "b")], FlowFormatError, "message 1 is ('user', 'a', 'b')"),
        ([("user", 3)], FlowFormatError, "message 1: MessageTemplate: content"),
        ([{"role": "user"}], FlowFormatError, "content: Field required"),
        ([{"role": "user", "content": "a", "name": "b"}], FlowFormatError, "name: Extra inputs"),
        ([(" ", "a")], FlowFormatError, "message 1: role ' ' is blank"),
        ([("human", "a")], FlowFormatError, "'human' is LangChain's word: write 'user'"),
        ([("user", "a"), ("ai", "b")], FlowFormatError, "message 2: role 'ai'"),
    ],
)
def test_bad_prompts(prompt, error, said):
    with pytest.raises(error) as caught:
        PromptTemplate.of(prompt)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "given_"), [({}, "neither"), ({"text": "a", "messages": [("user", "b")]}, "both")]
)
def test_a_prompt_is_either_a_text_or_messages(fields, given_):
    if "messages" in fields:
        fields = {**fields, "messages": [MessageTemplate(*m) for m in fields["messages"]]}
    with pytest.raises(FlowFormatError, match=f"{given_} given"):
        PromptTemplate(**fields)


def test_an_empty_message_beside_others_and_white_space_are_text():
    assert PromptTemplate.of([("system", ""), ("user", "{a}")]).variables == ("a",)
    assert PromptTemplate.of("\n").variables == ()


def test_slots_come_in_prompt_order_and_variables_once():
    prompt = PromptTemplate.of([("system", "{b}"), ("user", "{a|strip} {b} {c}")])
    assert list(map(str, prompt.slots)) == ["{b}", "{a|strip}", "{b}", "{c}"]
    assert prompt.variables == ("b", "a", "c")


def test_rendering_applies_transducers_and_takes_values_as_they_are():
    chat = PromptTemplate.of([("system", "<{a|strip}>"), ("user", "{{{a}}}")])
    assert chat.render_messages({"a": " {b}\n"}) == [
        {"role": "system", "content": "<{b}>"},
        {"role": "user", "content": "{ {b}\n}"},
    ]
    assert PromptTemplate.of("{a|lstrip}|{a|rstrip}").render_text({"a": " x "}) == "x | x"


def test_partial_rendering_asks_for_each_slot_in_order_and_leaves_its_text_alone():
    asked = []

    def fill(slot):
        asked.append(str(slot))
        return f" {len(asked)} "

    chat = PromptTemplate.of([("system", "S{a}"), ("user", "{b|strip}U{a}")])
    assert chat.render_partial(fill) == [
        {"role": "system", "content": "S 1 "},
        {"role": "user", "content": " 2 U 3 "},
    ]
    assert asked == ["{a}", "{b|strip}", "{a}"]
    assert PromptTemplate.of("x{a}").render_partial(lambda _: "y") == "xy"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"b": "x"}, "no value for {a|strip}; values given: b"),
        ({}, "values given: none"),
        ({"a": 3}, "the value for {a|strip} is int, not a string: 3"),
    ],
)
def test_rendering_without_a_fitting_value(values, said):
    with pytest.raises(FlowInputError) as caught:
        PromptTemplate.of("{a|strip}").render_text(values)
    assert said in str(caught.value)


def test_a_prompt_is_rendered_as_what_it_is():
    with pytest.raises(FlowError, match="use render_text"):
        PromptTemplate.of("a").render_messages({})
    with pytest.raises(FlowError, match="use render_messages"):
        PromptTemplate.of([("user", "a")]).render_text({})


def test_cutting_keeps_messages_apart_inside_a_run():
    prompt = PromptTemplate.of([("system", "S {a}"), ("user", "U"), ("user", "{x}{y}!"), ("u", "")])
    assert prompt.cut_at({"x", "y"}) == (
        StaticRun(((Literal_("S "), Slot("a")), (Literal_("U"),))),
        Slot("x"),
        Slot("y"),
        StaticRun(((Literal_("!"),),)),
    )
    assert prompt.cut_at(()) == (
        StaticRun(
            (
                (Literal_("S "), Slot("a")),
                (Literal_("U"),),
                (Slot("x"), Slot("y"), Literal_("!")),
            )
        ),
    )


@steady
@given(
    st.lists(st.lists(st.one_of(texts.map(Literal_), slots)), min_size=1),
    st.sets(st.sampled_from(["a", "b_1", "größe"])),
)
def test_cutting_loses_nothing(messages, variables):
    contents = [written(message) for message in messages]
    try:
        prompt = PromptTemplate.of([("user", content) for content in contents])
    except PromptSyntaxError:
        assert not any(contents)
        return
    pieces = prompt.cut_at(variables)
    whole = tuple(
        s for piece in pieces for s in (piece.segments if isinstance(piece, StaticRun) else [piece])
    )
    assert whole == tuple(s for _, segments in prompt.sections for s in segments)
    for piece in pieces:
        if isinstance(piece, StaticRun):
            assert piece.parts
            assert all(piece.parts)
            read = {s.variable for s in piece.segments if isinstance(s, Slot)}
            assert not read & variables
        else:
            assert piece.variable in variables
    runs = [isinstance(piece, StaticRun) for piece in pieces]
    assert (True, True) not in pairwise(runs)


def test_templates_are_frozen_and_copies_with_changes_are_parsed_anew():
    message = MessageTemplate("user", "{a}")
    prompt = PromptTemplate(messages=(message,))
    with pytest.raises(ValidationError, match="frozen"):
        message.content = "{b}"  # type: ignore[misc]
    assert prompt.variables == ("a",)
    changed = message.model_copy(update={"content": "{b}"})
    assert prompt.model_copy(update={"messages": (changed,)}).variables == ("b",)
