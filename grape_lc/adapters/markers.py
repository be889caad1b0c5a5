r"""Texts that stand for values which are not known yet, and how to find them again.

While a graph is traced, each unknown value is a marker: a text that goes through f-strings,
``str.format``, joins, prompt templates and messages like any other, and can be found in the
prompt that comes out.

    "\n" EM SPACE  OPEN  number ";" path ":" body  CLOSE  EN SPACE "\n"
    └─ left edge ─┘             └ field ┘           └─ right edge ─┘

The edges are white space: where they are missing, the program has stripped the value. The body
holds upper and lower case, punctuation, both quotes, digits, all kinds of white space, so that
whatever else the program does to the value (case, slices, splits, replacements) damages it. A
damaged marker says that a value stood there, but not what has become of it.

``repr`` and ``json.dumps`` change a marker in a way that is known, and so it is looked for as
they leave it, too. What went through them is known from the body, whose characters they treat
differently:

    repr          '\n\u2003\ue0f07:zQ7 ... it\'s ...'     its quotes are part of it
    json.dumps     \n\u2003\ue0f07:zQ7 ... \"text\" ...   its quotes are literal text

Where a value may have a few characters only, its marker is a short one, which notices less:

    "\n" EM SPACE  OPEN  number "!" path ":" short body  CLOSE  EN SPACE "\n"

A marker with thoughts has a ``<think>`` part in front. If that is gone, the program has cut it off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from grape_lc.flow.transducers import TRANSDUCERS, json_spec, piped

# Private-use characters: no prompt has them, and repr and JSON escape them.
_OPEN, _CLOSE = "\ue0f0", "\ue0f1"
_LEFT, _RIGHT = "\n\u2003", "\u2002\n"
# No braces: programs put texts into prompt templates, where a brace would be an error. The é is
# kept by repr, and not by ascii().
_BODY = (
    'zQ7 Marker,\t"text"; it\'s <not> [known] yet!\r\n\n\n- a/b\\c & d|e (f) = $5.00 + 10% #1\n'
    "* J_k@x.y ^~`: W? é 2 + 3  4 6 8 9 vV bB gG hH lL pP uU"
)
# As the body, with what tells escapes apart and little else.
_SHORT_BODY = "zQ\"'\té\n\nW"
_THOUGHTS = f"<think>\n{_OPEN}zQ7 thoughts{_CLOSE}\n</think>"
_THINKS = "t"  # behind the number of a marker that has thoughts


@dataclass(frozen=True, slots=True)
class Found:
    """A value in a text: its number, and the transducer that it went through (a template's).

    also: transducers that give the same text for this run's value, and may be meant.
    left, right: white space of the value here that may be the text's beside it; None: not known.
    """

    number: int
    transducer: str = "identity"
    also: tuple[str, ...] = field(default=(), compare=False, repr=False)
    left: str | None = field(default=None, compare=False, repr=False)
    right: str | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A place where a value went in, changed in a way that cannot be followed."""

    why: str = "a text that the program changed"


@dataclass(frozen=True, slots=True)
class Newest:
    """Of several values the one that came last: which it is differs between runs."""

    numbers: tuple[int, ...]
    transducer: str = "identity"


Part = str | Found | Damaged | Newest


def marker(number: int, path: str | Sequence[str] = (), *, thinks: bool = False) -> str:
    """The text that stands for value ``number`` (0 or more).

    path: of a field, if the value is a JSON document whose strings are markers of the one number:
        keys and list indexes, or both as one text with dots in between. It is found again as
        ``json:<path>``.
    thinks: the value begins with thoughts, as a model that reasons writes them. A text that was
        cut off behind them is found as ``after_think``. A field has none of its own: put
        ``THOUGHTS`` in front of the document, and ask for ``thinks`` in its fields.
    """
    parts = path.split(".") if isinstance(path, str) and path else path
    where = _joined(parts)
    mark = _THINKS if thinks else ""
    text = f"{_LEFT}{_OPEN}{number}{mark};{where}:{_BODY}{_CLOSE}{_RIGHT}"
    return f"{_THOUGHTS}{text}" if thinks and not where else text


def short_marker(number: int, path: Sequence[str]) -> str:
    """As ``marker`` of a field, in 17 characters, 1 to 4 of the number, and those of the path.

    It is found again in the same way. For texts that have no room for more: what a program does
    to a part of the text is more often taken for the program's own.
    """
    return f"{_LEFT}{_OPEN}{_base_36(number)}!{_joined(path)}:{_SHORT_BODY}{_CLOSE}{_RIGHT}"


def _base_36(number: int) -> str:
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _joined(path: Sequence[str]) -> str:
    return ".".join(quote(part, safe="").replace(".", "%2E") for part in path)


THOUGHTS = _THOUGHTS
"""Thoughts in front of a JSON document."""


# -- as escapes leave them --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Escape:
    """What a program may do to a whole value or, with JSON, to a text that holds it.

    spec: the transducer. change: of a text without quotes. quotes: belong to the value.
    """

    spec: str
    change: Callable[[str], str]
    quotes: str = ""


# The body has both quotes, and then repr takes single ones.
_ESCAPES = (
    _Escape("identity", str),
    _Escape("repr", lambda text: repr(f'"{text}')[2:-1], quotes="'"),
    _Escape("json_escape", lambda text: json.dumps(text, ensure_ascii=False)[1:-1]),
    _Escape("json_escape_ascii", lambda text: json.dumps(text)[1:-1]),
)


def _pattern(index: int, escape: _Escape) -> str:
    def shown(text: str) -> str:
        return re.escape(escape.change(text))

    return (
        f"{escape.quotes}"
        f"(?P<thoughts{index}>{shown(_THOUGHTS)})?"
        f"(?P<left{index}>{shown(_LEFT)})?"
        f"{shown(_OPEN)}"
        f"(?:(?P<number{index}>[0-9]+)(?P<thinks{index}>{_THINKS})?"
        f";(?P<path{index}>[^:;\\s]*):{shown(_BODY)}"
        f"|(?P<short{index}>[0-9a-z]+)!(?P<field{index}>[^:;\\s]+):{shown(_SHORT_BODY)})"
        f"{shown(_CLOSE)}"
        f"(?P<right{index}>{shown(_RIGHT)})?"
        f"{escape.quotes}"
    )


_WHOLE = re.compile("|".join(_pattern(index, escape) for index, escape in enumerate(_ESCAPES)))
# What is left of a marker after something else happened to it, with the edge in front of it.
_SEEN_EDGE = r"(?:\n|\\n)?(?:\u2003|\\u2003)"
_DAMAGED = re.compile(
    rf"<think>\s*[{_OPEN}]|{_SEEN_EDGE}|[{_OPEN}{_CLOSE}\u2002]"
    r"|\\u(?:e0f0|e0f1|2002)"
    f"|(?i:zQ7 (?:Marker|thoughts)|zQ[\"']|{re.escape(_BODY[-20:])})"
)


# -- finding ----------------------------------------------------------------------------------


def split(text: str, documents: Mapping[int, str] | None = None) -> Iterator[Part]:
    """The literal texts and the markers in ``text``, in order.

    documents: whole JSON documents by their numbers. One that stands in ``text`` as it is, or
    escaped, is found as itself and not as its fields.

    Ends behind the first Damaged: what follows cannot be told from the rest of the value.
    Yields no empty literal.
    """
    position = 0
    for start, end, found in _occurrences(text, documents or {}):
        literal = text[position:start]
        damage = _DAMAGED.search(literal)
        if damage is not None:
            if damage.start():
                yield literal[: damage.start()]
            yield Damaged()
            return
        if literal:
            yield literal
        position = end
        yield found
        if isinstance(found, Damaged):
            return
    literal = text[position:]
    damage = _DAMAGED.search(literal)
    end = len(literal) if damage is None else damage.start()
    if end:
        yield literal[:end]
    if damage is not None:
        yield Damaged()


def _occurrences(text: str, documents: Mapping[int, str]) -> Iterator[tuple[int, int, Part]]:
    """Start, end and meaning of each whole value, in order."""
    forms: dict[str, Found] = {}
    for number, document in documents.items():
        # One without any marker cannot be told from the program's own text.
        if _WHOLE.search(document):
            for form, spec in _forms(document):
                forms.setdefault(form, Found(number, spec))
    # Of several that begin at one place the longest is meant.
    wanted = sorted(forms, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, wanted))) if wanted else None
    position = 0
    found: Part
    while True:
        single = _WHOLE.search(text, position)
        whole = pattern.search(text, position) if pattern is not None else None
        if whole is not None and (single is None or whole.start() <= single.start()):
            match, found = whole, forms[whole[0]]
        elif single is not None:
            match, found = single, _found(single)
        else:
            return
        yield match.start(), match.end(), found
        position = match.end()


def _forms(document: str) -> Iterator[tuple[str, str]]:
    """A document as it may stand in a prompt, and the transducer; the simplest first."""
    after = [document.removeprefix(_THOUGHTS)] if document.startswith(_THOUGHTS) else []
    for thoughts, body in [("", document), *(("after_think", text) for text in after)]:
        for strip in ("identity", "rstrip", "lstrip", "strip"):
            text = TRANSDUCERS[strip].apply(body)
            for escape in _ESCAPES:
                form = f"{escape.quotes}{escape.change(text)}{escape.quotes}"
                yield form, piped(thoughts, strip, escape.spec)


def _found(match: re.Match[str]) -> Part:
    index, number = next(
        (i, int(text, base))
        for i in range(len(_ESCAPES))
        for text, base in ((match[f"number{i}"], 10), (match[f"short{i}"], 36))
        if text is not None
    )
    path = match[f"path{index}"] or match[f"field{index}"]
    if path and not all(path.split(".")):
        return Damaged("a field without a name")
    whole = match[f"thoughts{index}"] is not None
    spec = piped(
        "after_think" if match[f"thinks{index}"] and not whole else "",
        json_spec(tuple(map(unquote, path.split(".")))) if path else "",
        # Thoughts have no edge in front of them: models begin at once.
        _stripped(whole or match[f"left{index}"] is not None, match[f"right{index}"] is not None),
        _ESCAPES[index].spec,
    )
    return Found(number, spec)


def _stripped(left: bool, right: bool) -> str:
    if left and right:
        return "identity"
    if left:
        return "rstrip"
    return "lstrip" if right else "strip"
