"""T = F: how long a step takes, from what it computes.

The form follows what a forward pass does. Weights are read once a step (``base``); each token goes
through the matrix products (``per_token``, with ``hinges`` where that price changes: up where an
accelerator leaves the region in which reading the weights hides them, down where a CPU's products
become large enough to use it well); each row is prepared and sampled (``per_row``) and reads its KV
once (``per_kv``); further tokens of a row only compare with it (``per_pair``). Nothing has a
negative price, so T rises with every part of a load.

Times are seconds. Everything here is called in every scheduling step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple, Protocol

MOST_TOKENS = 1 << 20
"""What ``tokens_within`` answers where no number of tokens reaches the limit."""

_MOST_S = 1e9  # no coefficient is larger
_ROUNDING = 1e-15  # seconds: where slopes add up to nothing, rounding may leave less
_NAMES = ("base", "per_row", "per_token", "per_kv", "per_pair")


class StepLoad(NamedTuple):
    """What one step computes; the unit of every field is a count.

    rows: requests in the step, decodes and prefill chunks alike.
    tokens: tokens computed, N_batch of the paper.
    kv_tokens: context lengths after the step, added up over the rows; N_seq of the paper.
    attention: token pairs that attention compares beyond each row's first token, which
        ``kv_tokens`` counts: ``n - 1`` tokens times their mean context. None for a decode.
    """

    rows: int = 0
    tokens: int = 0
    kv_tokens: int = 0
    attention: float = 0.0

    def plus(self, tokens: int, context: int = 0) -> StepLoad:
        """With one more row of ``tokens`` behind ``context`` computed tokens; a decode has 1."""
        rows, total, kv_tokens, attention = self
        return StepLoad(
            rows + 1,
            total + tokens,
            kv_tokens + context + tokens,
            attention + (tokens - 1) * (context + 0.5 * tokens + 1.0),
        )

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int]]) -> StepLoad:
        """Of rows given as (tokens, context before the step)."""
        count = total = kv = 0
        attention = 0.0
        for tokens, context in rows:
            count += 1
            total += tokens
            kv += context + tokens
            attention += (tokens - 1) * (context + 0.5 * tokens + 1.0)
        return cls(count, total, kv, attention)


class StepCost(Protocol):
    """F: a prediction of step times that rises with each part of a load."""

    def seconds(self, load: StepLoad) -> float:
        """Time of the step."""
        ...

    def slope(self, load: StepLoad, context: int = 0) -> float:
        """Seconds that one token more adds to a prefill row which has ``context`` behind it."""
        ...

    def tokens_within(self, load: StepLoad, limit_s: float, context: int = 0) -> int:
        """Most tokens that one more prefill row at ``context`` may have within ``limit_s``.

        0 if a single one is too much; never more than ``MOST_TOKENS``.
        """
        ...


@dataclass(frozen=True, slots=True)
class LinearCost:
    """A fitted F; all coefficients are finite seconds, or ValueError.

    base: of a step. per_row, per_token, per_kv, per_pair: of a unit of the load's fields; none is
        negative.
    hinges: (knot, slope) with rising positive knots: each token above ``knot`` in the whole step
        costs ``slope`` more. A slope may be negative, but a token's price may not become so.
    """

    base: float
    per_row: float = 0.0
    per_token: float = 0.0
    per_kv: float = 0.0
    per_pair: float = 0.0
    hinges: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        for name in _NAMES:
            _check(name, getattr(self, name))
        last, price = 0, self.per_token
        for knot, slope in self.hinges:
            if type(knot) is not int or not last < knot <= MOST_TOKENS:
                raise ValueError(f"hinges: knots are rising positive integers, not {knot!r:.40}")
            _check(f"slope of the hinge at {knot}", slope, least=-inf)
            price += slope
            if price < -_ROUNDING:
                raise ValueError(f"above {knot} tokens a token would cost {price!r} s")
            last = knot

    def seconds(self, load: StepLoad) -> float:
        """Time of the step."""
        return self._seconds(*load)

    def _seconds(self, rows: int, tokens: int, kv_tokens: int, attention: float) -> float:
        total = (
            self.base
            + self.per_row * rows
            + self.per_token * tokens
            + self.per_kv * kv_tokens
            + self.per_pair * attention
        )
        for knot, slope in self.hinges:
            if tokens <= knot:
                break
            total += slope * (tokens - knot)
        return total

    def slope(self, load: StepLoad, context: int = 0) -> float:
        """Seconds that one token more adds to a prefill row which has ``context`` behind it."""
        total = self.per_token + self.per_kv + self.per_pair * (context + 1)
        for knot, slope in self.hinges:
            if load.tokens < knot:
                break
            total += slope
        return total

    def tokens_within(self, load: StepLoad, limit_s: float, context: int = 0) -> int:
        """Most tokens that one more prefill row at ``context`` may have within ``limit_s``.

        0 if a single one is too much; never more than ``MOST_TOKENS``.
        """
        rows, total, kv_tokens, attention = load
        rows += 1
        kv_tokens += context
        middle = context + 1.0

        def with_row(tokens: int) -> float:  # ``load.plus``, without the object
            pairs = attention + (tokens - 1) * (middle + 0.5 * tokens)
            return self._seconds(rows, total + tokens, kv_tokens + tokens, pairs)

        left = limit_s - with_row(1)
        if left < 0.0:
            return 0
        guess = self._root(total + 1, left, context)

        # The root is right but for rounding: by a token, or by many where F is nearly flat.
        if guess == MOST_TOKENS or with_row(guess + 1) > limit_s:
            if with_row(guess) <= limit_s:
                return guess
            if with_row(guess - 1) <= limit_s:
                return guess - 1
        return bisect_right(range(1, MOST_TOKENS + 1), limit_s, key=with_row)

    def _root(self, first: int, left: float, context: int) -> int:
        """Tokens of a row whose first token is the step's ``first``-th, ``left`` s for the rest."""
        # m further tokens cost m * linear + m**2 * half_pair; each knot ahead makes it steeper.
        half_pair = 0.5 * self.per_pair
        linear = self.per_token + self.per_kv + self.per_pair * (context + 1.5)
        for knot, slope in self.hinges:
            ahead = knot - first
            if ahead > 0:
                if ahead * (linear + ahead * half_pair) >= left:
                    break
                left += slope * ahead
            linear += slope
        most = MOST_TOKENS - 1
        if left >= most * (linear + most * half_pair):
            return MOST_TOKENS
        # The form of the root that keeps its digits when the square is small, or absent.
        root = 2.0 * left / (linear + sqrt(linear * linear + 4.0 * half_pair * left))
        return 1 + int(min(root, most))

    def scaled(self, factor: float) -> LinearCost:
        """The same machine, ``factor`` times as slow; ValueError unless positive and finite."""
        if not (isfinite(factor) and factor > 0.0):
            raise ValueError(f"factor: a positive number, not {factor!r}")
        return LinearCost(
            **{name: getattr(self, name) * factor for name in _NAMES},
            hinges=tuple((knot, slope * factor) for knot, slope in self.hinges),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON and for vLLM's configuration; ``from_mapping`` reads them."""
        mapping: dict[str, Any] = {name: getattr(self, name) for name in _NAMES}
        mapping["hinges"] = [[knot, slope] for knot, slope in self.hinges]
        return mapping

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> LinearCost:
        """Read ``to_mapping``'s form; a coefficient left out is 0, except ``base``.

        Raises ValueError for unknown names, for a missing base and for values out of range.
        """
        unknown = sorted(set(mapping) - {*_NAMES, "hinges"})
        if unknown:
            known = ", ".join((*_NAMES, "hinges"))
            raise ValueError(f"unknown coefficients {unknown}; known: {known}")
        if "base" not in mapping:
            raise ValueError("the coefficient base is missing")
        hinges = mapping.get("hinges", ())
        try:
            pairs = tuple((knot, slope) for knot, slope in hinges)
        except (TypeError, ValueError):
            raise ValueError(f"hinges: a list of [knot, slope], not {hinges!r}") from None
        return cls(
            **{name: mapping.get(name, 0.0) for name in _NAMES},
            hinges=pairs,
        )


def chunk_weight(
    cost: StepCost,
    load: StepLoad,
    *,
    share: float = 0.2,
    context: int = 512,
    least: int = 1,
    most: int = 256,
) -> int:
    """Weight of a partial edge: how many upstream tokens make one chunk of early prefill.

    Every chunk pays for a row of its own (its preparation, and its context's KV read once more)
    before it pays for its tokens. The weight is the smallest chunk, from ``least`` to ``most``
    tokens, whose row costs at most ``share`` of what its tokens cost: smaller ones would start
    the overlap earlier but waste more, larger ones the reverse. ``load`` is the step the chunk
    joins, ``context`` the tokens computed before it. ``most`` where none is large enough.
    """
    if not 1 <= least <= most:
        raise ValueError(f"least and most: 1 <= least <= most, not {least} and {most}")
    alone = cost.seconds(load)
    row = cost.seconds(load.plus(1, context)) - alone - cost.slope(load, 0)

    def pays(tokens: int) -> bool:
        return row <= share * (cost.seconds(load.plus(tokens, context)) - alone - row)

    return least + bisect_left(range(least, most), True, key=pays)


def _check(name: str, value: Any, least: float = 0.0) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    # Written so that NaN fails too.
    if not (number and max(least, -_MOST_S) <= value <= _MOST_S):
        raise ValueError(f"{name}: a finite number of at least {least:g}, not {value!r:.40}")
