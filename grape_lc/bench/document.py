"""The files that ``grape bench`` writes.

{"meta":    settings, environment, engines: how it was measured,
 "metrics": figures by arm, all its runs pooled,
 "runs":    one entry a run: workload, variant, rate, repeat, metrics, and raw records,
 "pairs":   one entry a ratio: metric, baseline, variant, ratio, ci95, n,
 "equal":   compared, identical}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grape_lc.bench.chrome import chrome_trace
from grape_lc.bench.command import BenchResult
from grape_lc.bench.intervals import Ratio
from grape_lc.bench.options import BenchSettings, environment
from grape_lc.bench.outcomes import outcomes
from grape_lc.bench.report import raw_run, write_text
from grape_lc.bench.server import ArmRun


def to_document(settings: BenchSettings, result: BenchResult, device: str) -> dict[str, Any]:
    """The JSON file: figures, ratios, and everything that they can be computed from."""
    comparison = result.comparison
    return {
        "meta": _meta(settings, result, device),
        "metrics": {arm: comparison.metrics(arm) for arm in comparison.arms},
        "runs": [_run(settings, result, run) for run in comparison.runs],
        "pairs": list(_pairs(settings, result)),
        "equal": _equal(result),
    }


def write(
    settings: BenchSettings,
    result: BenchResult,
    device: str,
    json_file: Path | None,
    trace_file: Path | None,
) -> None:
    """Write the files that were asked for. Raises ConfigError if one cannot be written."""
    if json_file is not None:
        document = to_document(settings, result, device)
        write_text(json_file, json.dumps(document, indent=1) + "\n")
    if trace_file is not None:
        records = [run.record for run in result.comparison.runs if run.record is not None]
        write_text(trace_file, json.dumps(chrome_trace(records)) + "\n")


def _meta(settings: BenchSettings, result: BenchResult, device: str) -> dict[str, Any]:
    return {
        "settings": settings.model_dump(mode="json"),
        "base": settings.base_arm(),
        "rate": result.rate,
        "kv_blocks": result.kv_blocks,
        "arms": {
            arm.name: {
                "scheduler": arm.scheduler,
                "attached": arm.attached,
                "warmed": arm.warmed,
                **arm.engine_args(),
            }
            for arm in result.arms
        },
        "probes": [
            {**probe._asdict(), "saturated_rate": probe.saturated_rate} for probe in result.probes
        ],
        "sweep": None
        if result.choice is None
        else {
            **result.choice.to_record(),
            "trials": [trial._asdict() for trial in result.trials],
        },
        "engines": result.comparison.infos,
        "environment": environment(device),
    }


def _run(settings: BenchSettings, result: BenchResult, run: ArmRun) -> dict[str, Any]:
    slo = result.comparison.slo
    return {
        "workload": settings.workflow,
        "variant": run.arm,
        "rate": result.rate,
        "repeat": run.repeat,
        "position": run.position,
        "metrics": None if run.record is None else outcomes([run.record], slo),
        "error": run.error,
        "offered": run.offered,
        "counters": dict(run.counters),
        # With "arm" and "programs" it is a raw run as the demo's file has them.
        **(raw_run(run.record) if run.record is not None else {"arm": run.arm}),
    }


def _pairs(settings: BenchSettings, result: BenchResult) -> Iterator[dict[str, Any]]:
    for variant, column in result.gains.items():
        for gain in column:
            for over, ratio in (("repeats", gain.ratio), ("programs", gain.programs)):
                if ratio is not None:
                    yield {
                        "workload": settings.workflow,
                        "rate": result.rate,
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
    first, *others = result.comparison.arms
    found = {arm: result.comparison.equal(arm) for arm in others}
    return {
        "compared": sum(equal.compared for equal in found.values()),
        "identical": sum(equal.identical for equal in found.values()),
        "baseline": first,
        "variants": {arm: equal._asdict() for arm, equal in found.items()},
    }
