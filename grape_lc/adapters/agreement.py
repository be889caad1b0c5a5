"""Prompts with known texts told apart, and what two of them have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grape_lc.adapters.edges import DIFFERS, common_parts
from grape_lc.adapters.flow_builder import Messages
from grape_lc.adapters.markers import Found, Part

# Characters for private use, one of which stands in the place of each value while others are
# searched for: Python code for each part of a long prompt would take seconds.
_FIRST, _LAST = 0xF0000, 0xFFFFD
_STAND_INS = re.compile(f"([{chr(_FIRST)}-{chr(_LAST)}])")


def symbolic(text: str, forms: Sequence[tuple[str, Found]]) -> tuple[Part, ...]:
    """``text`` with the known texts in it told apart, those named first before the others."""
    there = [(form, found) for form, found in forms if form in text]
    if not there:
        return (text,) if text else ()
    if len(there) > _LAST - _FIRST or _STAND_INS.search(text):
        return _split(text, there)
    for number, (form, _) in enumerate(there):
        text = text.replace(form, chr(_FIRST + number))
    # With its group, the pattern gives what stands between the values, and the values.
    pieces = _STAND_INS.split(text)
    return tuple(
        there[ord(piece) - _FIRST][1] if index % 2 else piece
        for index, piece in enumerate(pieces)
        if piece
    )


def _split(text: str, forms: Sequence[tuple[str, Found]]) -> tuple[Part, ...]:
    """The same, part by part, of a text that has such characters itself."""
    parts: list[Part] = [text]
    for form, found in forms:
        split: list[Part] = []
        for part in parts:
            if not isinstance(part, str):
                split.append(part)
                continue
            for index, literal in enumerate(part.split(form)):
                if index:
                    split.append(found)
                if literal:
                    split.append(literal)
        parts = split
    return tuple(parts)


def agreement(one: Messages, other: Messages) -> Messages:
    """What two prompts have in common up to their first difference, which ends the result."""
    common: list[tuple[str, tuple[Part, ...]]] = []
    for (role, parts), (other_role, other_parts) in zip(one, other, strict=False):
        if role != other_role:
            common.append((role, (DIFFERS,)))
            return tuple(common)
        shared, ends = common_parts(parts, other_parts)
        common.append((role, shared))
        if ends:
            return tuple(common)
    longer = max(one, other, key=len)
    if len(one) != len(other):
        common.append((longer[len(common)][0], (DIFFERS,)))
    return tuple(common)


def size(messages: Messages) -> int:
    """About how many characters are known, a value counting as many as a short answer."""
    return sum(
        len(part) if isinstance(part, str) else 100 * isinstance(part, Found)
        for _, parts in messages
        for part in parts
    )
