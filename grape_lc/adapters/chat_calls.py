"""Calls of tools read out of an answer's text, piece by piece.

A free answer holds calls in the form of the Hermes models, anywhere in its text:

    text <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call> text

A forced answer is a call, ``{"name": ..., "arguments": {...}}``, or a list of calls, and nothing
else. Both are read by the same rules: the name first, then the arguments as they come.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from typing import Protocol

from grape_lc.engine.base import CallPiece

BEGIN, END = "<tool_call>", "</tool_call>"

# The name as the first key and the arguments as the second: the usual order, which can be
# passed on while it comes. Calls in another order are read when they are complete.
_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*'
)

_LONGEST_HEAD = 4096  # characters; each piece of an answer looks through it again

Piece = str | CallPiece


class Reader(Protocol):
    """Turns the text of an answer into plain text and calls."""

    def feed(self, text: str) -> Iterator[Piece]:
        """What ``text`` adds to what came before."""
        ...

    def finish(self) -> Iterator[Piece]:
        """What was held back; the answer is complete."""
        ...


class PlainReader:
    """An answer without calls."""

    def feed(self, text: str) -> Iterator[Piece]:
        """The text as it is."""
        if text:
            yield text

    def finish(self) -> Iterator[Piece]:
        """Nothing is held back."""
        yield from ()


class TaggedReader:
    """A free answer. The first end tag ends a call; white space alone behind one is dropped."""

    def __init__(self) -> None:
        self._buffer = ""
        self._calls = 0
        self._call: _Call | None = None

    def feed(self, text: str) -> Iterator[Piece]:
        """See ``Reader``."""
        self._buffer += text
        while True:
            tag = BEGIN if self._call is None else END
            before, found, behind = self._buffer.partition(tag)
            if not found:
                held = _overlap(before, tag)
                if self._call is None and self._calls:
                    # White space may stand before another call.
                    rest = before[: len(before) - held]
                    held += len(rest) - len(rest.rstrip())
                ready, self._buffer = before[: len(before) - held], before[len(before) - held :]
                yield from self._pass_on(ready)
                return
            if self._call is None:
                yield from self._pass_on(before.rstrip() if self._calls else before)
                self._call = _Call(self._calls)
                self._calls += 1
            else:
                yield from self._pass_on(before)
                yield from self._call.finish()
                self._call = None
            self._buffer = behind

    def finish(self) -> Iterator[Piece]:
        """See ``Reader``; a call without an end tag ends here."""
        rest, self._buffer = self._buffer, ""
        if self._call is not None:
            yield from self._call.feed(rest)
            yield from self._call.finish()
        elif rest.strip() or not self._calls:
            yield from self._pass_on(rest)

    def _pass_on(self, text: str) -> Iterator[Piece]:
        if not text:
            return
        if self._call is None:
            yield text
        else:
            yield from self._call.feed(text)


class ForcedReader:
    """A forced answer: a call, or a list of calls. What is neither is a malformed call."""

    def __init__(self) -> None:
        self._calls = 0
        self._call: _Call | None = None
        self._value = _JSONValue()
        self._listed: bool | None = None
        self._ended = False

    def feed(self, text: str) -> Iterator[Piece]:
        """See ``Reader``."""
        if self._listed is None:
            text = text.lstrip()
            if not text:
                return
            self._listed = text[0] == "["
            text = text[1:] if self._listed else text
        while text and not self._ended:
            if self._call is None:
                text = text.lstrip(" \t\r\n,")
                if not text:
                    return
                # What stands behind the list, or behind the only call, is none.
                self._ended = text[0] == "]" if self._listed else self._calls > 0
                if self._ended:
                    return
                self._call = _Call(self._calls)
                self._calls += 1
                self._value = _JSONValue()
            size = self._value.take(text)
            yield from self._call.feed(text[:size])
            text = text[size:]
            if self._value.complete:
                yield from self._call.finish()
                self._call = None

    def finish(self) -> Iterator[Piece]:
        """See ``Reader``; a call that was cut short ends here."""
        if self._call is not None:
            yield from self._call.finish()
            self._call = None


class _Call:
    """The text of one call."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._text = ""
        self._arguments: _JSONValue | None = None
        self._passed_on = ""

    def feed(self, text: str) -> Iterator[CallPiece]:
        if self._arguments is None:
            looked = len(self._text)
            self._text += text
            if looked > _LONGEST_HEAD:
                return  # read when it is complete
            # However the text is cut, as much of it is looked at.
            head = _HEAD.match(self._text[:_LONGEST_HEAD])
            if head is None or self._text[head.end() : _LONGEST_HEAD][:1] != "{":
                return
            name = _name(head[1])
            if name is None:
                return
            self._arguments = _JSONValue()
            text = self._text[head.end() :]
            yield self._first(name)
        if size := self._arguments.take(text):
            self._passed_on += text[:size]
            yield CallPiece(self._index, text[:size])

    def finish(self) -> Iterator[CallPiece]:
        if self._arguments is None:
            name, arguments = _whole(self._text)
            yield self._first(name)._replace(args=arguments)
        elif not _is_object(self._passed_on):
            # LangChain completes what was cut short, and a tool would run on half a path, say. A
            # bracket that fits nothing makes it an invalid call.
            yield CallPiece(self._index, self._arguments.mismatch())

    def _first(self, name: str | None) -> CallPiece:
        return CallPiece(self._index, "", name, f"call_{uuid.uuid4().hex[:24]}")


def _name(text: str) -> str | None:
    """A name as JSON writes it; None for escapes that JSON has not."""
    try:
        name = json.loads(text)
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def _whole(text: str) -> tuple[str | None, str]:
    """Name and arguments of a complete call; ``None`` and its text, tag first, if malformed."""
    try:
        call = json.loads(text, strict=False)
        name = call["name"]
        arguments = call.get("arguments", call.get("parameters", {}))
        if isinstance(arguments, str):  # JSON in a text, as in OpenAI's messages
            arguments = json.loads(arguments, strict=False)
        if isinstance(name, str) and isinstance(arguments, dict):
            return name, json.dumps(arguments, ensure_ascii=False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return None, BEGIN + text.strip()


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


class _JSONValue:
    """Finds the end of a JSON value that comes in pieces."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._quoted = self._escaped = False
        self.complete = False

    def take(self, text: str) -> int:
        """How many characters of ``text`` belong to the value."""
        if self.complete:
            return 0
        for at, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = char == "\\"
                self._quoted = char != '"'
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._open.append(char)
            elif char in "}]":
                del self._open[-1:]
                if not self._open:
                    self.complete = True
                    return at + 1
        return len(text)

    def mismatch(self) -> str:
        """A text behind which the value can never become JSON."""
        rest = ("\\" if self._escaped else "") + ('"' if self._quoted else "")
        return rest + ("}" if self._open[-1:] == ["["] else "]")


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` with which ``tag`` begins."""
    return next(
        (n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0
    )
