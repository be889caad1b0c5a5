from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.simulator.tokens import Text

SIZE = 4
segments = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 9)), max_size=8)


def text_of(parts: list[tuple[int, int]]) -> Text:
    text = Text(SIZE)
    for source, tokens in parts:
        text.append(source, tokens)
    return text


def tokens_of(text: Text) -> list[tuple[int, int]]:
    return [(source, place) for source, count in text.segments() for place in range(count)]


@given(segments, segments)
def test_common_is_the_length_of_the_shared_prefix(one, other):
    left, right = tokens_of(text_of(one)), tokens_of(text_of(other))
    shared = 0
    while shared < min(len(left), len(right)) and left[shared] == right[shared]:
        shared += 1
    assert text_of(one).common(text_of(other)) == shared


@given(segments, segments)
def test_hashes_agree_exactly_on_shared_full_blocks(one, other):
    left, right = text_of(one), text_of(other)
    shared = left.common(right) // SIZE
    assert left.hashes()[:shared] == right.hashes()[:shared]
    assert not set(left.hashes()[shared:]) & set(right.hashes()[shared:])


@given(segments)
def test_hashes_do_not_depend_on_when_they_were_asked_for(parts):
    grown = Text(SIZE)
    for source, tokens in parts:
        for _ in range(tokens):
            grown.append(source, 1)
            grown.hashes()
    whole = text_of(parts)
    assert grown.hashes() == whole.hashes()
    assert len(whole.hashes()) == whole.length // SIZE
