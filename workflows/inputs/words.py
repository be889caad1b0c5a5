"""Texts of a wanted length for the synthetic agent, the same for the same seed everywhere."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

TOKENS_PER_WORD = 1.09
"""Of these sentences, by the tokenizer of the embedded model; full stops are tokens too."""

_VERBS = (
    *("Check", "Compare", "Count", "Describe", "Explain", "Keep", "List", "Mark"),
    *("Measure", "Name", "Note", "Order", "Question", "Read", "Repeat", "Weigh"),
)
_MANNERS = (
    *("carefully", "once more", "in plain words", "line by line", "without haste", "in turn"),
    *("from the beginning", "with a fresh eye", "in one sentence", "as a stranger would"),
)
_THINGS = (
    *("the number", "the name", "the date", "the unit", "the reason", "the source"),
    *("the exception", "the example", "the condition", "the result", "the order", "the limit"),
    *("the first claim", "the open question", "the old rule", "the short note"),
    *("the missing part", "the last step", "the weak point", "the other side"),
)
_PLACES = (
    *("in the notes", "of the task", "of the plan", "in the report", "on the list"),
    *("of the first page", "in the margin", "of the table", "in the letter", "at the end"),
    *("of the map", "in the log"),
)
_REASONS = (
    *("before you answer", "since others rely on it", "even if it looks right"),
    *("unless the task forbids it", "because numbers get lost", "and say where it stands"),
    *("so that nobody has to ask", "when two of them differ", "but do not change it"),
    *("and leave the rest alone", "while the memory is fresh", "until nothing is in doubt"),
)
_SUBJECTS = (
    *("a harbour", "a library", "an orchard", "a weather station", "a bakery", "a night train"),
    *("a museum", "a lighthouse", "a school garden", "a repair shop", "a river ferry", "a clinic"),
    *("a small theatre", "a mountain hut", "a print shop", "a bee farm"),
)


def text_of(tokens: float, seed: str) -> str:
    """Sentences of about so many tokens in all, to the nearest sentence; nothing for none."""
    sentences: list[str] = []
    words = 0
    for sentence in _sentences(seed):
        more = len(sentence.split())
        if (words + more / 2) * TOKENS_PER_WORD > tokens:
            break
        sentences.append(sentence)
        words += more
    return " ".join(sentences)


def subject_of(seed: str) -> str:
    """Something that a program may be about."""
    return _pick(_draw(seed), _SUBJECTS)


def _sentences(seed: str) -> Iterator[str]:
    draw = _draw(seed)
    while True:
        parts = [_pick(draw, words) for words in (_VERBS, _THINGS, _PLACES, _MANNERS, _REASONS)]
        yield f"{' '.join(parts)}."


def _draw(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a text, not a secret


def _pick(draw: random.Random, words: Sequence[str]) -> str:
    # Not choice(): how it uses its generator is not promised to stay.
    return words[int(draw.random() * len(words))]
