"""Transducers: the stream and the whole value must agree."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grape_lc.flow import TRANSDUCERS

# A busy machine may take its time.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

# White space of several kinds, one of them outside ASCII, and few other characters: runs of
# white space at both ends and across the borders of pieces are what can go wrong.
values = st.text(st.sampled_from(" \n\t\u2003\u001cab"))


@st.composite
def pieces(draw):
    value = draw(values)
    cuts = sorted(draw(st.lists(st.integers(0, len(value)))))
    borders = [0, *cuts, len(value)]
    return [value[a:b] for a, b in pairwise(borders)]


@pytest.mark.parametrize("name", TRANSDUCERS)
@steady
@given(pieces=pieces())
def test_any_chunking_gives_the_whole_value(name, pieces):
    transducer = TRANSDUCERS[name]
    whole = transducer.apply("".join(pieces))
    stream = transducer.stream()
    sent = ""
    for piece in pieces:
        sent += stream.feed(piece)
        assert whole.startswith(sent), "what was sent must be final"
    assert sent + stream.finish() == whole


@pytest.mark.parametrize("name", TRANSDUCERS)
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


@pytest.mark.parametrize(
    ("name", "whole"),
    [("identity", " a b\n"), ("strip", "a b"), ("lstrip", "a b\n"), ("rstrip", " a b")],
)
def test_each_does_what_the_string_method_does(name, whole):
    assert TRANSDUCERS[name].apply(" a b\n") == whole


def test_streams_are_independent():
    first, second = TRANSDUCERS["strip"].stream(), TRANSDUCERS["strip"].stream()
    assert first.feed("a ") == "a"
    assert second.feed(" b") == "b"
    assert first.feed("c") == " c"


def test_a_stream_takes_nothing_after_its_end():
    stream = TRANSDUCERS["rstrip"].stream()
    stream.feed("a ")
    stream.finish()
    with pytest.raises(RuntimeError, match=r"feed\('b'\) after finish"):
        stream.feed("b")
