"""Values, texts and damaged documents that nobody would send who means well."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from grape_lc.errors import GrapeError

T = TypeVar("T")

LONGEST_MESSAGE = 20_000


def value_or_ours(action: Callable[[], T]) -> T | None:
    """What an action gives, or None if it raises one of our errors; any other one is a fault."""
    try:
        return action()
    except GrapeError as error:
        said = str(error)
    assert 0 < len(said) < LONGEST_MESSAGE, len(said)
    return None


ODD_TEXTS = (
    "",
    "\0",
    "\ud800",
    "\udfff tail",
    "\ufeff",
    "\u202e",
    "a\nb",
    "__proto__",
    "__class__",
    "__dict__",
    "constructor",
    "{x.__class__}",
    "{0}",
    "%s%n",
    "{{",
    "}}",
    "{x|strip}",
    "<|im_end|>\n<|im_start|>system",
    "<|endoftext|>",
    "</tool_call>",
    "\ue1f0" + "0\ue1f1",
    "self",
    "NaN",
    "input",
    "user",
)
ODD_NUMBERS = (
    *(0, -1, 1, 2, 2**31, 2**53 + 1, 2**63, 2**64, -(2**63), 2**255, 2**300, 10**400, True),
    *(0.0, -0.0, 1.5, 1e308, float("nan"), float("inf"), float("-inf"), 5e-324),
)

texts = st.sampled_from(ODD_TEXTS) | st.text(max_size=12)
scalars = st.none() | st.booleans() | st.sampled_from(ODD_NUMBERS) | st.integers() | texts
names = texts | st.sampled_from(("name", "kind", "version", "tasks", "text", "id", "t"))
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=8,
)


def nested(depth: int, kind: str) -> Any:
    """Lists or objects in each other; Python's own ``json`` can still write 900 of them."""
    value: Any = 1
    for _ in range(depth):
        value = [value] if kind == "list" else {"a": value}
    return value


deep = st.builds(nested, st.sampled_from((3, 60, 120, 250, 500)), st.sampled_from(("list", "dict")))
anything = values | deep


@st.composite
def mutated(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """The document with some of its parts replaced, left out, renamed or wrapped."""
    copy = json.loads(json.dumps(document))
    for _ in range(draw(st.integers(0, most))):
        copy = _changed(draw, copy)
    return copy


def _changed(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, dict | list) and value and draw(st.integers(0, 4)):
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        key = draw(st.sampled_from(keys))
        how = draw(st.integers(0, 9))
        if how == 0:
            del value[key]
        elif how == 1 and isinstance(value, dict):
            value[draw(names)] = value.pop(key)
        elif how == 2 and isinstance(value, list):
            value.append(value[key])
        elif how == 3:
            value[key] = [value[key]]
        else:
            value[key] = _changed(draw, value[key])
        return value
    return draw(anything)


FRAGMENTS = (
    *('"', "{", "}", "[", "]", ",", ":", "\\", "\\u", "\\ud800", "\\u0000", "\0", "\ufeff"),
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "0" * 30, "9" * 5000, "-", "1.", "01"),
    *('"version": 1,', '"name": "x",', '"a": 1, "a": 2,', '"t": "call",', '"__proto__": {},'),
    *("[" * 200, '{"a":' * 200, "[" * 3000, "null", "true", "'", "//", "/**/", "\n", "\r\n"),
)


@st.composite
def damaged(draw: st.DrawFn, text: str, most: int = 2) -> str:
    """The text with some pieces taken out and others put in."""
    for _ in range(draw(st.integers(0, most))):
        at = draw(st.integers(0, len(text)))
        gone = draw(st.integers(0, 8))
        text = text[:at] + draw(st.sampled_from(FRAGMENTS) | texts) + text[at + gone :]
    return text


@st.composite
def documents(draw: st.DrawFn, document: Any) -> bytes:
    """Bytes that were once this document, as JSON; not always UTF-8."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=60))
    made = draw(mutated(document))
    ascii_only = draw(st.booleans())
    text = draw(damaged(json.dumps(made, ensure_ascii=ascii_only)))
    return text.encode(draw(st.sampled_from(("utf-8", "utf-8", "utf-16"))), "surrogatepass")


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    """The text in pieces."""
    ends = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    starts = [0, *ends]
    return [text[a:b] for a, b in zip(starts, [*ends, len(text)], strict=True)]
