"""The regression behind F.

Robust: the sum of *relative* errors is made least, not of their squares. Never negative: more work
never takes less time. Both together are a linear programme, solved exactly (scipy's HiGHS).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix, eye, hstack

from grape_lc.engine.profile_cells import Cell
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost

REPEATS = 3
"""Measurements of a step, for its median to be free of most noise."""

_FIRST_KNOT = 8
_BEYOND_KNOT = 5  # cells that a knot must have above it
_MOST_KNOTS = 3
_WORTH = 0.03  # share of the error that a further knot must take off


def regress(cells: Sequence[Cell]) -> LinearCost:
    """The F with the least mean relative error; a cell of one or two steps weighs less.

    The price of a token may change at powers of two. Such knots are added one by one, the best
    first, while each takes 3 % off the error: more of them would follow the noise.
    """
    tokens = [cell.load.tokens for cell in cells]
    free = [
        1 << power
        for power in range(_FIRST_KNOT.bit_length() - 1, max(tokens).bit_length())
        if sum(count > 1 << power for count in tokens) >= _BEYOND_KNOT
    ]
    knots: list[int] = []
    error, cost = _solve(cells, knots)
    while free and len(knots) < _MOST_KNOTS:
        tried = [(*_solve(cells, sorted([*knots, knot])), knot) for knot in free]
        less, better, knot = min(tried, key=lambda found: (found[0], found[2]))
        if less > (1.0 - _WORTH) * error:
            break
        error, cost = less, better
        knots = sorted([*knots, knot])
        free.remove(knot)
    return cost


def _solve(cells: Sequence[Cell], knots: Sequence[int]) -> tuple[float, LinearCost]:
    """The best F with these knots, and its mean relative error."""
    # The tokens between two knots are a part with a price of its own.
    edges = list(pairwise([0, *knots, max(cell.load.tokens for cell in cells)]))
    parts = np.array(
        [
            [1.0, cell.load.rows, cell.load.kv_tokens, cell.load.attention]
            + [min(max(cell.load.tokens - low, 0), high - low) for low, high in edges]
            for cell in cells
        ]
    )
    shares = parts / np.array([cell.seconds for cell in cells])[:, None]
    scale = shares.max(axis=0)
    scale[scale == 0.0] = 1.0
    weights = np.array([min(len(cell.repeats), REPEATS) for cell in cells], dtype=float)
    weights /= weights.sum()
    count, unknowns = shares.shape
    # Of each cell: its parts + what is missing - what is too much = 1 (its own time).
    slack = eye(count, format="csr")
    result = linprog(
        np.concatenate([np.zeros(unknowns), weights, weights]),
        A_eq=hstack([csr_matrix(shares / scale), slack, -slack], format="csr"),
        b_eq=np.ones(count),
        bounds=(0, None),
        method="highs",
    )
    if not result.success:
        raise ConfigError(f"no F fits the measured steps: {result.message}")
    # The solver may return a zero that is a little less.
    base, row, kv, pair, *prices = (max(0.0, float(x)) for x in result.x[:unknowns] / scale)
    hinges = tuple((knot, b - a) for knot, (a, b) in zip(knots, pairwise(prices), strict=True))
    return float(result.fun), LinearCost(base, row, prices[0], kv, pair, hinges)
