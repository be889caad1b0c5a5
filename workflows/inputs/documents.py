"""Long documents, and how they are cut into parts.

The built-in documents are the longer chapters of the language reference that every Python
brings along for ``help()``; they are read from the running Python.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from ._lines import read_lines

_SHORTEST = 6000  # characters; what is shorter needs no summary in parts
_BREAKS = ("\n\n", ". ", " ")


class Document(NamedTuple):
    """A document: a name that is unique in its file, a title, the text."""

    id: str
    title: str
    text: str


def load_documents(
    source: Path | str | None = None, *, longest: int | None = None
) -> list[Document]:
    """Documents of a JSONL file, or of all such files in a directory, in a fixed order.

    Lines with a ``text`` are taken, with ``title`` and ``id`` where present.

    source: None for the chapters that come with Python.
    longest: a longer text is cut there, before the white space that comes first (characters).
    Raises FileNotFoundError when ``source`` does not exist, and ValueError when ``longest`` is
    not positive, a line is not JSON or no line holds a text.
    """
    if longest is not None and longest < 1:
        raise ValueError(f"longest={longest}: a document has at least one character")
    documents = python_topics(_SHORTEST) if source is None else _read(source)
    return [document._replace(text=_cut(document.text, longest)) for document in documents]


def python_topics(shortest: int = 0) -> list[Document]:
    """The chapters of Python's own help that have at least ``shortest`` characters, by name."""
    from pydoc_data.topics import topics

    return [
        Document(name, _title(text), text.strip())
        for name, text in sorted(topics.items())
        if len(text) >= shortest
    ]


def split_document(text: str, count: int) -> list[str]:
    """Cut a text into ``count`` parts of about the same length, in order.

    Each cut is made at the end of a paragraph if there is one near, else at that of a sentence
    or a word. Parts have no white space at their ends; all else of the text is in them.

    Raises ValueError unless ``count`` is at least 1 and the text has that many words.
    """
    words = len(text.split())
    if not 1 <= count <= words:
        raise ValueError(f"a text of {words} words cannot be cut into {count} parts")
    parts = []
    rest = text.strip()
    for left in range(count, 1, -1):
        at = _cut_near(rest, len(rest) // left, left)
        parts.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*parts, rest]


def _cut_near(text: str, middle: int, count: int) -> int:
    """Where to cut off the first of ``count`` parts: at the best break near ``middle``.

    At least one word stays on the left, and one for each further part on the right.
    """
    ends = [word.end() for word in re.finditer(r"\S+", text)][: 1 - count]
    near = max(middle // 3, 1)
    for mark in _BREAKS:
        found = [
            at.start() + len(mark.rstrip())
            for at in re.finditer(re.escape(mark), text)
            if abs(at.start() - middle) <= near
        ]
        usable = [at for at in found if ends[0] <= at <= ends[-1]]
        if usable:
            return min(usable, key=lambda at: (abs(at - middle), at))
    return min(ends, key=lambda at: (abs(at - middle), at))


def _cut(text: str, longest: int | None) -> str:
    if longest is None or len(text) <= longest:
        return text
    head = text[: longest + 1]
    space = max(head.rfind(" "), head.rfind("\n"))
    return text[: space if space > 0 else longest].rstrip()


def _title(text: str) -> str:
    """The heading of a chapter, without the quotes and asterisks of its markup."""
    return re.sub(r"[\"*]", "", text.strip().partition("\n")[0]).strip()


def _read(source: Path | str) -> list[Document]:
    documents = []
    for name, record in read_lines(source, "text"):
        identity = str(record.get("id") or name)
        title = str(record.get("title") or identity)
        documents.append(Document(identity, title, str(record["text"]).strip()))
    return documents
