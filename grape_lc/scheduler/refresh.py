"""F kept up to date while the engine runs, or learned where no profile was made.

``CostTracker`` is told every measured step. A fitted profile is only scaled, since a machine that
gets slower or faster does so with all parts of a step. Without one, F is learned from the steps
themselves: weighted least squares on the relative error, where old steps fade and outliers count
little. Either way the tracker watches its own predictions, and offers no F while they are bad: a
wrong F would cost more than none.

Deterministic; times are seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import exp, isfinite, log
from operator import mul
from typing import NamedTuple

from grape_lc.scheduler.cost import LinearCost, StepLoad
from grape_lc.scheduler.least_squares import FadingLeastSquares

_BATCH = 32  # steps between two looks at fit and error
_WINDOW = 256  # steps over which errors are ranked
_LEAST_JUDGED = 128  # errors that make a judgement
_LEAST_PREFILLS = 16  # steps with prefill: decodes alone cannot tell a token from a row
_GAIN = 0.05  # of one step on the scale
_CLIP = 0.5  # most that one step can say about the scale, as a logarithm
_SCALE_RANGE = (0.05, 20.0)
_PUBLISH = 0.01  # change of the scale that is worth a new F
_RETURN = 0.8  # share of a bound below which a refused F is taken again: it must not flutter
# The fields of a load have sizes far apart; in these units their costs are of one order.
_UNITS = (1.0, 1.0, 1e3, 1e3)


@dataclass(frozen=True, slots=True)
class ErrorBounds:
    """Largest relative errors of a usable F: at the median step and at the 95th percentile."""

    p50: float = 0.15
    p95: float = 0.40

    def __post_init__(self) -> None:
        for name, value in (("p50", self.p50), ("p95", self.p95)):
            if not (isfinite(value) and value > 0.0):
                raise ValueError(f"{name}: a positive number, not {value!r}")

    def refusal(self, error: StepError, share: float = 1.0) -> str | None:
        """What is wrong with ``error`` against ``share`` of the bounds; None if nothing is."""
        for name, value, bound in (
            ("median", error.p50, self.p50),
            ("95th percentile", error.p95, self.p95),
        ):
            if value > share * bound:
                return f"the {name} of its relative errors is {value:.3f}, above {bound:g}"
        return None


class StepError(NamedTuple):
    """Relative errors of the last predictions, ``|predicted / measured - 1|``."""

    p50: float
    p95: float
    steps: int


class CostTracker:
    """Watches, scales or learns F.

    fitted: a profile's F; None learns one.
    bounds: above them F is not offered. A profile that exceeds them is given up for good, and F
        is learned.
    """

    def __init__(
        self, fitted: LinearCost | None = None, bounds: ErrorBounds = ErrorBounds()
    ) -> None:
        self._bounds = bounds
        self._fitted = fitted
        self._scale = 1.0
        self._published = 1.0
        self._current = fitted
        self._squares = FadingLeastSquares(1 + len(_UNITS))
        self._batch: list[tuple[StepLoad, float]] = []
        self._errors: deque[float] = deque(maxlen=_WINDOW)
        self._error: StepError | None = None
        self._prefills = 0
        self._origin = "no profile"
        self.reason: str | None = None
        """Why no F is offered; None while one is."""
        if fitted is None:
            self.reason = f"{self._origin}, and no step measured yet"

    @property
    def cost(self) -> LinearCost | None:
        """F, or None while none can be trusted."""
        return self._current if self.reason is None else None

    @property
    def trusted(self) -> bool:
        """Whether there is an F that keeps to the bounds."""
        return self.reason is None

    @property
    def fitted(self) -> bool:
        """Whether F still is the profile's, scaled."""
        return self._fitted is not None

    @property
    def scale(self) -> float:
        """How much slower this machine is than the profile says; 1.0 for a learned F."""
        return self._published

    @property
    def error(self) -> StepError | None:
        """How good the latest predictions were, up to date to 32 steps; None if too few."""
        return self._error

    def observe(self, load: StepLoad, seconds: float) -> None:
        """Take in a step that took ``seconds``; a time that is not positive teaches nothing."""
        if not (0.0 < seconds < 3600.0) or not load.rows:
            return
        current = self._current
        if current is not None:
            predicted = current.seconds(load)
            self._errors.append(abs(predicted / seconds - 1.0))
            if self._fitted is not None and predicted > 0.0:
                self._rescale(seconds / predicted)
        self._batch.append((load, seconds))
        if len(self._batch) == _BATCH:
            self._review()

    def _rescale(self, ratio: float) -> None:
        # Measured against what is published, so the step already made is taken off.
        surprise = log(ratio * self._published / self._scale)
        self._scale *= exp(_GAIN * max(-_CLIP, min(_CLIP, surprise)))
        self._scale = max(_SCALE_RANGE[0], min(_SCALE_RANGE[1], self._scale))
        if abs(self._scale / self._published - 1.0) > _PUBLISH and self._fitted is not None:
            self._published = self._scale
            self._current = self._fitted.scaled(self._scale)

    def _review(self) -> None:
        """Judge the last predictions, and learn from the batch where that is the way."""
        if len(self._errors) >= _LEAST_JUDGED:
            ranked = sorted(self._errors)
            count = len(ranked)
            self._error = StepError(ranked[count // 2], ranked[(95 * count) // 100], count)
        if self._fitted is not None and self._error is not None:
            refusal = self._bounds.refusal(self._error)
            if refusal is not None:
                self._give_up_profile(refusal)
        if self._fitted is None:
            self._learn()
        self._batch.clear()

    def _give_up_profile(self, refusal: str) -> None:
        self._fitted = None
        self._current = None
        self._published = self._scale = 1.0
        self._errors.clear()
        self._error = None
        self._origin = f"the profile does not fit ({refusal})"

    def _learn(self) -> None:
        loads, times = zip(*self._batch, strict=True)
        self._prefills += sum(load.tokens > load.rows for load in loads)
        # The relative error is linear too: each part, and the time, over what was expected. Over
        # the measured time itself, steps that were quick by chance would count most.
        current = self._current
        scales = [
            1.0 / (seconds if current is None else max(current.seconds(load), 0.1 * seconds))
            for load, seconds in self._batch
        ]
        columns = [scales]
        for field, unit in zip(zip(*loads, strict=True), _UNITS, strict=True):
            columns.append([value / unit for value in map(mul, field, scales)])
        self._squares.add(columns, list(map(mul, times, scales)))
        base, *parts = self._squares.solve()
        row, token, kv, pair = (value / unit for value, unit in zip(parts, _UNITS, strict=False))
        self._current = LinearCost(base, row, token, kv, pair)
        self.reason = self._judged()

    def _judged(self) -> str | None:
        """Why the learned F is not offered."""
        if self._prefills < _LEAST_PREFILLS:
            why = f"of {_LEAST_PREFILLS} steps with prefill {self._prefills} were seen"
        elif self._error is None:
            why = f"of {_LEAST_JUDGED} predictions {len(self._errors)} were made"
        else:
            refusal = self._bounds.refusal(self._error, 1.0 if self.trusted else _RETURN)
            if refusal is None:
                return None
            why = refusal
        return f"{self._origin}, and the learned F is not good yet: {why}"

    def validate(self) -> None:
        """Raise RuntimeError if the parts contradict each other."""
        found = []
        if self._fitted is not None and self.reason is not None:
            found.append(f"a profile is in use and refused: {self.reason}")
        if self.reason is None and self._current is None:
            found.append("no F, and no reason for it")
        if len(self._batch) >= _BATCH:
            found.append(f"{len(self._batch)} steps wait for a review, at most {_BATCH - 1} may")
        if self._fitted is None and self._published != 1.0:
            found.append(f"a learned F has the scale {self._published}")
        if found:
            raise RuntimeError("cost tracker: " + "; ".join(found))
