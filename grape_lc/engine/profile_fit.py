"""From measured steps to F, and how far it is off.

A *cell* holds the repeats of one step: the same rows and tokens behind nearly the same contexts,
spread over the whole run. Its time is their median, at the machine's usual pace
(``profile_pace``). F is fitted to the cells (``profile_regress``).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from grape_lc.engine.profile_cells import Cell, Kind, Step, cells_of, kind_of
from grape_lc.engine.profile_pace import paces
from grape_lc.engine.profile_regress import REPEATS, regress
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost

LEAST_CELLS = 24
"""Fewer different steps than this are no profile."""

_FOLDS = 4
_PASSES = 2  # of finding the pace by F, and F at that pace
_PER_CELL = 12  # single steps of a cell that count in the error of single steps


@dataclass(frozen=True)
class Errors:
    """Relative errors, as fractions: mean, 95th percentile, and of how many measurements."""

    mape: float
    p95_error: float
    steps: int


@dataclass(frozen=True)
class Fit:
    """F, fitted to all cells, and its errors on cells that the fit had not seen.

    heldout: against the medians of cells with at least three repeats: the fault of F. by_kind:
    the same, by kind. single: against single steps: the fault of F and the noise of a step. Both
    at the pace that the machine had then. unpaced: as ``heldout``, against the times as they were
    measured, by an F that knows no pace. cells: different steps that were measured. slowest: the
    95th percentile of the pace, 1 being the usual one.
    """

    cost: LinearCost
    heldout: Errors
    by_kind: dict[str, Errors]
    single: Errors
    unpaced: Errors
    cells: int
    slowest: float

    def to_mapping(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "coefficients": self.cost.to_mapping(),
            "heldout": asdict(self.heldout),
            "heldout_by_kind": {kind: asdict(errors) for kind, errors in self.by_kind.items()},
            "heldout_single": asdict(self.single),
            "heldout_unpaced": asdict(self.unpaced),
            "slowest_pace": self.slowest,
            "cells": self.cells,
        }


def fit(steps: Iterable[Step], *, seed: int = 0) -> Fit:
    """Fit F to the steps, in the order in which they ran; find its error on steps it did not see.

    The cells of each kind are dealt into four parts by ``seed``. Each part is predicted by a fit to
    the other three, and the pace of its steps is told by steps of those three: these are the
    errors. F itself is then fitted to all cells.

    Raises ConfigError if fewer than ``LEAST_CELLS`` different steps, or no repeats, were measured.
    """
    steps = list(steps)
    cells = cells_of(steps)
    if len(cells) < LEAST_CELLS or not any(len(cell.repeats) >= REPEATS for cell in cells.values()):
        raise ConfigError(
            f"{len(cells)} different steps were measured, at least {LEAST_CELLS} are needed, some "
            f"of them {REPEATS} times; allow more time"
        )
    medians: dict[str, list[float]] = defaultdict(list)
    singles: list[float] = []
    unpaced: list[float] = []
    draw = random.Random(seed)  # noqa: S311 - a reproducible choice, not a secret
    kinds = list(cells)
    for part in deal(list(cells.values()), draw):
        unseen = frozenset(kinds[index] for index in part)
        plain, cost, paced = _fitted(steps, unseen)
        found = cells_of(step for step in paced if kind_of(step.load) in unseen)
        for kind, cell in found.items():
            predicted = cost.seconds(cell.load)
            chosen = draw.sample(cell.repeats, min(len(cell.repeats), _PER_CELL))
            singles += [abs(predicted / seconds - 1.0) for seconds in chosen]
            if len(cell.repeats) >= REPEATS:
                medians[cell.kind].append(abs(predicted / cell.seconds - 1.0))
                unpaced.append(abs(plain.seconds(cell.load) / cells[kind].seconds - 1.0))
    _, cost, paced = _fitted(steps, frozenset())
    pace = sorted(step.seconds / at.seconds for step, at in zip(steps, paced, strict=True))
    return Fit(
        cost,
        errors_of([error for errors in medians.values() for error in errors]),
        {kind: errors_of(errors) for kind, errors in sorted(medians.items())},
        errors_of(singles),
        errors_of(unpaced),
        len(cells),
        pace[len(pace) * 95 // 100],
    )


def _fitted(
    steps: Sequence[Step], unseen: frozenset[Kind]
) -> tuple[LinearCost, LinearCost, list[Step]]:
    """F without and with regard to pace, by steps not ``unseen``; all steps at the usual pace."""
    kinds = [kind_of(step.load) for step in steps]

    def regressed(steps: Iterable[Step]) -> LinearCost:
        seen = (step for step, kind in zip(steps, kinds, strict=True) if kind not in unseen)
        return regress(list(cells_of(seen).values()))

    plain = cost = regressed(steps)
    paced = list(steps)
    for _ in range(_PASSES):
        ratios = [step.seconds / cost.seconds(step.load) for step in steps]
        found = paces(ratios, kinds, unseen)
        paced = [Step(load, s / pace) for (load, s), pace in zip(steps, found, strict=True)]
        cost = regressed(paced)
    return plain, cost, paced


def deal(cells: Sequence[Cell], draw: random.Random) -> list[list[int]]:
    """Indices of the cells in four parts, each with its share of every kind."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        kinds[cell.kind].append(index)
    order: list[int] = []
    for _, members in sorted(kinds.items()):
        draw.shuffle(members)
        order += members
    return [order[start::_FOLDS] for start in range(_FOLDS)]


def errors_of(errors: Sequence[float]) -> Errors:
    """Mean and percentile of relative errors; there must be some."""
    ranked = sorted(errors)
    return Errors(fmean(ranked), ranked[min(len(ranked) - 1, len(ranked) * 95 // 100)], len(ranked))
