"""What was learned of a prompt, in the form in which it is kept between processes.

A lesson is a prompt whose values have names, so that another process understands them. Its literal
texts are there as they are, or hidden: only their sizes and hashes are kept, and a later prompt,
which holds the same texts, brings them back:

    learned    "Review this: " {answer of draft} "!"
    kept       [13, 5f3a...]   {answer of draft} [1, 9c01...]
    sent       "Review this: " {answer of draft} "!"           agrees, and is the template again
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grape_lc.adapters.edges import DIFFERS, readings
from grape_lc.adapters.flow_builder import TEXT, Messages
from grape_lc.adapters.markers import Damaged, Found, Newest, Part
from grape_lc.flow.template import MessageTemplate, Slot, parse_template

_DIGEST = re.compile(r"[0-9a-f]{64}")

Kind = Literal["input", "answer"]


@dataclass(frozen=True, slots=True)
class Value:
    """A value in a prompt: text ``name`` of the input, or the answer of task ``name``.

    also: other transducers that gave the same text in all runs so far.
    """

    kind: Kind
    name: str
    transducer: str = "identity"
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hidden:
    """A literal text of which only this is known. size: characters. digest: SHA-256 of salt and
    text, 64 hexadecimal digits.
    """

    size: int
    digest: str


Piece = str | Hidden | Value | Damaged

Tools = tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Lesson:
    """messages: of a prompt, with their roles; Damaged ends what is known of it. tools: that the
    model was shown, if any, or what is known of their JSON.
    """

    messages: tuple[tuple[str, tuple[Piece, ...]], ...]
    tools: Tools | Hidden = ()


@dataclass(frozen=True, slots=True)
class Outlines:
    """Lessons by task. salt: of the hidden texts' hashes."""

    salt: str
    lessons: Mapping[str, Lesson]


def is_hidden(lesson: Lesson) -> bool:
    """Whether some of its text is hidden."""
    return isinstance(lesson.tools, Hidden) or any(
        isinstance(piece, Hidden) for _, pieces in lesson.messages for piece in pieces
    )


def shown(lesson: Lesson) -> Tools:
    """The tools of a lesson that is not hidden."""
    return () if isinstance(lesson.tools, Hidden) else lesson.tools


def has_tools(lesson: Lesson, tools: Tools, salt: str) -> bool:
    """Whether these are its tools."""
    if isinstance(lesson.tools, Hidden):
        return hide(_canonical(tools), salt) == lesson.tools
    return lesson.tools == tools


def hide(text: str, salt: str) -> Hidden:
    """What is kept of a literal text."""
    data = (salt + text).encode("utf-8", "surrogatepass")
    return Hidden(len(text), hashlib.sha256(data).hexdigest())


def lesson_of(messages: Messages, tools: Tools, names: Mapping[int, tuple[Kind, str]]) -> Lesson:
    """A prompt in which values have numbers, with their names instead."""

    def piece(part: Part) -> Piece:
        if isinstance(part, Found):
            return Value(*names[part.number], part.transducer, part.also)
        # What is learned has one answer in each place: runs that differ there end the prompt.
        return Damaged("one of several answers") if isinstance(part, Newest) else part

    return Lesson(
        tuple((role, tuple(piece(part) for part in parts)) for role, parts in messages), tools
    )


def revealed(
    lesson: Lesson, messages: Messages, number: Callable[[Kind, str], int], salt: str
) -> Messages:
    """The lesson's messages with numbers for values, and hidden texts as ``messages`` have them.

    Ends at the first hidden text that ``messages`` do not have in its place.
    """
    known: list[tuple[str, tuple[Part, ...]]] = []
    for index, (role, pieces) in enumerate(lesson.messages):
        there = messages[index][1] if index < len(messages) else ()
        parts: list[Part] = []
        for piece in pieces:
            match piece:
                case Value(kind, name, transducer, also):
                    parts.append(Found(number(kind, name), transducer, also))
                case Hidden(size):
                    values = sum(isinstance(part, Found) for part in parts)
                    texts = (text[:size] for text in readings(there, values))
                    text = next((text for text in texts if hide(text, salt) == piece), None)
                    if text is None:
                        known.append((role, (*parts, DIFFERS)))
                        return tuple(known)
                    parts.append(text)
                case _:
                    parts.append(piece)
        known.append((role, tuple(parts)))
    return tuple(known)


# -- plain values, for JSON -------------------------------------------------------------------


def lesson_to_plain(lesson: Lesson, salt: str | None) -> dict[str, Any]:
    """The lesson as lists and dictionaries; texts and tools are hidden unless salt is None."""
    plain: dict[str, Any] = {
        "messages": [
            [role, [_piece_to_plain(piece, salt) for piece in pieces]]
            for role, pieces in lesson.messages
        ]
    }
    if isinstance(lesson.tools, Hidden):
        plain["tools"] = _piece_to_plain(lesson.tools, salt)
    elif lesson.tools and salt is not None:
        plain["tools"] = _piece_to_plain(hide(_canonical(lesson.tools), salt), salt)
    elif lesson.tools:
        plain["tools"] = list(lesson.tools)
    return plain


def _canonical(tools: Tools) -> str:
    return json.dumps(tools, sort_keys=True, ensure_ascii=False)


def _piece_to_plain(piece: Piece, salt: str | None) -> dict[str, Any]:
    if isinstance(piece, str) and salt is not None:
        piece = hide(piece, salt)
    match piece:
        case str():
            return {"text": piece}
        case Hidden(size, digest):
            return {"size": size, "sha256": digest}
        case Value(kind, name, transducer, also):
            through = {} if transducer == "identity" else {"through": transducer}
            return {kind: name, **through, **({"or": list(also)} if also else {})}
        case Damaged():
            return {"end": True}


def lesson_from_plain(plain: Any) -> Lesson:
    """The lesson that was written. Raises ValueError, LookupError or TypeError for what is none.

    (FlowErrors are ValueErrors.)
    """
    messages = tuple(
        (_text(role), tuple(_piece_from_plain(piece) for piece in pieces))
        for role, pieces in plain["messages"]
    )
    if not messages:
        raise ValueError("a prompt without messages")
    for role, _ in messages:
        if role != TEXT or len(messages) > 1:
            MessageTemplate(role, "")  # raises for what is no role
    return Lesson(messages, _tools_from_plain(plain.get("tools", [])))


def _tools_from_plain(plain: Any) -> Tools | Hidden:
    if isinstance(plain, list):
        if not all(isinstance(tool["function"]["name"], str) for tool in plain):
            raise ValueError("a tool has no name")
        return tuple(plain)
    match _piece_from_plain(plain):
        case Hidden() as hidden:
            return hidden
    raise ValueError("the tools are neither there nor hidden")


def _piece_from_plain(plain: Any) -> Piece:
    match plain:
        case {"text": str(text)}:
            return text
        case {"size": int(size), "sha256": str(digest)} if _DIGEST.fullmatch(digest) and size > 0:
            return Hidden(size, digest)
        case {"input": str(name)}:
            return Value("input", name, *_transducers(plain))
        case {"answer": str(name)}:
            return Value("answer", name, *_transducers(plain))
        case {"end": True}:
            return DIFFERS
    raise ValueError("a piece of a prompt is neither text, value nor end")


def _transducers(plain: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    return (
        _transducer(plain.get("through", "identity")),
        tuple(_transducer(other) for other in plain.get("or", ())),
    )


def _transducer(plain: Any) -> str:
    spec = _text(plain)
    # As it will stand in a template: nothing but one slot may come of it.
    match parse_template(f"{{x|{spec}}}"):
        case (Slot("x"),):
            return spec
    raise ValueError("a transducer is not one")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} instead of a text")
    return value
