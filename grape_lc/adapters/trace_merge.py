r"""Several prompts of one call, made in several runs, as one: what they have in common.

    path 1     "Kind: " "poem" "\nText: " [answer of poem]
    path 2     "Kind: " "joke" "\nText: " [answer of joke]
    together   "Kind: " {route_text|json:kind} "\nText: " {opaque}

Where two prompts begin to differ, the common one ends; unless the difference is a text that a model
chose among several, and that both have at this place, or answers of different calls, of which the
newest is meant. Of prompts that hold lists the longest
counts, if the shorter ones only end earlier: a run with fewer items takes over less of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from grape_lc.adapters.edges import same_start
from grape_lc.adapters.flow_builder import Messages
from grape_lc.adapters.markers import Damaged, Found, Newest, Part

DIFFERS = "paths or runs differ from here on"


@dataclass(frozen=True, slots=True)
class Role:
    """The beginning of a message."""

    name: str


Token = Part | Role

# Dates, times and random texts have such characters in between.
_WORD = re.compile(r"[\w:.+/-]")
_WORD_END = re.compile(r"[\w:.+/-]+\Z")


@dataclass(frozen=True, slots=True)
class Seen:
    """A prompt as one run made it.

    chosen: texts that a model chose among several in that run, by the value that holds them.
    short: whether the lists in that run were the shorter ones.
    before: numbers of the answers that were there when the call was made, in their order.
    """

    messages: Messages
    chosen: Mapping[Found, str] = field(default_factory=dict)
    short: bool = False
    before: tuple[int, ...] = ()


def merged(prompts: Sequence[Seen]) -> Messages:
    """What all of the prompts have in common. At least one is given."""
    long = [seen for seen in prompts if not seen.short]
    short = [seen for seen in prompts if seen.short]
    if not long or not short:
        return _messages(_common([_Reader(seen) for seen in prompts]))
    one = _Reader(Seen(_messages(_common([_Reader(seen) for seen in long])), before=_all(long)))
    other = _Reader(Seen(_messages(_common([_Reader(seen) for seen in short])), before=_all(short)))
    whole = [*one.tokens]
    common = _common([one, other])
    # Both readers stand at the difference, if there is one.
    if common[-1] == Damaged(DIFFERS) and _goes_on(one, other):
        return _messages(whole)
    return _messages(common)


def _all(prompts: Sequence[Seen]) -> tuple[int, ...]:
    """The answers that were there in any of the runs."""
    return tuple(dict.fromkeys(number for seen in prompts for number in seen.before))


def _goes_on(long: _Reader, short: _Reader) -> bool:
    """Whether only further items of a list are what the short prompt lacks."""
    if not any(isinstance(token, Found | Newest) for token in long.tokens[: long.at]):
        return False
    rest = {token for token in long.tokens[long.at :] if isinstance(token, Found | Newest)}
    of_short = {token for token in short.tokens if isinstance(token, Found | Newest)}
    return bool(rest - of_short)


class _Reader:
    """Reads a prompt token by token, texts character by character."""

    def __init__(self, seen: Seen) -> None:
        self._before = seen.before
        self.tokens = [*_tokens(seen.messages)]
        self.chosen = seen.chosen
        self.at = 0
        self._offset = 0

    @property
    def token(self) -> Token | None:
        """What comes next; of a text what is left of it. None at the end."""
        if self.at >= len(self.tokens):
            return None
        token = self.tokens[self.at]
        return token[self._offset :] if isinstance(token, str) else token

    def has_newest_of(self, several: Collection[int]) -> bool:
        """Whether the value that comes next is the newest of these."""
        token = self.token
        if not isinstance(token, Found):
            return isinstance(token, Newest)
        newest = next((number for number in reversed(self._before) if number in several), None)
        # An input is older than all answers.
        return token.number == newest or (newest is None and token.number not in self._before)

    def take(self, size: int = 1) -> None:
        """Go on by a token, or by ``size`` characters of a text."""
        token = self.tokens[self.at]
        if isinstance(token, str) and self._offset + size < len(token):
            self._offset += size
            return
        self.at += 1
        self._offset = 0

    @property
    def before(self) -> str:
        """The text just read, up to the token before it."""
        token = self.tokens[self.at] if self.at < len(self.tokens) else None
        if isinstance(token, str) and self._offset:
            return token[: self._offset]
        last = self.tokens[self.at - 1] if self.at else None
        return last if isinstance(last, str) else ""

    def rest(self) -> str:
        """The text that comes next, or nothing."""
        return token if isinstance(token := self.token, str) else ""


def _common(readers: Sequence[_Reader]) -> list[Token]:
    """The tokens that all have in common; a Damaged at the end where they differ."""
    common: list[Token] = []
    while True:
        tokens = [reader.token for reader in readers]
        first = tokens[0]
        if all(token is None for token in tokens):
            return common
        if (newest := _newest(readers)) is not None:
            common.append(newest)
            for reader in readers:
                reader.take()
            continue
        if not isinstance(first, str) and all(token == first for token in tokens):
            assert first is not None
            common.append(first)
            if first == Damaged(DIFFERS):
                return common
            for reader in readers:
                reader.take()
            continue
        same = _shared([reader.rest() for reader in readers])
        if same:
            _append(common, readers[0].rest()[:same])
            for reader in readers:
                reader.take(same)
        elif (choice := _choice(readers, _room(common))) is not None:
            found, back = choice
            _drop(common, back)
            common.append(found)
            for reader in readers:
                reader.take(len(reader.chosen[found]) - back)
        else:
            _drop(common, _begun(common, readers))
            common.append(Damaged(DIFFERS))
            return common


def _newest(readers: Sequence[_Reader]) -> Newest | None:
    """Values of the same form that differ, if each is the newest of all where it stands."""
    values = [token for r in readers if isinstance(token := r.token, Found | Newest)]
    if len(values) < len(readers) or len({value.transducer for value in values}) > 1:
        return None
    several: set[int] = set()
    for value in values:
        several.update(value.numbers if isinstance(value, Newest) else (value.number,))
    # Of prompts that were merged already, one may come from fewer runs than the other.
    known = any(isinstance(v, Newest) and several.issubset(v.numbers) for v in values)
    if len(several) < 2 or not (known or all(r.has_newest_of(several) for r in readers)):
        return None
    return Newest(tuple(sorted(several)), values[0].transducer)


def _choice(readers: Sequence[_Reader], room: int) -> tuple[Found, int] | None:
    """The chosen text in which all differ here, and how many of its characters were read.

    room: how many may have been.
    """
    several = set(readers[0].chosen).intersection(*(reader.chosen for reader in readers[1:]))
    for found in sorted(several, key=lambda f: (f.number, f.transducer)):
        values = [reader.chosen[found] for reader in readers]
        for back in range(min(room + 1, *map(len, values))):
            if all(
                reader.before.endswith(value[:back]) and reader.rest().startswith(value[back:])
                for reader, value in zip(readers, values, strict=True)
            ):
                return found, back
    return None


def _shared(texts: Sequence[str]) -> int:
    """Length of what all texts begin with."""
    return same_start(min(texts), max(texts))


def _append(tokens: list[Token], text: str) -> None:
    if tokens and isinstance(last := tokens[-1], str):
        tokens[-1] = last + text
    else:
        tokens.append(text)


def _begun(common: Sequence[Token], readers: Sequence[_Reader]) -> int:
    """Characters of a word at the end that the prompts begin alike and end differently.

    That two times of day, or two random texts, begin with the same character says nothing.
    """
    last = common[-1] if common else None
    if not isinstance(last, str) or not any(_WORD.match(reader.rest()) for reader in readers):
        return 0
    found = _WORD_END.search(last)
    return 0 if found is None else len(last) - found.start()


def _room(tokens: Sequence[Token]) -> int:
    """Length of the text at the end."""
    return len(tokens[-1]) if tokens and isinstance(tokens[-1], str) else 0


def _drop(tokens: list[Token], count: int) -> None:
    """Take back the last characters of the text at the end."""
    if not count:
        return
    last = tokens.pop()
    assert isinstance(last, str)
    if len(last) > count:
        tokens.append(last[:-count])


def _tokens(messages: Messages) -> Iterator[Token]:
    for role, parts in messages:
        yield Role(role)
        yield from parts


def _messages(tokens: Sequence[Token]) -> Messages:
    messages: list[tuple[str, tuple[Part, ...]]] = []
    for token in tokens:
        if isinstance(token, Role):
            messages.append((token.name, ()))
            continue
        if not messages:  # not even the first role is shared
            messages.append(("user", ()))
        role, parts = messages[-1]
        messages[-1] = (role, (*parts, token))
    return tuple(messages)
