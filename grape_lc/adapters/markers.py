r"""Texts that stand for values which are not known yet, and how to find them again.

While a graph is traced, each unknown value is a marker: a text that goes through f-strings,
``str.format``, joins, prompt templates and messages like any other, and can be found in the
prompt that comes out.

    "\n" EM SPACE  OPEN  number ":" body  CLOSE  EN SPACE "\n"
    └─ left edge ─┘                               └─ right edge ─┘

The edges are white space: where they are missing, the program has stripped the value. The body
holds upper and lower case, punctuation, digits, all kinds of white space, so that whatever
else the program does to the value (case, slices, splits, replacements, escapes) damages it.
A damaged marker says that a value stood there, but not what has become of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

# Private-use characters: no prompt has them, and repr and JSON escape them.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_LEFT, _RIGHT = "\n\u2003", "\u2002\n"
# No braces: programs put texts into prompt templates, where a brace would be an error.
_BODY = (
    'zQ7 Marker,\t"text"; it\'s <not> [known] yet!\r\n\n\n- a/b\\c & d|e (f) = $5.00 + 10% #1\n'
    "* J_k@x.y ^~`: W? 2 + 3  4 6 8 9 vV bB gG hH lL pP uU"
)

_WHOLE = re.compile(
    f"(?P<left>{_LEFT})?{_OPEN}(?P<number>[0-9]+):{re.escape(_BODY)}{_CLOSE}(?P<right>{_RIGHT})?"
)
# What is left of a marker after something else than stripping happened to it.
_DAMAGED = re.compile(
    f"\n?\u2003|[{_OPEN}{_CLOSE}\u2002]"
    r"|\\u(?:e0f0|e0f1|2003|2002)"
    f"|(?i:{re.escape(_BODY[:10])}|{re.escape(_BODY[-20:])})"
)

Edges = Literal["identity", "strip", "lstrip", "rstrip"]


@dataclass(frozen=True, slots=True)
class Found:
    """A marker in a text: the number of its value, and what was stripped from it."""

    number: int
    edges: Edges


@dataclass(frozen=True, slots=True)
class Damaged:
    """A place where a value went in, changed in a way that cannot be followed."""


Part = str | Found | Damaged


def marker(number: int) -> str:
    """The text that stands for value ``number`` (0 or more)."""
    return f"{_LEFT}{_OPEN}{number}:{_BODY}{_CLOSE}{_RIGHT}"


def split(text: str) -> Iterator[Part]:
    """The literal texts and the markers in ``text``, in order.

    Ends behind the first Damaged: what follows cannot be told from the rest of the value.
    Yields no empty literal.
    """
    position = 0
    for match in _WHOLE.finditer(text):
        literal = text[position : match.start()]
        damage = _DAMAGED.search(literal)
        if damage is not None:
            if damage.start():
                yield literal[: damage.start()]
            yield Damaged()
            return
        if literal:
            yield literal
        position = match.end()
        yield Found(int(match["number"]), _edges(match["left"], match["right"]))
    literal = text[position:]
    damage = _DAMAGED.search(literal)
    end = len(literal) if damage is None else damage.start()
    if end:
        yield literal[:end]
    if damage is not None:
        yield Damaged()


def _edges(left: str | None, right: str | None) -> Edges:
    if left and right:
        return "identity"
    if left:
        return "rstrip"
    return "lstrip" if right else "strip"
