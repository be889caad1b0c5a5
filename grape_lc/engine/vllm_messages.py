"""What a client tells the scheduler, in ``sampling_params.extra_args["grape"]``.

    {"v": 1, "op": "open", "hops": 1}                    request id = key of the open prompt
    {"v": 1, "op": "append", "key": K, "hops": 1,
     "final": True}                                      request id = a fresh id
    {"v": 1, "op": "call", "adopt": K | None,
     "feeds": False, "program": P, "task": T}            a real request

``hops`` and ``final`` are optional in an append. A release is an abort of the key. Nothing in
here raises: an exception in ``add_request`` would end the engine for everybody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

VERSION = 1


@dataclass(frozen=True, slots=True)
class Open:
    """Start an open prompt with the request's prompt tokens."""

    hops: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append the request's prompt tokens to an open prompt.

    hops: new distance, if it changed; final: nothing more will be appended.
    """

    key: str
    hops: int | None
    final: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A real request.

    adopt: the open prompt made for it; feeds: another call waits for it; program: the run that
    both belong to, if known.
    """

    adopt: str | None
    feeds: bool
    program: str | None


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that cannot be understood.

    control: it was not a real request, so nobody waits for its output.
    """

    why: str
    control: bool


Message = Open | Append | Call | Malformed


def parse(message: Any) -> Message:
    """Read the value of ``extra_args["grape"]``."""
    if not isinstance(message, dict):
        return Malformed(f"not a mapping but {type(message).__name__}", control=False)
    op = message.get("op")
    control = op in ("open", "append")
    if message.get("v") != VERSION:
        return Malformed(f"version {message.get('v')!r}, known is {VERSION}", control)
    if op == "open":
        hops = message.get("hops", 1)
        if _is_hops(hops):
            return Open(hops)
        return Malformed(f"hops of an open prompt: {hops!r}", control)
    if op == "append":
        key, hops, final = message.get("key"), message.get("hops"), message.get("final", False)
        if isinstance(key, str) and (hops is None or _is_hops(hops)) and isinstance(final, bool):
            return Append(key, hops, final)
        return Malformed(f"append with key={key!r} hops={hops!r} final={final!r}", control)
    if op == "call":
        adopt, feeds = message.get("adopt"), message.get("feeds", False)
        program = message.get("program")
        named = all(name is None or isinstance(name, str) for name in (adopt, program))
        if named and isinstance(feeds, bool):
            return Call(adopt, feeds, program)
        return Malformed(f"call with adopt={adopt!r} feeds={feeds!r} program={program!r}", control)
    return Malformed(f"op {op!r}, known are open, append, call", control)


def _is_hops(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
