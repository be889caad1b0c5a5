r"""A field of a JSON document, taken out while the document is written.

    Sure:\n```json\n{"title": "T", "steps": [{"do": "Read \u00e4"}]}\n```
    └ dropped ─────┘└ skipped ───────────────────────┘└ text ──┘└ not looked at

The stream follows only the containers on the path, so it needs no stack:

    head --> prose --> value --> key --> key_text --> colon --> value, deeper, or skip
                         |  ^     ^                               skip <-> skip_text
                         |  |     +---------- next <---------------+
                         |  +-- item <---------+    (item: in a list)
                         +--> text, a string that is the field, or scalar
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from grape_lc.flow.json_document import DECODER, DIRECT, INSIDE, MAY_BEGIN, field_text
from grape_lc.flow.json_paths import Path, index_of, json_spec
from grape_lc.flow.streams import Transducer, TransducerStream


def json_field(path: Path) -> Transducer:
    """The transducer of the string, number, boolean or null at ``path``: a number, a boolean
    or null becomes what Python's ``str`` makes of it, as in an f-string.
    """
    return Transducer(json_spec(path), partial(field_text, path), partial(JsonFieldStream, path))


class _State(StrEnum):
    """What comes next; see the drawing above."""

    HEAD = "head"
    PROSE = "prose"
    VALUE = "value"
    ITEM = "item"
    KEY = "key"
    KEY_TEXT = "key_text"
    COLON = "colon"
    SKIP = "skip"
    SKIP_TEXT = "skip_text"
    NEXT = "next"
    TEXT = "text"
    SCALAR = "scalar"


_WHITE = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r'[^"\\]*')
_SCALAR = re.compile(r"[^\s,\]}]*")
_CERTAIN = re.compile(r'[^"\\\ud800-\udfff]*')
_BRACKET = re.compile(r'["{}\[\],]')
_UNIT = re.compile(r"\\u([0-9A-Fa-f]{4})")
_ESCAPES: Mapping[str, str] = MappingProxyType(
    {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
)


class JsonFieldStream(TransducerStream):
    """The field at ``path``; complete where it ends, stopped where it cannot be there.

    What stands behind the field is not looked at, so a document that proves malformed, or has
    the key once more, only there has been given its text.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._depth = 0  # parts of the path that lead to where we are
        self._state = _State.HEAD
        self._rest = ""
        self._at = 0  # of _rest was used
        self._index = 0  # of the item, in a list on the path
        self._in_list = False
        self._raw = ""  # of a key or a number, as it is written
        self._level = 0  # brackets that are open in what is skipped

    def _take(self, delta: str) -> str:
        self._rest = self._rest[self._at :] + delta
        self._at = 0
        out: list[str] = []
        while not (self.complete or self.stopped):
            before = self._state, self._at
            out.append(_STEPS[self._state](self) or "")
            if before == (self._state, self._at):
                break  # more has to be known
        return "".join(out)

    def _end(self) -> str:
        self.stopped = True  # the value ended before the field did
        return ""

    def _peek(self) -> str:
        """The next character that is no white space; "" if it has not come."""
        self._run(_WHITE)
        return self._rest[self._at : self._at + 1]

    def _use(self, state: _State) -> None:
        """Take one character, and go on."""
        self._at += 1
        self._state = state

    # -- one step for each state

    def _head(self) -> None:
        if match := DIRECT.match(self._rest):
            self._at, self._state = match.end(), _State.VALUE
        elif self._rest.isspace():
            self._at = len(self._rest)
        else:
            self._state = _State.PROSE

    def _prose(self) -> None:
        if match := INSIDE.search(self._rest):
            self._at, self._state = match.end(), _State.VALUE
        else:
            begins = MAY_BEGIN.search(self._rest)
            self._at = len(self._rest) if begins is None else begins.start()

    def _value(self) -> None:
        first = self._peek()
        if not first:
            return
        wanted = None if self._depth == len(self._path) else self._path[self._depth]
        if wanted is None:
            self._field(first)
        elif first == "{":
            self._in_list = False
            self._use(_State.KEY)
        elif first == "[" and index_of(wanted) is not None:
            self._in_list, self._index = True, 0
            self._use(_State.ITEM)
        else:
            self.stopped = True

    def _field(self, first: str) -> None:
        if first == '"':
            self._use(_State.TEXT)
        elif first in "{[":
            self.stopped = True
        else:
            self._raw = ""
            self._state = _State.SCALAR

    def _scalar(self) -> str:
        """A number, boolean or null; where it ends is known from what follows."""
        self._raw += self._run(_SCALAR)
        if self._at == len(self._rest):
            return ""
        try:
            text = str(DECODER.decode(self._raw))
        except ValueError:
            self.stopped = True
            return ""
        self.complete = True
        return text

    def _item(self) -> None:
        first = self._peek()
        if first == "]":
            self.stopped = True
        elif first:
            self._enter(self._index == index_of(self._path[self._depth]))

    def _enter(self, wanted: bool) -> None:
        """Go into a member of a container."""
        if wanted:
            self._depth += 1
            self._state = _State.VALUE
        else:
            self._level = 0
            self._state = _State.SKIP

    def _before_key(self) -> None:
        first = self._peek()
        if first == '"':
            self._raw = ""
            self._use(_State.KEY_TEXT)
        elif first:
            self.stopped = True

    def _key_text(self) -> None:
        raw, ends = self._raw_text()
        self._raw += raw
        if ends:
            self._state = _State.COLON

    def _colon(self) -> None:
        first = self._peek()
        if first == ":":
            self._at += 1
            try:
                key = DECODER.decode(f'"{self._raw}"')
            except ValueError:
                self.stopped = True
            else:
                self._enter(key == self._path[self._depth])
        elif first:
            self.stopped = True

    def _skip(self) -> None:
        """Pass over a value; what is inside of it may be malformed."""
        match = _BRACKET.search(self._rest, self._at)
        if match is None:
            self._at = len(self._rest)
        elif match[0] == '"':
            self._at, self._state = match.end(), _State.SKIP_TEXT
        elif self._level == 0 and match[0] in "]},":
            self._at, self._state = match.start(), _State.NEXT
        else:
            self._at = match.end()
            self._level += {"{": 1, "[": 1, "}": -1, "]": -1}.get(match[0], 0)

    def _skip_text(self) -> None:
        _, ends = self._raw_text()
        if ends:
            self._state = _State.SKIP

    def _raw_text(self) -> tuple[str, bool]:
        """The next part of a string that is not wanted, as it is written; whether it ends it."""
        raw = self._run(_PLAIN)
        after = self._rest[self._at : self._at + 2]
        if after[:1] == '"':
            self._at += 1
            return raw, True
        if len(after) == 2:  # an escape
            self._at += 2
            raw += after
        return raw, False

    def _after_member(self) -> None:
        first = self._peek()
        if first == ",":
            self._index += 1
            self._use(_State.ITEM if self._in_list else _State.KEY)
        elif first:
            self.stopped = True

    def _text(self) -> str:
        plain = self._run(_CERTAIN)
        after = self._rest[self._at : self._at + 1]
        if after == '"':
            self.complete = True
        elif after == "\\":
            plain += self._escape()
        elif after:
            self.stopped = True  # half of a pair, bare
        return plain

    def _run(self, characters: re.Pattern[str]) -> str:
        """Take all of these characters that stand here."""
        start = self._at
        if match := characters.match(self._rest, start):
            self._at = match.end()
        return self._rest[start : self._at]

    def _escape(self) -> str:
        """The character that the escape here stands for; "" if more has to be known."""
        kind = self._rest[self._at + 1 : self._at + 2]
        if kind in _ESCAPES:
            self._at += 2
            return _ESCAPES[kind]
        if kind != "u":
            self.stopped = bool(kind)
            return ""
        first = self._unit(self._at)
        if first is None or self.stopped:
            return ""
        if not 0xD800 <= first < 0xE000:
            self._at += 6
            return chr(first)
        second = self._unit(self._at + 6) if first < 0xDC00 else -1
        if second is None:
            return ""
        if not 0xDC00 <= second < 0xE000:
            self.stopped = True
            return ""
        self._at += 12
        return chr(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))

    def _unit(self, at: int) -> int | None:
        r"""The number in ``\uXXXX``; -1 if something else stands there, None if it is cut."""
        if match := _UNIT.match(self._rest, at):
            return int(match[1], 16)
        text = self._rest[at : at + 6]
        if len(text) == 6 or not "\\u".startswith(text[:2]):
            self.stopped = True
            return -1
        return None


_STEPS: Mapping[_State, Callable[[JsonFieldStream], str | None]] = MappingProxyType(
    {
        _State.HEAD: JsonFieldStream._head,
        _State.PROSE: JsonFieldStream._prose,
        _State.VALUE: JsonFieldStream._value,
        _State.ITEM: JsonFieldStream._item,
        _State.KEY: JsonFieldStream._before_key,
        _State.KEY_TEXT: JsonFieldStream._key_text,
        _State.COLON: JsonFieldStream._colon,
        _State.SKIP: JsonFieldStream._skip,
        _State.SKIP_TEXT: JsonFieldStream._skip_text,
        _State.NEXT: JsonFieldStream._after_member,
        _State.TEXT: JsonFieldStream._text,
        _State.SCALAR: JsonFieldStream._scalar,
    }
)
