"""Targets that a program is judged by, and whether it met them.

Two rules, since both are in use:

- *strict*: every call's TTFT and the 99th percentile of the gaps between its tokens are within
  their targets, and so is the program from its scheduled arrival to its end.
- *mean*: as vLLM's own ``bench serve --goodput`` judges a request: TTFT, and the mean time per
  output token after the first. Here for every call of the program, and the program's time as well.

A call without any token meets nothing. A target that is not set is met by all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import isfinite
from typing import NamedTuple

from grape_lc.bench.metrics import CallRecord, ProgramRecord, percentile
from grape_lc.errors import ConfigError


class Slo(NamedTuple):
    """Targets in milliseconds; None: no target.

    ttft: submission of a call to its first token. tbt: between tokens of a call. program: from
    the scheduled arrival of a program to its end.
    """

    ttft: float | None = None
    tbt: float | None = None
    program: float | None = None

    def __bool__(self) -> bool:
        return any(target is not None for target in self)

    def __str__(self) -> str:
        return ", ".join(f"{name} {ms:g} ms" for name, ms in self._asdict().items() if ms)


NO_SLO = Slo()


def parse_slo(text: str) -> Slo:
    """Targets from ``ttft:MS,tbt:MS,program:MS``, each of which may be absent.

    Raises ConfigError for unknown names, names that stand there twice, and what is no time.
    """
    found: dict[str, float] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = piece.partition(":")
        if name not in Slo._fields or name in found:
            raise ConfigError(
                f"SLO {text!r}: {name!r} is unknown or stands twice; there are: "
                f"{', '.join(Slo._fields)}"
            )
        found[name] = _milliseconds(text, value)
    return Slo(**found)


def _milliseconds(text: str, value: str) -> float:
    try:
        target = float(value)
    except ValueError:
        target = float("nan")
    if not (isfinite(target) and target > 0):
        raise ConfigError(f"SLO {text!r}: {value!r} is no number of milliseconds; write tbt:50")
    return target


def gap_tail(call: CallRecord) -> float:
    """P99 of the gaps between the tokens of a call, in seconds; 0 with fewer than two tokens."""
    times = [at for at, count in call.tokens for _ in range(count)]
    return percentile([b - a for a, b in pairwise(times)], 99) if len(times) > 1 else 0.0


def mean_gap(call: CallRecord) -> float:
    """Mean time per output token after the first, in seconds; 0 with fewer than two tokens."""
    return (call.last - call.first) / (call.output_tokens - 1) if call.output_tokens > 1 else 0.0


RULES: Mapping[str, Callable[[CallRecord], float]] = {"strict": gap_tail, "mean": mean_gap}
"""The rules by name, and what of a call each holds against the target between tokens."""


def call_meets(call: CallRecord, slo: Slo, rule: str) -> bool:
    """Whether a call is within the targets, by a rule of ``RULES``."""
    if not call.tokens:
        return False
    gap = RULES[rule](call)
    return _within(call.first - call.submitted, slo.ttft) and _within(gap, slo.tbt)


def program_meets(program: ProgramRecord, slo: Slo, rule: str) -> bool:
    """Whether a program and all its calls are within the targets, by a rule of ``RULES``."""
    return _within(program.finished - program.due, slo.program) and all(
        call_meets(call, slo, rule) for call in program.calls
    )


def _within(seconds: float, target_ms: float | None) -> bool:
    return target_ms is None or 1000 * seconds <= target_ms
