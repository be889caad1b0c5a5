"""The splicer against a real tokenizer: what it commits never has to be taken back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE, Unigram

from grape_lc.engine.tokens import cuts_parts_alike
from grape_lc.runtime.splicer import HOLD_BACK, Splicer, settled

PIECES = [
    *("<|im_start|>user\n", "<|im_end|>\n", "The quick brown fox", " jumps", " a", "A"),
    *("def f(x):\n    return x\n", "```python\n", "://", "...", "_" * 40, "=" * 33),
    *("\n\n", "   ", "\t", "🦊", "é", "日本語", "1234567890", "'s", "n't", "\u200d", "e\u0301"),
]


class Encode:
    """The tokenizer as the engine uses it, counting what it is asked for."""

    def __init__(self, tokenizer: Tokenizer, *, offsets: bool = True) -> None:
        self.tokenizer = tokenizer
        self.offsets = offsets
        self.characters = 0
        self.markers = [t.content for t in tokenizer.get_added_tokens_decoder().values()]

    def __call__(self, text: str) -> tuple[Sequence[int], Sequence[int] | None]:
        self.characters += len(text)
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, [end for _, end in encoding.offsets] if self.offsets else None


@pytest.fixture(scope="module")
def tokenizer(model_path: str) -> Tokenizer:
    return Tokenizer.from_file(str(Path(model_path) / "tokenizer.json"))


def run(encode: Encode, texts: list[str]) -> tuple[Splicer, list[int]]:
    """Feed the texts one by one; all ids that were committed, the end included."""
    splicer, committed = Splicer(encode, markers=encode.markers), []
    for text in texts:
        splicer.feed(text)
        committed += splicer.commit() or []
        splicer.validate()
    committed += splicer.commit(final=True) or []
    return splicer, committed


@settings(max_examples=400, deadline=None)
@given(texts=st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=12)), max_size=40))
def test_commits_the_ids_of_the_whole_text(tokenizer: Tokenizer, texts: list[str]) -> None:
    """Either the committed ids are exactly those of the whole text, or it says that it broke."""
    encode = Encode(tokenizer)
    splicer, committed = run(encode, texts)
    assert splicer.text == "".join(texts)
    if splicer.broken:
        assert splicer.commit() is None
    else:
        assert committed == list(encode(splicer.text)[0]) == list(splicer.committed)


@pytest.mark.parametrize("offsets", [True, False])
def test_ordinary_text_never_breaks(tokenizer: Tokenizer, offsets: bool) -> None:
    """Prose and code, a few characters at a time, with and without token offsets."""
    text = (
        "<|im_start|>user\nWrite a plan.\n\n1. Read the input, e.g. `3 4 -5`.\n"
        "2. Don't sort twice: it's O(n log n) — slow.\n\n```python\ndef solve(xs):\n"
        "    return sorted(xs)[::-1]  # 日本語 🦊\n```\n"
    ) * 6
    splicer, committed = run(
        Encode(tokenizer, offsets=offsets), [text[i : i + 5] for i in range(0, len(text), 5)]
    )
    assert not splicer.broken
    assert committed == tokenizer.encode(text, add_special_tokens=False).ids


def test_holds_back_what_later_text_can_change(tokenizer: Tokenizer) -> None:
    """A seam inside a word: the ids committed before are a prefix of the joined text's ids."""
    splicer = Splicer(Encode(tokenizer))
    splicer.feed("The answer to the question that you have asked is uncommon")
    first = splicer.commit()
    splicer.feed("ly simple.")
    second = splicer.commit(final=True)
    whole = tokenizer.encode(splicer.text, add_special_tokens=False).ids
    assert first is not None
    assert second is not None
    assert 0 < len(first) <= len(whole) - HOLD_BACK
    assert first + second == whole


def test_white_space_at_the_end_waits(tokenizer: Tokenizer) -> None:
    """Trailing white space merges with what follows, so it does not count as known text."""
    splicer = Splicer(Encode(tokenizer), hold_back=0)
    splicer.feed("one two\n\n   ")
    assert splicer.commit() == tokenizer.encode("one two", add_special_tokens=False).ids


def test_long_texts_are_not_tokenised_again_and_again(tokenizer: Tokenizer) -> None:
    """The work for each commit does not grow with the text that was committed before."""
    encode = Encode(tokenizer)
    words = [f" word{i % 7} and" for i in range(600)]
    splicer = Splicer(encode)
    splicer.feed("".join(words[:300]))
    splicer.commit()
    before = encode.characters
    for word in words[300:]:
        splicer.feed(word)
        splicer.commit()
    per_commit = (encode.characters - before) / 300
    assert not splicer.broken
    assert per_commit < 300, f"{per_commit:.0f} characters tokenised for each commit"


def test_a_tokenizer_that_contradicts_itself_breaks_the_splicer() -> None:
    """Committed ids that turn out wrong stop the feeding; nothing wrong is added."""

    def fickle(text: str) -> tuple[list[int], None]:
        return ([1] * len(text) if len(text) < 14 else [2] * len(text)), None

    splicer = Splicer(fickle)
    splicer.feed("abcdefghijkl")
    assert splicer.commit() == [1] * 4
    splicer.feed("mnopqrst")
    assert splicer.commit() is None
    assert splicer.broken
    assert splicer.committed == [1] * 4


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("one two \n\n", "one two"),
        ("a number 12345", "a number"),
        ("a line =====", "a line"),
        ("a laugh: hahaha", "a laugh:"),
        ("a letter a\u0301\u0323", "a letter"),
        ("half \ufffd", "half"),
        ("a marker? <|im_", "a marker?"),
        ("under marks <|im_end|\u0301\u0301", "under marks"),
        ("under a run <<<<<|im", "under a run"),
        ("nothing special here", "nothing special here"),
    ],
)
def test_what_later_text_can_change_as_a_whole_is_not_settled(text: str, kept: str) -> None:
    assert text[: settled(text, ["<|im_start|>", "<|im_end|>"])] == kept


def test_what_is_held_back_can_be_replaced() -> None:
    """A chat template trims; what was committed stands."""
    splicer = Splicer(lambda text: ([ord(c) for c in text], list(range(1, len(text) + 1))))
    splicer.feed("an answer with a blank behind it  ")
    assert splicer.commit()
    assert not splicer.replace_held_back("An answer with a blank behind it</>")
    assert splicer.replace_held_back("an answer with a blank behind it</>")
    splicer.commit(final=True)
    assert "".join(map(chr, splicer.committed)) == "an answer with a blank behind it</>"


def test_unigram_tokenizers_are_known() -> None:
    """They cut a part of a text in another way than the whole, where two ways are as likely."""
    assert cuts_parts_alike(Tokenizer(BPE()))
    assert not cuts_parts_alike(Tokenizer(Unigram([("a", -1.0)])))
