"""Turns a text that grows at its end into token ids that later text cannot change.

A tokenizer may merge across any seam, so the ids of ``a + b`` are not the ids of ``a`` followed
by those of ``b``. The splicer re-tokenises a window at the end of the text and commits only what
lies a few tokens before that end; the rest is held back until more text, or the end, is known.

        text   |......................|.........window..........|
        ids    |  committed, sent     | same again | new | held |
                                      ^ must agree with what was sent, or all is re-tokenised

Measured on a byte-level BPE: later text changes at most the last 2-3 tokens; 4 are held back,
and trailing white space and incomplete UTF-8 besides. What was committed is still compared with
the tokens of the real prompt before it is used, so a wrong guess costs compute, never output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

HOLD_BACK = 4
WINDOW = 24


class Encoder(Protocol):
    """Text to token ids, as the engine tokenises a prompt (special tokens in the text count)."""

    def __call__(self, text: str) -> tuple[Sequence[int], Sequence[int] | None]:
        """Token ids, and for each the index in ``text`` (characters) at which it ends.

        The ends are None for tokenizers that do not tell; then every call re-tokenises the
        whole text.
        """
        ...


class Splicer:
    """Commits token ids of a growing text. Not thread safe; owned by one prompt.

    ``broken`` turns true when a committed id proved wrong; nothing is committed after that.
    """

    def __init__(
        self, encode: Encoder, *, markers: Sequence[str] = (), hold_back: int = HOLD_BACK
    ) -> None:
        """``markers``: texts that the tokenizer turns into one special token each."""
        self._encode = encode
        self._markers = [marker for marker in markers if marker]
        self._longest_marker = max((len(m) for m in self._markers), default=1)
        self._hold_back = hold_back
        self._text = ""
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

    def commit(self, *, final: bool = False) -> list[int] | None:
        """Commit and return the ids that are now certain; all of them if ``final``.

        ``final`` says that no text follows. None once the splicer is broken.
        """
        if self.broken:
            return None
        stable = self._text if final else self._stable_text()
        start, ids, ends = self._tokenise(stable)
        if start is None:
            self.broken = True
            return None
        keep = len(ids) if final else max(len(ids) - self._hold_back, 0)
        new, new_ends = ids[:keep], ends[:keep]
        self._ids.extend(new)
        self._ends.extend(new_ends)
        return list(new)

    def _stable_text(self) -> str:
        """The text without its end that cannot be tokenised yet.

        That is white space, half characters, and what may become a special token.
        """
        text = self._text.rstrip("\N{REPLACEMENT CHARACTER}")
        tail = text[-self._longest_marker :]
        for marker in (m for m in self._markers if m[0] in tail):
            for length in range(min(len(marker) - 1, len(text)), 0, -1):
                if text.endswith(marker[:length]):
                    return text[:-length].rstrip()
        return text.rstrip()

    def _tokenise(self, text: str) -> tuple[int | None, Sequence[int], Sequence[int]]:
        """Ids and ends behind what is committed, or None first if committed ids were wrong."""
        count = len(self._ids)
        if count > WINDOW and len(self._ends) == count:
            found = self._tokenise_window(text)
            if found is not None:
                return (count, *found)
        ids, ends = self._encode(text)
        if list(ids[:count]) != self._ids:
            # Held-back text got shorter than what was sent: not wrong yet, only nothing new.
            if len(ids) < count and self._ids[: len(ids)] == list(ids):
                return count, (), ()
            return None, (), ()
        return count, ids[count:], ends[count:] if ends is not None else ()

    def _tokenise_window(self, text: str) -> tuple[Sequence[int], Sequence[int]] | None:
        """The same from a window at the end, or None if it does not line up with what was sent.

        The first ids of a window can differ since the tokenizer does not see what stands
        before; the second half must agree, position by position.
        """
        count = len(self._ids)
        start = self._ends[count - WINDOW - 1]
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
        assert self._ends == sorted(self._ends), "token ends go backwards"
        assert not self._ends or self._ends[-1] <= len(self._text), (
            f"last token ends at {self._ends[-1]} of {len(self._text)} characters"
        )
