"""Turns a text that grows at its end into token ids that later text cannot change.

A tokenizer may merge across any seam, so the ids of ``a + b`` are not the ids of ``a`` followed
by those of ``b``. The splicer re-tokenises a window at the end of the text and commits only what
lies some tokens before that end; the rest is held back until more text, or the end, is known.

        text   |......................|.........window..........|
        ids    |  committed, sent     | same again | new | held |
                                      ^ must agree with what was sent, or all is re-tokenised

Held back are the last tokens, and before them what later text can change as a whole, however
long it is (``settled``). docs/exactness.md tells for which tokenizers this was tested. What was
committed is still compared with the tokens of the real prompt before it is used, so a wrong
guess costs compute, never output.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

HOLD_BACK = 8
WINDOW = 24

_LONGEST_RUN = 512
_LONGEST_PERIOD = 8
_ROUNDS = 4


class Encoder(Protocol):
    """Text to token ids, as the engine tokenises a prompt (special tokens in the text count)."""

    def __call__(self, text: str) -> tuple[Sequence[int], Sequence[int] | None]:
        """Token ids, and for each the index in ``text`` (characters) at which it ends.

        The ends are None for tokenizers that do not tell; then every call re-tokenises the
        whole text.
        """
        ...


def settled(text: str, markers: Sequence[str] = ()) -> int:
    """How many characters can be tokenised before it is known what follows.

    markers: texts that the tokenizer turns into one special token each. Left out at the end are
    half characters, what may become a marker, white space, and what later text changes as a
    whole: digits (some tokenizers group them from the right), a character or a few that are
    repeated (a longer run is cut in other places), a letter with its marks (normalisers sort and
    compose them). What is left out may uncover more of the same.
    """
    end = len(text.rstrip("\N{REPLACEMENT CHARACTER}"))
    known = tuple(markers)
    for _ in range(_ROUNDS):
        before = end
        end = _without_marker(text, end, known)
        end = len(text[:end].rstrip())
        end = _run_start(text, end)
        end = len(text[:end].rstrip())
        if end == before:
            break
    return _without_marker(text, end, known)


def _without_marker(text: str, end: int, markers: tuple[str, ...]) -> int:
    """The end without what may become a marker."""
    longest, beginnings = _beginnings(markers)
    for length in range(min(longest, end), 0, -1):
        if text[end - length : end] in beginnings:
            return end - length
    return end


@lru_cache(maxsize=64)
def _beginnings(markers: tuple[str, ...]) -> tuple[int, frozenset[str]]:
    """Every beginning of a marker that is not all of it, and the length of the longest."""
    found = frozenset(marker[:end] for marker in markers for end in range(1, len(marker)))
    return max(map(len, found), default=0), found


def _run_start(text: str, end: int) -> int:
    """Where the run at the end of ``text[:end]`` begins; ``end`` if there is none."""
    if end == 0:
        return 0
    least = max(end - _LONGEST_RUN, 0)
    last, start = text[end - 1], end
    if last.isnumeric():
        while start > least and text[start - 1].isnumeric():
            start -= 1
        return start
    if unicodedata.combining(last):
        while start > least and unicodedata.combining(text[start - 1]):
            start -= 1
        return max(start - 1, 0)
    for period in range(1, _LONGEST_PERIOD + 1):
        at = end - period
        while at > least and text[at - 1] == text[at - 1 + period]:
            at -= 1
        if end - at >= 2 * period:
            start = min(start, at)
    return start


class Splicer:
    """Commits token ids of a growing text. Not thread safe; owned by one prompt.

    ``broken`` turns true when a committed id proved wrong; nothing is committed after that.
    """

    def __init__(
        self, encode: Encoder, *, markers: Sequence[str] = (), hold_back: int = HOLD_BACK
    ) -> None:
        """``markers``: texts that the tokenizer turns into one special token each."""
        self._encode = encode
        self._markers = tuple(markers)
        self._hold_back = hold_back
        self._text = ""
        self._looked_at = 0
        self._ids: list[int] = []
        self._ends: list[int] = []
        self.broken = False

    @property
    def text(self) -> str:
        """All text so far, held back or not."""
        return self._text

    @property
    def committed(self) -> Sequence[int]:
        """All ids committed so far."""
        return self._ids

    def feed(self, text: str) -> None:
        """Append text; nothing is tokenised before ``commit``."""
        self._text += text

    def replace_held_back(self, text: str) -> bool:
        """Take ``text`` as all text so far; False if it differs in what was committed."""
        if self._ids and not text.startswith(self._text[: self._looked_at]):
            return False
        self._text = text
        return True

    def commit(self, *, final: bool = False) -> list[int] | None:
        """Commit and return the ids that are now certain; all of them if ``final``.

        ``final`` says that no text follows. None once the splicer is broken.
        """
        if self.broken:
            return None
        end = len(self._text) if final else settled(self._text, self._markers)
        if end <= self._looked_at and not final:
            return []
        found = self._tokenise(self._text[:end])
        if found is None:
            self.broken = True
            return None
        ids, ends = found
        self._looked_at = end
        keep = len(ids) if final else max(len(ids) - self._hold_back, 0)
        while 0 < keep < len(ends) and not self._parts_at(ends, keep):
            keep -= 1
        new, new_ends = ids[:keep], ends[:keep]
        self._ids.extend(new)
        self._ends.extend(new_ends)
        return list(new)

    def _parts_at(self, ends: Sequence[int], keep: int) -> bool:
        """Whether the text can be parted behind the first ``keep`` tokens, for a window.

        The tokens of one character stay together, and so do those of a letter with its marks:
        a normaliser may have sorted the marks, so that ends go backwards.
        """
        end = ends[keep - 1]
        return end < min(ends[keep:]) and not unicodedata.combining(self._text[end])

    def _tokenise(self, text: str) -> tuple[Sequence[int], Sequence[int]] | None:
        """Ids and ends behind what is committed, or None if committed ids were wrong."""
        count = len(self._ids)
        if count > WINDOW and len(self._ends) == count:
            found = self._tokenise_window(text)
            if found is not None:
                return found
        ids, ends = self._encode(text)
        if list(ids[:count]) != self._ids:
            return None
        return ids[count:], ends[count:] if ends is not None else ()

    def _tokenise_window(self, text: str) -> tuple[Sequence[int], Sequence[int]] | None:
        """The same from a window at the end, or None if it does not line up with what was sent.

        The first ids of a window can differ since the tokenizer does not see what stands
        before; the second half must agree, position by position.
        """
        count = len(self._ids)
        start = self._ends[count - WINDOW - 1]
        while 0 < start < len(text) and unicodedata.combining(text[start]):
            start -= 1
        if start >= len(text):
            return None
        ids, ends = self._encode(text[start:])
        if ends is None:
            return None
        positions = {start + end: index for index, end in enumerate(ends)}
        last = positions.get(self._ends[-1])
        if last is None:
            return None
        overlap = WINDOW // 2
        if last + 1 < overlap or list(ids[last + 1 - overlap : last + 1]) != self._ids[-overlap:]:
            return None
        return ids[last + 1 :], [start + end for end in ends[last + 1 :]]

    def validate(self) -> None:
        """Raise AssertionError if the state contradicts itself."""
        assert not self._ends or len(self._ends) == len(self._ids), (
            f"{len(self._ends)} ends for {len(self._ids)} ids"
        )
        assert max(self._ends, default=0) <= len(self._text), (
            f"a token ends at {max(self._ends)} of {len(self._text)} characters"
        )
