"""Questions with short answers, and the passages in which the answers stand.

The built-in passages are paragraphs of the language reference that every Python brings along
for ``help()``; the questions on them are in ``questions.jsonl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ._lines import read_lines
from .documents import python_topics

OWN_QUESTIONS = Path(__file__).parent / "questions.jsonl"

_LONG = 700  # characters of a passage at which no further paragraph is added
_UNDERLINE = re.compile(r"^([=*~\-^\"])\1{2,}$", re.MULTILINE)


class Question(NamedTuple):
    """A question: a name that is unique in its file, the text, the answer if it is known."""

    id: str
    text: str
    answer: str | None


class Passage(NamedTuple):
    """A piece of a document that may answer a question, and the document's title."""

    title: str
    text: str


def load_questions(source: Path | str | None = None) -> list[Question]:
    """Questions of a JSONL file, or of all such files in a directory, in a fixed order.

    Lines with a ``question`` are taken, with ``answer`` and ``id`` where present: the fields of
    HotpotQA.

    source: None for the questions that come with this package.
    Raises FileNotFoundError when ``source`` does not exist, and ValueError when a line is not
    JSON or no line holds a question.
    """
    questions = []
    for name, record in read_lines(OWN_QUESTIONS if source is None else source, "question"):
        answer = record.get("answer")
        questions.append(
            Question(
                str(record.get("id") or name),
                str(record["question"]),
                None if answer is None else str(answer),
            )
        )
    return questions


def load_passages(source: Path | str | None = None) -> list[Passage]:
    """The passages to search: of all questions of a collection together, each once.

    source: as for ``load_questions``; of a collection, the ``paragraphs`` of its lines, objects
        with ``title`` and ``text``.
    Raises as ``load_questions`` does; without ``paragraphs`` it is a ValueError.
    """
    found = _topic_passages() if source is None else _read_passages(source)
    return list(dict.fromkeys(found))


def _read_passages(source: Path | str) -> Iterator[Passage]:
    for _, record in read_lines(source, "paragraphs"):
        for paragraph in record["paragraphs"]:
            yield Passage(str(paragraph["title"]), str(paragraph["text"]))


def _topic_passages() -> Iterator[Passage]:
    # Chapters repeat parts of each other: a passage counts for the first that has it.
    seen: set[str] = set()
    for topic in python_topics():
        for text in _passages_of(_UNDERLINE.sub("", topic.text)):
            if text not in seen:
                seen.add(text)
                yield Passage(topic.title, text)


def _passages_of(text: str) -> Iterator[str]:
    """Whole paragraphs of a text, short ones joined, and very long ones cut between lines."""
    passage = ""
    for gap, piece in _pieces(text):
        passage = f"{passage}{gap}{piece}" if passage else piece
        if len(passage) >= _LONG:
            yield passage.strip()
            passage = ""
    if passage.strip():
        yield passage.strip()


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """What passages are made of, and the white space that stands before it."""
    for paragraph in re.split(r"\n\s*\n", text):
        if len(paragraph) < 2 * _LONG:
            yield "\n\n", paragraph
        else:
            first, *rest = paragraph.split("\n")
            yield "\n\n", first
            yield from (("\n", line) for line in rest)
