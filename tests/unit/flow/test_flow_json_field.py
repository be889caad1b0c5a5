"""json:<path>: a field of a document, taken out while the document is written."""

from __future__ import annotations

import contextlib
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from grape_lc.errors import TransducerError
from grape_lc.flow import parse_template, parse_transducer
from grape_lc.flow.json_document import string_fields
from grape_lc.flow.json_field import JsonFieldStream, json_field
from grape_lc.flow.json_paths import json_spec, parse_path

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.text(st.sampled_from('ab "\\/\n\té{}[],:`\U0001f600\x01'), max_size=8)
keys = st.one_of(texts, st.sampled_from(["a", "b", "0", "1", "a.b", "%"]))
documents: st.SearchStrategy[Any] = st.recursive(
    st.one_of(texts, st.none(), st.booleans(), st.integers(), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(keys, inner, min_size=1, max_size=4)
    ),
    max_leaves=10,
)
containers = documents.filter(lambda d: isinstance(d, list | dict))
HEADS = [
    "",
    " \n",
    "```json\n",
    "```\n",
    "Sure, `this` is it:\n```json\n",
    "``` and ```` ```x ```j\n",
]


def fields(document: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every field that a path can name."""
    if not isinstance(document, list | dict):
        return {path: document}
    if isinstance(document, list):
        members = [(str(index), item) for index, item in enumerate(document)]
    else:
        members = [(key, item) for key, item in document.items() if key]
    return {p: s for key, item in members for p, s in fields(item, (*path, key)).items()}


def cut(draw: st.DrawFn, value: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(value)), max_size=12)))
    return [value[a:b] for a, b in pairwise([0, *cuts, len(value)])]


@st.composite
def answers(draw: st.DrawFn) -> tuple[str, dict[tuple[str, ...], Any]]:
    """A document as a model writes it, and its fields."""
    document = draw(containers)
    ensure_ascii, indent = draw(st.booleans()), draw(st.sampled_from([None, 2]))
    head = draw(st.sampled_from(HEADS))
    tail = draw(st.sampled_from(["", "\n", "\n```", "\n```\nThat is all."]))
    body = json.dumps(document, ensure_ascii=ensure_ascii, indent=indent)
    if head.startswith("It is") and not isinstance(document, dict):
        head = ""  # in a sentence only what has keys is a document
    return head + body + tail, fields(document)


@steady
@given(st.data(), answers())
def test_every_field_is_found_and_streams(data, answer):
    value, wanted = answer
    assume(wanted)
    path = data.draw(st.sampled_from(sorted(wanted)))
    transducer = json_field(path)
    whole = f"{wanted[path]}"
    assert transducer.apply(value) == whole
    stream = transducer.stream()
    sent = ""
    for piece in cut(data.draw, value):
        sent += stream.feed(piece)
        assert whole.startswith(sent)
        assert not stream.stopped
        assert not stream.complete or sent == whole
    assert stream.complete, "it is known before the document ends"
    assert stream.finish() == ""
    assert sent == whole


BITS = [
    '{"a": ',
    '"a"',
    '"b": ',
    '{"',
    '"}',
    '"x',
    "[",
    "]",
    "}",
    ",",
    ":",
    "\\",
    "\\u00e9",
    "\\ud83d",
]
BITS += [
    "\\ude00",
    "\\u12",
    "\\n",
    "\\q",
    "\ud83d",
    "1",
    "null",
    " ",
    "```",
    "`",
    "j",
    '{"a": "x"}',
]


@steady
@given(st.data(), st.lists(st.sampled_from(BITS), max_size=12).map("".join))
def test_what_fits_streams_whole_and_what_does_not_stops(data, value):
    """Any text at all: the two implementations agree wherever the strict one finds a field."""
    transducer = json_field(data.draw(st.sampled_from([("a",), ("0",), ("a", "0"), ("1", "a")])))
    whole: str | None = None
    with contextlib.suppress(TransducerError):
        whole = transducer.apply(value)
    stream = transducer.stream()
    sent = "".join(stream.feed(piece) for piece in cut(data.draw, value))
    ended = stream.complete
    sent += stream.finish()
    assert stream.complete != stream.stopped
    if whole is not None:
        assert (sent, ended) == (whole, True)
    if stream.complete:
        assert transducer.settled(value, done=False) == sent
    # However it is cut.
    again = transducer.stream()
    assert again.feed(value) + again.finish() == sent
    assert again.complete == stream.complete


@steady
@given(st.data(), answers(), st.sampled_from(["strip", "repr", "json_escape_ascii", "rstrip|repr"]))
def test_pipes_behind_a_field(data, answer, behind):
    value, wanted = answer
    assume(wanted)
    path = data.draw(st.sampled_from(sorted(wanted)))
    transducer = parse_transducer(f"{json_spec(path)}|{behind}")
    whole = parse_transducer(behind).apply(f"{wanted[path]}")
    stream = transducer.stream()
    sent = "".join(stream.feed(piece) for piece in cut(data.draw, value))
    assert stream.complete, "what ends in front of a transducer ends it as well"
    assert sent == whole == transducer.apply(value)


def test_text_comes_as_it_arrives():
    stream = parse_transducer("json:steps.1.do|strip").stream()
    value = '```json\n{"n": [1, {"do": "x"}], "steps": ["a", {"do": " Go \\u00e9\\ud83d\\ude00 on'
    sent = [stream.feed(c) for c in value]
    assert "".join(sent) == "Go é\U0001f600 on"
    assert sent[-3:] == ["", " o", "n"]
    assert stream.feed(' "') == ""
    assert stream.complete


@pytest.mark.parametrize(
    ("value", "sent", "why"),
    [
        ("No document.", "", "it holds no JSON object or list"),
        ('{"b": "x"}', "", "the document has no key 'a'; its keys: 'b'"),
        ("{}", "", "the document has no key 'a'; its keys: none"),
        ('{"a": {"b": "x"}}', "", "a is an object"),
        ('{"a": ["x"]}', "", "a is a list"),
        ('{"a": 05}', "", "its JSON cannot be read: Expecting ',' delimiter"),
        ('{"a": 5', "", "its JSON cannot be read: Expecting ',' delimiter"),
        ('{"a": nil}', "", "its JSON cannot be read: Expecting value"),
        ('["x"]', "", "the document is a list of 1 without 'a'"),
        ('{"a": "one\\q two"}', "one", "its JSON cannot be read: Invalid \\escape"),
        ('{"a": "one\\ud83d two"}', "one", "a has one half of a surrogate pair"),
        ('{"a": "one', "one", "its JSON cannot be read: Unterminated string"),
        ('{"a" "one"}', "", "its JSON cannot be read: Expecting ':'"),
        ("{" + '"b": [' * 100_000, "", "its JSON cannot be read"),
    ],
)
def test_what_does_not_fit(value, sent, why):
    transducer = parse_transducer("json:a")
    with pytest.raises(TransducerError) as caught:
        transducer.apply(value)
    assert str(caught.value).startswith("'json:a' does not fit the value ")
    assert why in str(caught.value)
    stream = transducer.stream()
    assert stream.feed(value) == sent
    assert stream.finish() == ""
    assert stream.stopped
    assert not stream.complete


def test_what_is_behind_the_field_does_not_matter_to_the_stream():
    for value, why in [
        ('{"a": "x", "a": "y"}', "the document has 2 keys 'a'"),
        ('{"a": "x", oops', "cannot be read"),
    ]:
        assert parse_transducer("json:a").settled(value, done=False) == "x"
        with pytest.raises(TransducerError, match=why):
            parse_transducer("json:a").apply(value)


def test_paths_that_go_too_deep_or_into_lists_by_name():
    for path, why in [("a.b", "neither an object nor a list but 'x'"), ("l.a", "without 'a'")]:
        value = '{"a": "x", "l": ["y"]}'
        with pytest.raises(TransducerError, match=why):
            parse_transducer(f"json:{path}").apply(value)
        assert parse_transducer(f"json:{path}").settled(value, done=True) is None
    # An index is a key as well where the document has an object.
    assert parse_transducer("json:a.0").apply('{"a": {"0": "x"}}') == "x"
    # Not an index, though Python reads it as a number, or would be long about it.
    for part in ("01", "9" * 5000):
        assert parse_transducer(f"json:{part}").settled('["x", "y"]', done=True) is None


@pytest.mark.parametrize(
    ("written", "text"),
    [("5", "5"), ("-1.50", "-1.5"), ("1e2", "100.0"), ("true", "True"), ("null", "None")],
)
def test_numbers_and_the_like_are_what_an_f_string_makes_of_them(written, text):
    stream = parse_transducer("json:a").stream()
    assert [stream.feed(c) for c in f'{{"a": {written}'] == [""] * (6 + len(written))
    assert stream.feed("\n") == text
    assert stream.complete
    assert parse_transducer("json:0").apply(f"[{written}]") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('See {name} and {}: {"a": "x"} or {"a": "y"}', "x"),
        ('I think so.\n{ \n"a": "x"}', "x"),
        ('See [1], ["a"] and\n```\n["x"]\n```', None),
        ('Use {"a": "x"}\n```json\n{"a": "y"}\n```', "x"),
        ('Use {\'a\': "x"}\n```json\n{"a": "y"}\n```', "y"),
        ("See {name} and {}", None),
    ],
)
def test_documents_in_sentences(value, text):
    assert parse_transducer("json:a").settled(value, done=True) == text
    stream = parse_transducer("json:a").stream()
    assert "".join(map(stream.feed, value)) + stream.finish() == (text or "")


def test_thoughts_in_front():
    transducer = parse_transducer("after_think|json:a|strip")
    assert transducer.apply('<think>{"a": "no"}</think>\n{"a": " yes "}') == "yes"


@steady
@given(answers())
def test_all_strings_of_a_document(answer):
    value, wanted = answer
    assert dict(string_fields(value)) == {p: v for p, v in wanted.items() if isinstance(v, str)}


def test_strings_that_no_path_can_name_are_left_out():
    value = '{"a": "1", "a": "2", "": "3", "b": ["\\ud83d", {"c": "4"}]}'
    assert list(string_fields(value)) == [(("b", "1", "c"), "4")]
    for value in ("", "no document", '{"a": "cut', "[" * 100_000):
        assert list(string_fields(value)) == []


path_parts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)


@steady
@given(st.lists(path_parts, min_size=1, max_size=3).map(tuple))
def test_any_key_can_be_written_in_a_template(path):
    spec = json_spec(path)
    assert parse_path(spec.removeprefix("json:")) == path
    (slot,) = parse_template(f"{{x|{spec}|strip}}")
    assert str(slot) == f"{{x|{spec}|strip}}"


@pytest.mark.parametrize(
    "text",
    [
        "```" + "x" * 3000,
        "```json" + " " * 3000,
        "{" + "\n" * 3000,
        " " * 3000,
        "`" * 3000,
        "{" * 3000,
    ],
)
def test_a_stream_holds_little_of_what_may_be_a_beginning(text):
    """What it holds is looked through again with each piece of the answer."""
    stream = parse_transducer("json:a").stream()
    for character in text:
        stream.feed(character)
    assert isinstance(stream, JsonFieldStream)
    assert len(stream._rest) - stream._at < 300
    rest = ' ```{"a": "found"}'
    whole = parse_transducer("json:a").settled(text + rest, done=True)
    assert (stream.feed(rest) or None) == whole
