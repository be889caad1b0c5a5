"""Measured steps, and those of them that repeat each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import log2
from statistics import fmean, median
from typing import NamedTuple

from grape_lc.scheduler.cost import StepLoad


class Step(NamedTuple):
    """A measured step; ``seconds`` is positive."""

    load: StepLoad
    seconds: float


class Cell(NamedTuple):
    """Steps of the same rows and tokens and nearly the same contexts.

    load: the mean one. seconds: the median. repeats: of each step, in the order of measuring.
    """

    load: StepLoad
    seconds: float
    repeats: tuple[float, ...]

    @property
    def kind(self) -> str:
        """``decode`` (a token a row), ``prefill`` (a single row) or ``mixed``."""
        if self.load.tokens == self.load.rows:
            return "decode"
        return "prefill" if self.load.rows == 1 else "mixed"


def steps_of(rows: Iterable[Sequence[float]]) -> list[Step]:
    """Steps as ``GrapeEngine.steps`` gives them; those without a duration are left out."""
    return [
        Step(StepLoad(int(count), int(tokens), int(kv), pairs), seconds)
        for count, tokens, kv, pairs, seconds in rows
        if seconds > 0
    ]


Kind = tuple[int, int, int, int]


def kind_of(load: StepLoad) -> Kind:
    """What steps of a cell have in common: rows, tokens, and about their contexts."""
    rows, tokens, kv, pairs = load
    # Contexts to a quarter of an octave: decodes grow while they are measured.
    return rows, tokens, round(4 * log2(kv)), round(4 * log2(1 + pairs))


def cells_of(steps: Iterable[Step]) -> dict[Kind, Cell]:
    """Steps gathered into cells, in a fixed order."""
    groups: dict[Kind, list[Step]] = defaultdict(list)
    for step in steps:
        groups[kind_of(step.load)].append(step)
    return {
        kind: Cell(
            StepLoad(
                kind[0],
                kind[1],
                round(fmean(step.load.kv_tokens for step in group)),
                fmean(step.load.attention for step in group),
            ),
            median(step.seconds for step in group),
            tuple(step.seconds for step in group),
        )
        for kind, group in sorted(groups.items())
    }
