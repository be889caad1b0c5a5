"""Transducers: the stream and the whole value must agree, however the value is cut."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grape_lc.errors import PromptSyntaxError
from grape_lc.flow import TRANSDUCERS, Transducer, parse_transducer
from grape_lc.flow.transducers import IDENTITY, piped

# A busy machine may take its time.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# White space of several kinds, one of them outside ASCII, what escapes are about, the tag, and few
# other characters: runs at both ends and across the borders of pieces are what can go wrong.
ATOMS = [*" \n\t\u2003\u001cab'\"\\é\x00\U0001f600", "<think>", "</think>", "</thi"]
values = st.lists(st.sampled_from(ATOMS), max_size=12).map("".join)


def cut(draw: st.DrawFn, value: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(value)))))
    return [value[a:b] for a, b in pairwise([0, *cuts, len(value)])]


@st.composite
def pieces(draw: st.DrawFn) -> list[str]:
    return cut(draw, draw(values))


def check_stream(transducer: Transducer, pieces: list[str]) -> None:
    """For a value that fits."""
    whole = transducer.apply("".join(pieces))
    stream = transducer.stream()
    sent = ""
    for piece in pieces:
        sent += stream.feed(piece)
        assert whole.startswith(sent), "what was sent must be final"
        assert not stream.stopped
        assert not stream.complete or sent == whole
    assert sent + stream.finish() == whole
    assert stream.complete
    assert not stream.stopped


@pytest.mark.parametrize("name", TRANSDUCERS)
@steady
@given(pieces=pieces())
def test_any_chunking_gives_the_whole_value(name, pieces):
    check_stream(TRANSDUCERS[name], pieces)


@steady
@given(st.lists(st.sampled_from(sorted(TRANSDUCERS)), min_size=2, max_size=4), pieces())
def test_pipes_apply_one_after_the_other(names, pieces):
    transducer = parse_transducer("|".join(names))
    check_stream(transducer, pieces)
    value = "".join(pieces)
    for name in names:
        value = TRANSDUCERS[name].apply(value)
    assert transducer.apply("".join(pieces)) == value


@pytest.mark.parametrize(
    "name", ["identity", "strip", "lstrip", "rstrip", "json_escape", "json_escape_ascii"]
)
@steady
@given(pieces=pieces())
def test_a_stream_holds_back_no_more_than_it_must(name, pieces):
    """What is not sent yet is only white space that a strip could still remove."""
    transducer = TRANSDUCERS[name]
    stream = transducer.stream()
    sent, seen = "", ""
    for piece in pieces:
        seen += piece
        sent += stream.feed(piece)
        assert sent == transducer.apply(seen)


@pytest.mark.parametrize("name", TRANSDUCERS)
@steady
@given(pieces=pieces())
def test_a_text_settles_when_it_is_done(name, pieces):
    value = "".join(pieces)
    assert TRANSDUCERS[name].settled(value, done=True) == TRANSDUCERS[name].apply(value)
    assert TRANSDUCERS[name].settled(value, done=False) is None


@pytest.mark.parametrize(
    ("name", "whole"),
    [("identity", " a b\n"), ("strip", "a b"), ("lstrip", "a b\n"), ("rstrip", " a b")],
)
def test_each_does_what_the_string_method_does(name, whole):
    assert TRANSDUCERS[name].apply(" a b\n") == whole


@steady
@given(values)
def test_escapes_are_those_of_python(value):
    assert TRANSDUCERS["repr"].apply(value) == repr(value)
    assert f'"{TRANSDUCERS["json_escape_ascii"].apply(value)}"' == json.dumps(value)
    assert f'"{TRANSDUCERS["json_escape"].apply(value)}"' == json.dumps(value, ensure_ascii=False)


@steady
@given(st.text("abt<hink/>\n", max_size=20), values.filter(lambda v: "think>" not in v))
def test_after_think_is_what_programs_write_for_it(thoughts, answer):
    thoughts = thoughts.replace("think>", "")
    text = f"<think>{thoughts}</think>{answer}"
    after = TRANSDUCERS["after_think"].apply
    assert after(text) == text.rsplit("</think>", maxsplit=1)[-1] == answer
    assert after(text) == re.sub(r"<think>.*?</think>", "", text, flags=re.DOTALL)
    assert after(text) == text.partition("</think>")[2]
    assert after(text.removeprefix("<think>")) == answer, "the tag may stand in the prompt"
    assert after(answer) == answer == answer.split("</think>")[-1]


def test_after_think_says_nothing_before_the_thoughts_end():
    stream = TRANSDUCERS["after_think"].stream()
    assert [stream.feed(piece) for piece in ("<think>a", "b</th", "ink>c", "</think>d")] == [
        *("", "", "c", "</think>d")
    ]


def test_repr_goes_on_as_soon_as_its_quotes_are_certain():
    stream = TRANSDUCERS["repr"].stream()
    assert [stream.feed(piece) for piece in ("it's", ' "so" ', "it's\n")] == [
        *("", "'it\\'s \"so\" ", "it\\'s\\n")
    ]
    assert stream.finish() == "'"


def test_streams_are_independent():
    first, second = TRANSDUCERS["strip"].stream(), TRANSDUCERS["strip"].stream()
    assert first.feed("a ") == "a"
    assert second.feed(" b") == "b"
    assert first.feed("c") == " c"


@pytest.mark.parametrize("name", ["rstrip", "after_think|rstrip", "json:a"])
def test_a_stream_takes_nothing_after_its_end(name):
    stream = parse_transducer(name).stream()
    stream.feed("a ")
    stream.finish()
    assert stream.finish() == ""
    with pytest.raises(RuntimeError, match=r"feed\('b'\) after finish"):
        stream.feed("b")


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ("strip", "strip"),
        ("identity|strip|identity", "strip"),
        ("identity", "identity"),
        ("identity|identity", "identity"),
        ("after_think|json:a.0|strip", "after_think|json:a.0|strip"),
        ("json:a%2eb", "json:a%2Eb"),
        ("json:a b", "json:a%20b"),
        ("json:%61", "json:a"),
    ],
)
def test_equal_transducers_have_one_name(spec, name):
    assert parse_transducer(spec).name == name
    assert parse_transducer(spec) == parse_transducer(name)
    assert (parse_transducer(spec) == IDENTITY) == (name == "identity")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            "upper",
            "unknown transducer 'upper'; known: identity, strip, lstrip, rstrip, after_think",
        ),
        ("strip|", "unknown transducer ''"),
        ("strip | lstrip", "unknown transducer 'strip '"),
        ("json:", "path '' has an empty part"),
        ("json:a..b", "path 'a..b' has an empty part"),
        ("json:a%zz", "has a % without two hex digits: write %25"),
        ("json:%ff", "has escapes that are not UTF-8: '%ff'"),
    ],
)
def test_unknown_transducers(spec, said):
    with pytest.raises(PromptSyntaxError) as caught:
        parse_transducer(spec)
    assert said in str(caught.value)


def test_specs_are_joined_without_what_does_nothing():
    assert piped("json:a", "identity", "strip") == "json:a|strip"
    assert piped("identity", "", "identity") == "identity"
    assert piped("after_think|strip", "repr") == "after_think|strip|repr"
