"""Arrival rates as they are written: ``0.2`` programs a second, ``0.85x`` what vllm-opt carries."""

from __future__ import annotations

import math
from typing import NamedTuple

from grape_lc.errors import ConfigError


class Rate(NamedTuple):
    """How many programs arrive, of each workload.

    value: programs a second; where ``relative``, a share of the rate at which the workload
        saturates vllm-opt.
    """

    value: float
    relative: bool

    def __str__(self) -> str:
        return f"{self.value:g}x" if self.relative else f"{self.value:g}/s"


def parse_rates(text: str) -> tuple[Rate, ...]:
    """Rates from a list such as ``0.5x,0.85x,0.2``.

    Raises ConfigError when there is none, for what is no positive number, and when one stands
    there twice.
    """
    rates = [_rate(piece) for piece in (piece.strip() for piece in text.split(",")) if piece]
    if not rates:
        raise ConfigError(f"no rate in {text!r}; write 0.85x or 0.2, or several with commas")
    if len(set(rates)) < len(rates):
        raise ConfigError(f"a rate stands twice among {text!r}")
    return tuple(rates)


def _rate(text: str) -> Rate:
    number = text.removesuffix("x")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(
            f"rate {text!r} is neither a number of programs a second, such as 0.2, nor a share of "
            "what vllm-opt carries, such as 0.85x; both are above zero"
        )
    return Rate(value, number != text)
