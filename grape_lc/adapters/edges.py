r"""Where a value begins and ends, if the program's own white space stands next to the value's.

    answer "\nYes"    prompt "Reply:\nYes"     "Reply:"   {answer}         or
                                               "Reply:\n" {answer|strip}
    answer "No"       prompt "Reply:\nNo"      "Reply:\n" {answer}         so it was the second

A run is read with as much white space in its values as they have. Where that does not fit another
run, the white space at an edge is given to the text beside it, in both runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from grape_lc.adapters.markers import Damaged, Found, Newest, Part
from grape_lc.flow.transducers import piped

DIFFERS = Damaged("runs differ from here on")

_SIDES = ("lstrip", "rstrip")
_ESCAPES = frozenset({"repr", "json_escape", "json_escape_ascii"})
_NO, _YES = (False,), (False, True)


_Value = Found | Newest


@dataclass(frozen=True, slots=True)
class _Text:
    """Parts as values with a text in front of each and one behind the last; texts may be empty.

    end: what ends the parts before the text has ended.
    """

    gaps: tuple[str, ...]
    values: tuple[_Value, ...]
    end: Damaged | None

    @classmethod
    def of(cls, parts: Sequence[Part]) -> _Text:
        gaps, values = [""], list[_Value]()
        for part in parts:
            match part:
                case str():
                    gaps[-1] += part
                case Found() | Newest():
                    values.append(part)
                    gaps.append("")
                case Damaged():
                    return cls(tuple(gaps), tuple(values), part)
        return cls(tuple(gaps), tuple(values), None)


@dataclass(frozen=True, slots=True)
class _Pair:
    """A value as two runs have it. given: whether white space on its left is the text's."""

    one: _Value
    other: _Value
    given: bool = False

    def both(self, given_right: bool = False) -> _Value | None:
        """What both may be; None: nothing."""
        if not isinstance(self.one, Found) or not isinstance(self.other, Found):
            return self.one if self.one == self.other else None
        if self.one.number != self.other.number:
            return None
        given = (self.given, given_right)
        theirs = _specs(self.other, given)
        specs = [spec for spec in _specs(self.one, given) if spec in theirs]
        if not specs:
            return None
        edges = []
        for side in (0, 1):
            mine, other = _edge(self.one, side), _edge(self.other, side)
            # The same text beside different white space: it is the value's.
            edges.append("" if given[side] else mine if mine == other else None)
        return Found(self.one.number, specs[0], tuple(specs[1:]), edges[0], edges[1])

    def agrees(self) -> bool:
        """Whether there is anything that both may be, however the text on the right is read."""
        return self.both() is not None or self.both(given_right=True) is not None


def value_in(number: int, form: str, specs: Sequence[str]) -> Found:
    """A value that stands in a prompt as ``form``. specs: transducers that give it."""
    left = form[: len(form) - len(form.lstrip())]
    right = form[len(form.rstrip()) :]
    return Found(number, specs[0], tuple(specs[1:]), left, right)


def readings(parts: Sequence[Part], gap: int) -> list[str]:
    """The text in front of the ``gap``-th value (from 0), or behind the last, as it may be read.

    Several, if white space may be that of a value beside it; none, if there are fewer values.
    """
    text = _Text.of(parts)
    if gap >= len(text.gaps):
        return []
    front = _edge(text.values[gap - 1], 1) if gap else ""
    back = _edge(text.values[gap], 0) if gap < len(text.values) else ""
    several = product(("", front or ""), (text.gaps[gap],), ("", back or ""))
    return list(dict.fromkeys(map("".join, several)))


def common_parts(parts: Sequence[Part], others: Sequence[Part]) -> tuple[tuple[Part, ...], bool]:
    """What two texts have in common up to their first difference, and whether it ends there."""
    shared: list[Part] = []
    one, other = _Text.of(parts), _Text.of(others)
    before: _Pair | None = None
    for index, gaps in enumerate(zip(one.gaps, other.gaps, strict=False)):
        more = [index < len(text.values) for text in (one, other)]
        after = _Pair(one.values[index], other.values[index]) if all(more) else None
        fits = any(more) is all(more) and (after is not None or one.end == other.end)
        found = next(_fitting(before, gaps, after), None) if fits else None
        if found is None:
            return (*_in_context([*shared, *_start(before, gaps)]), DIFFERS), True
        value, text, given_left = found
        shared += [part for part in (value, text) if part]
        if after is not None:
            before = _Pair(after.one, after.other, given_left)
    end = () if one.end is None else (one.end,)
    return (*_in_context(shared), *end), bool(end)


def _in_context(parts: Sequence[Part]) -> Iterator[Part]:
    """The parts; a quoted value that may be escaped for JSON is, if another one beside it is.

    What dumps one value of a text dumps the others as well, and some show nothing of it.
    """
    names = {part.transducer.rpartition("|")[2] for part in parts if isinstance(part, Found)}
    escapes = names & {"json_escape", "json_escape_ascii"}
    for before, part, after in zip(("", *parts), parts, (*parts[1:], ""), strict=False):
        quoted = str(before)[-1:] == str(after)[:1] == '"'
        if isinstance(part, Found) and quoted and len(escapes) == 1:
            specs = [part.transducer, *part.also]
            specs.sort(key=lambda spec: spec.rpartition("|")[2] not in escapes)
            yield replace(part, transducer=specs[0], also=tuple(specs[1:]))
        else:
            yield part


def _fitting(
    before: _Pair | None, gaps: tuple[str, str], after: _Pair | None
) -> Iterator[tuple[_Value | None, str, bool]]:
    """Ways to read the text between two values alike in both runs.

    Each is the value in front, the text, and whether it has the white space of the value behind.
    """
    for right, left in product(_YES if before else _NO, _YES if after else _NO):
        texts = _with_edges(before if right else None, gaps, after if left else None)
        if texts is None or texts[0] != texts[1]:
            continue
        value = None if before is None else before.both(right)
        if before is not None and value is None:
            continue
        if after is None or _Pair(after.one, after.other, left).agrees():
            yield value, texts[0], left


def _start(before: _Pair | None, gaps: tuple[str, str]) -> list[Part]:
    """The value in front, and the longest text behind it that both runs begin with."""
    best: tuple[_Value | None, str] = (None, "")
    for right in _YES if before else _NO:
        texts = _with_edges(before if right else None, gaps, None)
        value = None if before is None else before.both(right)
        if texts is None or (before is not None and value is None):
            continue
        text = texts[0][: same_start(*texts)]
        if best[0] is None or len(text) > len(best[1]):
            best = (value, text)
    return [part for part in best if part]


def _with_edges(
    before: _Pair | None, gaps: tuple[str, str], after: _Pair | None
) -> tuple[str, str] | None:
    """The text of either run with the white space of the values beside it; None: not known."""
    edges = [
        (
            "" if before is None else _edge(before.one if run == 0 else before.other, 1),
            "" if after is None else _edge(after.one if run == 0 else after.other, 0),
        )
        for run in (0, 1)
    ]
    texts = [
        f"{front}{gap}{back}"
        for gap, (front, back) in zip(gaps, edges, strict=True)
        if front is not None and back is not None
    ]
    return (texts[0], texts[1]) if len(texts) == 2 else None


def _edge(found: _Value, side: int) -> str | None:
    """White space of the value that may be the text's: on the left (0) or right (1)."""
    if isinstance(found, Newest):
        return None
    edge = (found.left, found.right)[side]
    if edge is not None:
        return edge
    # What is the same stripped has none.
    bare = any(
        spec.rpartition("|")[2] in (_SIDES[side], "strip")
        for spec in (found.transducer, *found.also)
    )
    return "" if bare else None


def _specs(found: Found, given: tuple[bool, bool]) -> list[str]:
    """The transducers of a value of which white space was given to the text beside it."""
    specs = [found.transducer, *found.also]
    for side, gives in zip(_SIDES, given, strict=True):
        if gives:
            # White space that was escaped is no white space.
            specs = [_stripped(s, side) for s in specs if s.rpartition("|")[2] not in _ESCAPES]
    if any(given):
        # Programs strip at both ends rather than at one.
        specs.sort(key=lambda spec: spec.rpartition("|")[2] in _SIDES)
    return list(dict.fromkeys(specs))


def _stripped(spec: str, side: str) -> str:
    base, _, last = spec.rpartition("|")
    if last in (side, "strip"):
        return spec
    return piped(base, "strip") if last in _SIDES else piped(spec, side)


def same_start(one: str, other: str) -> int:
    """How many characters two texts have in common from their start."""
    least = min(len(one), len(other))
    if one[:least] == other[:least]:
        return least
    return next(n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
