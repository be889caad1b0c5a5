"""What a client tells the scheduler, in ``sampling_params.extra_args["grape"]``.

    {"v": 1, "op": "open", "hops": 1, "program": P, "task": T,
     "hint": {...}}                                      request id = key of the open prompt
    {"v": 1, "op": "append", "key": K, "hops": 1, "source": T,
     "final": True}                                      request id = a fresh id
    {"v": 1, "op": "call", "adopt": K | None, "feeds": False, "program": P, "task": T,
     "hint": {...}}                                      a real request

Everything but ``v``, ``op`` and ``key`` is optional. ``hint`` holds further fields of ``Hint``;
what is unknown or bad in it is left out, and the rest counts. A release is an abort of the key.
Nothing in here raises: an exception in ``add_request`` would end the engine for everybody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from grape_lc.limits import NAME_CHARS
from grape_lc.scheduler.types import Hint

VERSION = 1
# No count and no time is as large; integers of any length would not fit a float.
_MOST = 1 << 31
_MOST_NAMES = 256  # in a list
_MOST_BAD = 16  # that are told
_MOST_CHARS = 4 * NAME_CHARS.value  # a key holds the names of a program and of a task


@dataclass(frozen=True, slots=True)
class Open:
    """Start an open prompt with the request's prompt tokens.

    bad: names in the message that were left out.
    """

    hint: Hint
    bad: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Append:
    """Append the request's prompt tokens to an open prompt.

    hops: new distance, if it changed; final: nothing more will be appended; source: the task
    whose output is waited for now (None: none).
    """

    key: str
    hops: int | None
    final: bool
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A real request.

    adopt: the open prompt made for it. bad: names in the message that were left out.
    """

    adopt: str | None
    hint: Hint
    bad: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that cannot be understood.

    control: it was not a real request, so nobody waits for its output.
    """

    why: str
    control: bool


Message = Open | Append | Call | Malformed


def open_prompt(hint: Hint) -> dict[str, Any]:
    """The message that begins an open prompt."""
    return {"v": VERSION, "op": "open", "hops": hint.hops, **_names(hint)}


def append(key: str, hops: int, source: str | None, *, final: bool) -> dict[str, Any]:
    """The message that extends an open prompt."""
    return {
        "v": VERSION,
        "op": "append",
        "key": key,
        "hops": hops,
        "final": final,
        "source": source,
    }


def call(adopt: str | None, hint: Hint) -> dict[str, Any]:
    """The message that comes with a real request."""
    return {"v": VERSION, "op": "call", "adopt": adopt, "feeds": hint.feeds, **_names(hint)}


def parse(message: Any) -> Message:
    """Read the value of ``extra_args["grape"]``."""
    if not isinstance(message, dict):
        return Malformed(f"not a mapping but {type(message).__name__}", control=False)
    op = message.get("op")
    control = op in ("open", "append")
    if message.get("v") != VERSION:
        return Malformed(f"version {_shown(message.get('v'))}, known is {VERSION}", control)
    if op == "open":
        hops = message.get("hops", 1)
        if _is_count(hops):
            hint, bad = _hint(message, hops=hops)
            return Open(hint, bad)
        return Malformed(f"hops of an open prompt: {_shown(hops)}", control)
    if op == "append":
        key, hops, final = message.get("key"), message.get("hops"), message.get("final", False)
        if _is_text(key) and (hops is None or _is_count(hops)) and isinstance(final, bool):
            source = message.get("source")
            return Append(key, hops, final, source if _is_text(source) else None)
        return Malformed(
            f"append with key={_shown(key)} hops={_shown(hops)} final={_shown(final)}", control
        )
    if op == "call":
        adopt, feeds = message.get("adopt"), message.get("feeds", False)
        if (adopt is None or _is_text(adopt)) and isinstance(feeds, bool):
            hint, bad = _hint(message, feeds=feeds)
            return Call(adopt, hint, bad)
        return Malformed(f"call with adopt={_shown(adopt)} feeds={_shown(feeds)}", control)
    return Malformed(f"op {_shown(op)}, known are open, append, call", control)


def _shown(value: Any) -> str:
    """The beginning of a value for the log, whatever it is."""
    try:
        return f"{value!r:.60}"
    except (ValueError, RecursionError):  # whole numbers of thousands of digits, for one
        return type(value).__name__


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST


def _is_text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and len(value) <= _MOST_CHARS


def _is_names(value: Any) -> bool:
    return (
        isinstance(value, list | tuple) and len(value) <= _MOST_NAMES and all(map(_is_text, value))
    )


def _is_seconds(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < _MOST


# What ``hint`` may hold. Absent and None are the same.
_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "flow": _is_text,
    "tenant": _is_text,
    "depth": _is_count,
    "after": _is_names,
    "source": _is_text,
    "ttft_s": _is_seconds,
    "tbt_s": _is_seconds,
    "deadline_s": _is_seconds,
}


def _hint(message: dict[str, Any], **sure: Any) -> tuple[Hint, tuple[str, ...]]:
    """The hint of an open prompt or a call, and the names that were left out of it."""
    fields, bad = dict(sure), []
    for name in ("program", "task"):
        value = message.get(name)
        if _is_text(value):
            fields[name] = value
        elif value is not None:
            bad.append(name)
    more = message.get("hint")
    if more is None:
        more = {}
    elif not isinstance(more, dict):
        bad.append("hint")
        more = {}
    for name, value in more.items():
        if value is None:
            continue
        fits = _FIELDS.get(name) if isinstance(name, str) else None
        if fits is not None and fits(value):
            fields[name] = tuple(value) if name == "after" else value
        else:
            bad.append(name if _is_text(name) else _shown(name))
    return Hint(**fields), tuple(bad[:_MOST_BAD])


def _names(hint: Hint) -> dict[str, Any]:
    """The fields of a hint that every message takes, as plain data."""
    more = {name: getattr(hint, name) for name in _FIELDS}
    more["after"] = list(hint.after)
    return {
        "program": hint.program,
        "task": hint.task,
        "hint": {name: value for name, value in more.items() if value not in (None, "", [])},
    }
