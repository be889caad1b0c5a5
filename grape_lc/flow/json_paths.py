"""Paths into a JSON document, as templates write them: ``steps.0.title``."""

from __future__ import annotations

import re

from grape_lc.errors import PromptSyntaxError
from grape_lc.limits import PATH_PARTS

PREFIX = "json:"
"""What the name of such a transducer begins with; the path follows."""

Path = tuple[str, ...]

# Characters that mean something in a path or in a template, and what cannot be seen.
_RESERVED = re.compile(r"[%.|{}\s\x00-\x1f\x7f]")
_ESCAPED = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# An index has few digits: int() refuses to read very many.
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def json_spec(path: Path) -> str:
    """The transducer of the field at ``path``, as a template writes it.

    Reserved characters of a key become ``%XX``, each byte of their UTF-8.
    """
    return PREFIX + ".".join(_RESERVED.sub(_percent, part) for part in path)


def parse_path(text: str) -> Path:
    """The keys and indexes of a dotted path. Raises PromptSyntaxError."""
    parts = text.split(".")
    PATH_PARTS.check(len(parts), "a path", PromptSyntaxError)
    if not all(parts):
        raise PromptSyntaxError(
            f"path {text!r:.60} has an empty part: write keys and list indexes with dots between "
            "them, as in json:steps.0.title"
        )
    return tuple(_unescaped(part, text) for part in parts)


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _unescaped(part: str, path: str) -> str:
    if "%" in _ESCAPED.sub("", part):
        raise PromptSyntaxError(f"path {path!r} has a % without two hex digits: write %25 for a %")
    try:
        return _ESCAPED.sub(lambda m: bytes.fromhex(m[0].replace("%", "")).decode(), part)
    except UnicodeDecodeError:
        raise PromptSyntaxError(f"path {path!r} has escapes that are not UTF-8: {part!r}") from None


def index_of(part: str) -> int | None:
    """The index that a part of a path is in a list; None: it is none."""
    return int(part) if _INDEX.fullmatch(part) else None
