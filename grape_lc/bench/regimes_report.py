"""What ``grape regimes`` prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from grape_lc import __version__
from grape_lc.bench.batch import code_digest
from grape_lc.bench.intervals import FEW_PAIRS, Ratio
from grape_lc.bench.paper_rows import ratio_record
from grape_lc.bench.regimes import (
    MAPPED,
    MOST_WORSE,
    NEVER_WORSE,
    Regime,
    violations,
)
from grape_lc.bench.regimes_options import RegimeSettings
from grape_lc.bench.report import write_text

_TITLES = {
    "program_s.p50": "final P50",
    "program_s.p95": "final P95",
    "switch_gap_ms.mean": "switch gap",
    "agentic_itl_ms.p95": "ITL P95",
    "tokens_per_s": "tokens/s",
}


def show(settings: RegimeSettings, regimes: Sequence[Regime], console: Console) -> None:
    """Print the map, every point that is worse than it may be, and the marks."""
    console.print(map_table(regimes))
    worse = violations(regimes)
    if worse:
        console.print(_worse_table(regimes))
    for mark in marks(regimes):
        told = "met" if mark["met"] else "missed"
        value = "not measured" if mark["value"] is None else f"{mark['value']:.3f}"
        console.print(
            f"{mark['mark']}: {value}, target {mark['target']:.3f}: {told}; "
            f"{mark['violations']} of {mark['cells']} points below",
            highlight=False,
        )
    if settings.seeds < FEW_PAIRS:
        console.print(
            f"n = {settings.seeds}: with fewer than {FEW_PAIRS} seeds intervals are too narrow to "
            "lean on",
            highlight=False,
        )


def marks(regimes: Sequence[Regime]) -> list[dict[str, Any]]:
    """Never worse, over the whole map: each metric at its worst point. Without points: not met."""
    found = []
    for metric in NEVER_WORSE:
        ratios = [
            (ratio, regime)
            for regime in regimes
            if (ratio := regime.ratios.get(metric)) is not None
        ]
        least = min(ratios, key=lambda pair: pair[0].ratio, default=None)
        below = [violation for violation in violations(regimes) if violation.metric == metric]
        value = ratio_record(least[0] if least else None)
        found.append(
            {
                "mark": f"{_TITLES[metric]} never worse than {MOST_WORSE:g} x tuned vllm-opt",
                "value": value["ratio"],
                "ci95": value["ci95"],
                "target": 1 / MOST_WORSE,
                "met": least is not None and not below,
                "cells": len(ratios),
                "violations": len(below),
                "lowest": None if least is None else _where(least[1]),
            }
        )
    return found


def to_document(settings: RegimeSettings, regimes: Sequence[Regime]) -> dict[str, Any]:
    """The JSON file. ``regimes`` are the points of the map, ``head`` those with the variable first.

    Points at which a metric cannot be compared have no entry of it.
    """
    return {
        "meta": {
            "version": __version__,
            "code": code_digest(),
            "settings": settings.model_dump(mode="json"),
            "points": [
                {**_where(regime), "rate": regime.rate, "budget": regime.budget}
                for regime in regimes
            ],
        },
        "regimes": _entries(regimes, lambda regime: regime.point.kind.place == "end"),
        "head": _entries(regimes, lambda regime: regime.point.kind.place == "head"),
        "violations": [
            {
                **violation.point.kind._asdict(),
                "rho": violation.point.rho,
                "metric": violation.metric,
                **ratio_record(violation.ratio),
            }
            for violation in violations(regimes)
        ],
        "marks": marks(regimes),
    }


def write(settings: RegimeSettings, regimes: Sequence[Regime], path: Path) -> None:
    """Write the JSON file. Raises ConfigError if it cannot be written."""
    write_text(path, json.dumps(to_document(settings, regimes), indent=1) + "\n")


def map_table(regimes: Sequence[Regime]) -> Table:
    """One line a point."""
    table = Table(
        title="grape against the tuned vllm-opt (above 1 is better, red: worse than it may be)",
        title_justify="left",
    )
    for name in ("depth", "output", "static", "variable", "rho", "budget"):
        table.add_column(name, justify="right")
    for name in MAPPED:
        table.add_column(_TITLES[name], justify="right")
    for regime in regimes:
        kind, ratios = regime.point.kind, regime.ratios
        table.add_row(
            *(str(value) for value in kind),
            f"{regime.point.rho:g}",
            str(regime.budget),
            *(_cell(ratios[name], strict=name in NEVER_WORSE) for name in MAPPED),
        )
    return table


def _worse_table(regimes: Sequence[Regime]) -> Table:
    table = Table(title=f"worse than {MOST_WORSE:g} x tuned vllm-opt", title_justify="left")
    for name in ("depth", "output", "static", "variable", "rho", "metric", "ratio [95%]"):
        table.add_column(name, justify="right")
    for violation in violations(regimes):
        low, high = violation.ratio.low, violation.ratio.high
        interval = "" if low is None or high is None else f" \\[{low:.3f}, {high:.3f}]"
        table.add_row(
            *(str(value) for value in violation.point.kind),
            f"{violation.point.rho:g}",
            _TITLES[violation.metric],
            f"{violation.ratio.ratio:.3f}{interval}",
        )
    return table


def _cell(ratio: Ratio | None, *, strict: bool) -> str:
    if ratio is None:
        return "-"
    text = f"{ratio.ratio:.2f}"
    return f"[red]{text}[/red]" if strict and ratio.ratio < 1 / MOST_WORSE else text


def _where(regime: Regime) -> dict[str, Any]:
    return {**regime.point.kind._asdict(), "rho": regime.point.rho}


def _entries(regimes: Sequence[Regime], belongs: Callable[[Regime], bool]) -> list[dict[str, Any]]:
    return [
        {**_where(regime), "metric": metric, **ratio_record(ratio)}
        for regime in regimes
        if belongs(regime)
        for metric, ratio in regime.ratios.items()
        if ratio is not None
    ]
