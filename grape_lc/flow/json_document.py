r"""The JSON document in a value, and its fields, once the value is complete.

    Sure:\n```json\n{"title": "T", "steps": [{"do": "Read \u00e4"}]}\n```
    └ not looked at ┘└ document ──────────────────────────────────┘└ not looked at

It is the whole value, or begins behind other text: at the first ``{`` with a key behind it, or in
the first Markdown fence that holds an object or a list.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from grape_lc.errors import TransducerError
from grape_lc.flow.json_paths import PREFIX, Path, index_of, json_spec

DIRECT = re.compile(r"\s*(?=[{\[])")
# A word and white space have an end: a stream holds what may be a beginning, and looks through it
# again with each piece.
INSIDE = re.compile(r'```[^\s`{\[]{0,99}\s{0,99}(?=[{\[])|(?=\{\s{0,99}")')
"""Where it begins: DIRECT in front of all else, INSIDE behind other text."""
MAY_BEGIN = re.compile(r"(?:```[^\s`{\[]{0,99}\s{0,99}|`{1,2}|\{\s{0,99})\Z")
"""The end of a text with which INSIDE may begin."""


def document_start(value: str) -> int | None:
    """Index of the bracket that opens the document; None: there is none."""
    match = DIRECT.match(value) or INSIDE.search(value)
    return None if match is None else match.end()


class _Object(tuple[tuple[str, Any], ...]):
    """An object of a document, with the keys that stand twice."""

    __slots__ = ()


_SHOWN = 30  # keys of an object that an error lists
# Halves of surrogate pairs are no text: no tokenizer takes them.
_WHOLE_CHARACTERS = re.compile(r"[^\ud800-\udfff]*")
# Models write line breaks into strings, and lenient parsers take them: so strict is off.
DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_Object)


def string_fields(value: str) -> Iterator[tuple[Path, str]]:
    """Each string of the document that a path can name, with its path, in order.

    Nothing for a value without a document that can be read.
    """
    try:
        yield from _strings((), _document(value))
    except (ValueError, RecursionError):
        return


def _strings(path: Path, found: Any) -> Iterator[tuple[Path, str]]:
    if isinstance(found, str):
        if _WHOLE_CHARACTERS.fullmatch(found):
            yield path, found
        return
    members: Iterable[tuple[str, Any]] = ()
    if isinstance(found, _Object):
        often = Counter(key for key, _ in found)
        members = ((key, item) for key, item in found if key and often[key] == 1)
    elif isinstance(found, list):
        members = ((str(index), item) for index, item in enumerate(found))
    for key, item in members:
        yield from _strings((*path, key), item)


def _document(value: str) -> Any:
    """The parsed document. Raises ValueError or RecursionError."""
    start = document_start(value)
    if start is None:
        raise ValueError("it holds no JSON object or list")
    try:
        return DECODER.raw_decode(value, start)[0]
    except ValueError as error:
        raise ValueError(f"its JSON cannot be read: {error}") from None


def field_text(path: Path, value: str) -> str:
    """The text of the field at ``path``. Raises TransducerError when there is none."""
    try:
        found = _document(value)
    except RecursionError:
        raise _unfit(path, value, "its JSON cannot be read: too many levels") from None
    except ValueError as error:
        raise _unfit(path, value, str(error)) from None
    for depth, part in enumerate(path):
        found = _member(found, part, partial(_at, path, depth), partial(_unfit, path, value))
    if isinstance(found, _Object | list):
        raise _unfit(path, value, f"{_at(path, len(path))} is {_kind(found)}")
    if isinstance(found, str) and not _WHOLE_CHARACTERS.fullmatch(found):
        raise _unfit(path, value, f"{_at(path, len(path))} has one half of a surrogate pair")
    return str(found)


def _member(
    found: Any, part: str, where: Callable[[], str], unfit: Callable[[str], TransducerError]
) -> Any:
    if isinstance(found, _Object):
        values = [item for key, item in found if key == part]
        if len(values) == 1:
            return values[0]
        shown = sorted({f"{key!r:.60}" for key, _ in found})
        keys = ", ".join([*shown[:_SHOWN], "..."] if len(shown) > _SHOWN else shown) or "none"
        often = f"has {len(values)} keys" if values else "has no key"
        raise unfit(f"{where()} {often} {part!r}; its keys: {keys}")
    if isinstance(found, list):
        index = index_of(part)
        if index is not None and index < len(found):
            return found[index]
        raise unfit(f"{where()} is a list of {len(found)} without {part!r}")
    raise unfit(f"{where()} is neither an object nor a list but {_kind(found)}")


def _kind(found: Any) -> str:
    if isinstance(found, _Object):
        return "an object"
    return "a list" if isinstance(found, list) else repr(found)[:40]


def _at(path: Path, depth: int) -> str:
    return json_spec(path[:depth]).removeprefix(PREFIX) or "the document"


def _unfit(path: Path, value: str, why: str) -> TransducerError:
    shown = value if len(value) <= 60 else f"{value[:60]}..."
    return TransducerError(f"{json_spec(path)!r} does not fit the value {shown!r}: {why}")
