"""Transducers that take any text: white space, thoughts, and escapes."""

from __future__ import annotations

import json
from functools import partial

from grape_lc.flow.streams import Transducer, TransducerStream

_THOUGHT_ENDS = "</think>"


class _Strip(TransducerStream):
    """Drops white space, as ``str.strip`` defines it, at one end or both.

    White space that may be the end is held back, and dropped if it is.
    """

    def __init__(self, *, left: bool, right: bool) -> None:
        super().__init__()
        self._dropping = left  # still inside the leading white space
        self._holding = right
        self._held = ""

    def _take(self, delta: str) -> str:
        if self._dropping:
            delta = delta.lstrip()
            if not delta:
                return ""
            self._dropping = False
        if not self._holding:
            return delta
        body = delta.rstrip()
        if not body:
            self._held += delta
            return ""
        ready = self._held + body
        self._held = delta[len(body) :]
        return ready


class _AfterThink(TransducerStream):
    """Holds everything back until the thoughts end; a text without an end of thoughts is whole.

    That a text does not begin with ``<think>`` says nothing: many chat templates put that tag
    into the prompt, and the answer then begins inside of the thoughts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: list[str] = []
        self._tail = ""  # the end of what is held, in which the tag may have begun
        self._thinking = True

    def _take(self, delta: str) -> str:
        if not self._thinking:
            return delta
        _, tag, text = (self._tail + delta).partition(_THOUGHT_ENDS)
        if tag:
            self._thinking = False
            self._held.clear()
            return text
        self._held.append(delta)
        self._tail = (self._tail + delta)[-(len(_THOUGHT_ENDS) - 1) :]
        return ""

    def _end(self) -> str:
        return "".join(self._held) if self._thinking else ""


def _after_think(value: str) -> str:
    _, tag, text = value.partition(_THOUGHT_ENDS)
    return text if tag else value


class _Repr(TransducerStream):
    """Python's ``repr``, whose first character depends on the whole value.

    Double quotes are used for a value with ' and without ". Before a " was seen, a ' may still
    come, so nothing is certain; afterwards the quotes are single.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: list[str] | None = []

    def _take(self, delta: str) -> str:
        if self._held is None:
            return _in_single_quotes(delta)
        self._held.append(delta)
        if '"' not in delta:
            return ""
        known = "".join(self._held)
        self._held = None
        return "'" + _in_single_quotes(known)

    def _end(self) -> str:
        return "'" if self._held is None else repr("".join(self._held))


def _in_single_quotes(text: str) -> str:
    # With a " in front Python is sure to take single quotes; both are cut off again.
    return repr(f'"{text}')[2:-1]


class _JsonEscape(TransducerStream):
    """Escapes each character by itself, so nothing has to be held back."""

    def __init__(self, *, ensure_ascii: bool) -> None:
        super().__init__()
        self._ensure_ascii = ensure_ascii

    def _take(self, delta: str) -> str:
        return _json_escape(delta, ensure_ascii=self._ensure_ascii)


def _json_escape(text: str, *, ensure_ascii: bool) -> str:
    return json.dumps(text, ensure_ascii=ensure_ascii)[1:-1]


IDENTITY = Transducer("identity", str, partial(_Strip, left=False, right=False))

TEXT_TRANSDUCERS: tuple[Transducer, ...] = (
    IDENTITY,
    Transducer("strip", str.strip, partial(_Strip, left=True, right=True)),
    Transducer("lstrip", str.lstrip, partial(_Strip, left=True, right=False)),
    Transducer("rstrip", str.rstrip, partial(_Strip, left=False, right=True)),
    Transducer("after_think", _after_think, _AfterThink),
    Transducer("repr", repr, _Repr),
    Transducer(
        "json_escape",
        partial(_json_escape, ensure_ascii=False),
        partial(_JsonEscape, ensure_ascii=False),
    ),
    Transducer(
        "json_escape_ascii",
        partial(_json_escape, ensure_ascii=True),
        partial(_JsonEscape, ensure_ascii=True),
    ),
)
"""Those that need no argument, the simplest first."""
