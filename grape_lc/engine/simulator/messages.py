"""What the front end tells the engine; the simulated counterpart of ``vllm_messages``."""

from __future__ import annotations

from typing import NamedTuple

from grape_lc.engine.simulator.requests import Request
from grape_lc.scheduler.types import Hint


class Open(NamedTuple):
    """Begin an open prompt."""

    request: Request


class Append(NamedTuple):
    """More of an open prompt's text: pairs of source and tokens."""

    request: Request
    pieces: tuple[tuple[int, int], ...]
    hint: Hint
    final: bool


class Submit(NamedTuple):
    """A call, and the open prompt that it may take over."""

    request: Request
    adopt: Request | None


class Release(NamedTuple):
    """Give an open prompt up."""

    request: Request


Message = Open | Append | Submit | Release
