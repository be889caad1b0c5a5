"""The files that ``grape bench`` writes.

{"meta":    settings, environment, and for each cell how it was measured,
 "metrics": one entry for each cell and variant: figures, all its runs pooled,
 "runs":    one entry a run: workload, variant, rate, load, repeat, metrics, and raw records,
 "pairs":   one entry a ratio: workload, rate, load, metric, baseline, variant, ratio, ci95, n,
 "equal":   compared, identical}

A cell is a workload at a rate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grape_lc.bench.chrome import chrome_trace
from grape_lc.bench.intervals import Ratio
from grape_lc.bench.matrix import BenchResult, CellResult
from grape_lc.bench.options import BenchSettings
from grape_lc.bench.report import Equal, raw_run, write_text
from grape_lc.bench.server import ArmRun
from grape_lc.bench.surroundings import environment


def to_document(settings: BenchSettings, result: BenchResult, device: str) -> dict[str, Any]:
    """The JSON file: figures, ratios, and everything that they can be computed from."""
    return {
        "meta": {
            "settings": settings.model_dump(mode="json"),
            "base": settings.base_arm(),
            "cells": [{**_place(cell), **_cell(cell)} for cell in result.cells],
            "environment": environment(device),
        },
        "metrics": [
            {**_place(cell), "variant": arm, "metrics": cell.comparison.metrics(arm)}
            for cell in result.cells
            for arm in cell.comparison.arms
        ],
        "runs": [_run(cell, run) for cell in result.cells for run in cell.comparison.runs],
        "pairs": [pair for cell in result.cells for pair in _pairs(settings, cell)],
        "equal": _equal(result),
    }


def write(
    settings: BenchSettings,
    result: BenchResult,
    device: str,
    *,
    json_file: Path | None = None,
    html_file: Path | None = None,
    trace_file: Path | None = None,
) -> None:
    """Write the files that were asked for. Raises ConfigError if one cannot be written."""
    if trace_file is not None:
        runs = [run.record for cell in result.cells for run in cell.comparison.runs]
        records = [record for record in runs if record is not None]
        write_text(trace_file, json.dumps(chrome_trace(records)) + "\n")
    if json_file is None and html_file is None:
        return
    document = to_document(settings, result, device)
    if json_file is not None:
        write_text(json_file, json.dumps(document, indent=1) + "\n")
    if html_file is not None:
        from grape_lc.bench.html_report import write_html  # plots take a while to import

        write_html(document, html_file)


def _place(cell: CellResult) -> dict[str, Any]:
    return {"workload": cell.cell.workload, "rate": cell.rate, "load": cell.load}


def _cell(cell: CellResult) -> dict[str, Any]:
    return {
        "saturated_rate": cell.footing.saturated_rate,
        "kv_blocks": cell.footing.kv_blocks,
        "arms": {
            arm.name: {
                "scheduler": arm.scheduler,
                "attached": arm.attached,
                "warmed": arm.warmed,
                "piped": arm.piped,
                "released": arm.released,
                "layout": arm.layout,
                **arm.engine_args(),
            }
            for arm in cell.arms
        },
        "probes": [
            {**probe._asdict(), "saturated_rate": probe.saturated_rate}
            for probe in cell.footing.probes
        ],
        "sweep": None
        if cell.choice is None
        else {
            **cell.choice.to_record(),
            "trials": [trial._asdict() for trial in cell.trials],
        },
        "engines": cell.comparison.infos,
    }


def _run(cell: CellResult, run: ArmRun) -> dict[str, Any]:
    return {
        **_place(cell),
        "variant": run.arm,
        "repeat": run.repeat,
        "position": run.position,
        "metrics": None if run.record is None else cell.comparison.metrics_of(run),
        "error": run.error,
        "offered": run.offered,
        "counters": dict(run.counters),
        # With "arm" and "programs" it is a raw run as the demo's file has them.
        **(raw_run(run.record) if run.record is not None else {"arm": run.arm}),
    }


def _pairs(settings: BenchSettings, cell: CellResult) -> Iterator[dict[str, Any]]:
    for variant, column in cell.gains.items():
        for gain in column:
            for over, ratio in (("repeats", gain.ratio), ("programs", gain.programs)):
                if ratio is not None:
                    yield {
                        **_place(cell),
                        "metric": gain.key,
                        "baseline": settings.base_arm(),
                        "variant": variant,
                        "over": over,
                        "ratio": ratio.ratio,
                        "ci95": _interval(ratio),
                        "n": ratio.pairs,
                    }


def _interval(ratio: Ratio) -> list[float] | None:
    return None if ratio.low is None or ratio.high is None else [ratio.low, ratio.high]


def _equal(result: BenchResult) -> dict[str, Any]:
    first, *others = result.cells[0].comparison.arms
    found = {arm: _sum([cell.comparison.equal(arm) for cell in result.cells]) for arm in others}
    return {
        **_sum(list(found.values()))._asdict(),
        "baseline": first,
        "variants": {arm: equal._asdict() for arm, equal in found.items()},
    }


def _sum(parts: list[Equal]) -> Equal:
    return Equal(sum(p.compared for p in parts), sum(p.identical for p in parts))
