"""Whether an answer is the expected one, after the rules of HotpotQA.

Texts are compared without case, punctuation, articles and surplus white space (the
normalisation of the SQuAD and HotpotQA evaluations).
"""

from __future__ import annotations

import re
import string

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalised(text: str) -> str:
    """The text in lower case, without punctuation and articles, with single spaces."""
    words = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", words).split())


def exact_match(answer: str, expected: str) -> bool:
    """Whether both texts are the same when normalised."""
    return _comparable(answer, expected) == _comparable(expected, expected)


def contains(answer: str, expected: str) -> bool:
    """Whether the expected text stands in the answer, as whole words, both normalised."""
    return f" {_comparable(expected, expected)} " in f" {_comparable(answer, expected)} "


def _comparable(text: str, expected: str) -> str:
    """``text`` normalised; as it is if nothing would be left of what is expected, such as "%"."""
    return normalised(text) if normalised(expected) else " ".join(text.split())
