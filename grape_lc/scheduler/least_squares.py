"""Least squares for a handful of unknowns, a batch at a time: fading, robust, never negative."""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul

_FADE = 0.999  # weight that an observation keeps when the next one comes
_LEAST_CLIP = 0.05  # residuals up to here count in full, for targets near 1
_CLIP_TYPICAL = 3.0  # and up to this many typical ones
_TYPICAL_WEIGHT = 0.02  # of the newest residual in the typical one
_PULL = 1e-3  # towards the last solution, as a share of what was observed


class FadingLeastSquares:
    """Finds ``solution`` with ``sum(x[i] * solution[i])`` near the target of each observation x.

    unknowns: how many; a small number, the work for a solution rises with its cube.

    Old observations fade by 0.1 % at each new one. A residual beyond about three typical ones
    weighs as much less as it is larger (Huber's rule). What the latest observations do not tell
    stays as the last solution had it.
    """

    def __init__(self, unknowns: int) -> None:
        self.solution = [0.0] * unknowns
        """The last solution; none of its values is negative."""
        # Normal equations: the matrix (its lower half, row by row) and the right side.
        self._matrix = [[0.0] * (i + 1) for i in range(unknowns)]
        self._right = [0.0] * unknowns
        self._typical: float | None = None

    def add(self, columns: Sequence[Sequence[float]], targets: Sequence[float]) -> None:
        """Take in a batch: the first column holds ``x[0]`` of its observations, and so on."""
        weights = self._weights(columns, targets)
        fade = _FADE ** len(weights)
        for i, row in enumerate(self._matrix):
            weighted = list(map(mul, weights, columns[i]))
            for j in range(i + 1):
                row[j] = fade * row[j] + sum(map(mul, weighted, columns[j]))
            self._right[i] = fade * self._right[i] + sum(map(mul, weighted, targets))

    def _weights(self, columns: Sequence[Sequence[float]], targets: Sequence[float]) -> list[float]:
        if not any(self.solution):
            return [1.0] * len(targets)
        residuals = [
            abs(target - sum(map(mul, x, self.solution)))
            for target, x in zip(targets, zip(*columns, strict=True), strict=True)
        ]
        typical = self._typical
        if typical is None:
            typical = sorted(residuals)[len(residuals) // 2]
        weights = []
        for residual in residuals:
            clip = max(_LEAST_CLIP, _CLIP_TYPICAL * typical)
            weights.append(1.0 if residual <= clip else clip / residual)
            typical += _TYPICAL_WEIGHT * (min(residual, 2.0 * clip) - typical)
        self._typical = typical
        return weights

    def solve(self) -> list[float]:
        """Make and return the solution for what was added.

        Values that would be negative are held at 0, the most negative one first.
        """
        matrix = self._matrix
        free = [i for i in range(len(matrix)) if matrix[i][i] > 0.0]
        values: dict[int, float] = {}
        while free:
            values = dict(zip(free, self._solve_for(free), strict=True))
            worst = min(free, key=values.__getitem__)
            if values[worst] >= 0.0:
                break
            free.remove(worst)
        self.solution = [values[i] if i in free else 0.0 for i in range(len(matrix))]
        return self.solution

    def _solve_for(self, free: Sequence[int]) -> list[float]:
        """Gaussian elimination; the pull makes the matrix positive definite, so no pivoting."""
        matrix = self._matrix
        rows: list[list[float]] = []
        for i in free:
            pull = _PULL * matrix[i][i]
            row = [matrix[max(i, j)][min(i, j)] for j in free]
            row[len(rows)] += pull
            row.append(self._right[i] + pull * self.solution[i])
            rows.append(row)
        count = len(free)
        for k, pivot in enumerate(rows):
            for lower in rows[k + 1 :]:
                factor = lower[k] / pivot[k]
                for j in range(k, count + 1):
                    lower[j] -= factor * pivot[j]
        found = [0.0] * count
        for k in reversed(range(count)):
            known = sum(rows[k][j] * found[j] for j in range(k + 1, count))
            found[k] = (rows[k][count] - known) / rows[k][k]
        return found
