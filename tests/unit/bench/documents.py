"""Documents of a comparison, as ``grape bench --json`` writes them, made by hand."""

from __future__ import annotations

import random
from typing import Any

from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord
from grape_lc.bench.outcomes import outcomes
from grape_lc.bench.report import raw_run
from grape_lc.bench.slo import Slo

SLO = Slo(ttft=400.0)
WAITS = {"vllm": 0.5, "vllm-opt": 0.3, "grape": 0.05, "grape-static": 0.2, "layout": 0.25}
"""Seconds that calls wait for their first token, by variant."""


def run_record(
    variant: str, seed: int, *, programs: int = 3, tokens: int = 20, wait: float | None = None
) -> RunRecord:
    """A run of programs of three calls in a row; the later ones are prefilled ahead by grape."""
    draw = random.Random(f"{variant} {seed}")
    made = []
    wait = WAITS.get(variant, 0.3) if wait is None else wait
    for number in range(programs):
        arrived = now = 0.7 * number
        calls = []
        for call in range(3):
            submitted, now = now, now + wait * draw.uniform(0.8, 1.2)
            times = []
            for _ in range(tokens):
                times.append((now, 1))
                now += 0.02 * draw.uniform(0.5, 2)
            ahead = 90 if call and variant.startswith("grape") else 0
            calls.append(
                CallRecord(
                    number * 3 + call,
                    f"task{call}",
                    submitted,
                    tuple(times),
                    "text",
                    100,
                    10,
                    ahead,
                )
            )
            now = times[-1][0] + 0.001
        made.append(ProgramRecord(f"program-{number}", arrived, now, tuple(calls), arrived))
    return RunRecord(variant, tuple(made))


def document(
    variants: tuple[str, ...] = ("vllm", "vllm-opt", "grape"),
    *,
    workload: str = "code",
    rates: tuple[float | None, ...] = (0.5,),
    repeats: int = 2,
    programs: int = 3,
    tokens: int = 20,
    raw: bool = True,
) -> dict[str, Any]:
    """A whole document, without ratios: ``pair`` makes those. raw: with records of the calls."""
    metrics, runs = [], []
    for rate in rates:
        place = {"workload": workload, "rate": rate, "load": rate}
        for variant in variants:
            wait = WAITS.get(variant, 0.3) * (1 if rate is None else 1 + rate)
            records = [
                run_record(variant, repeat, programs=programs, tokens=tokens, wait=wait)
                for repeat in range(1, repeats + 1)
            ]
            metrics.append({**place, "variant": variant, "metrics": outcomes(records, SLO)})
            runs += [
                {
                    **place,
                    "variant": variant,
                    "repeat": repeat,
                    "position": 1,
                    "metrics": outcomes([record], SLO),
                    "error": None,
                    "offered": programs,
                    "counters": {},
                    **(raw_run(record) if raw else {"arm": variant}),
                }
                for repeat, record in enumerate(records, 1)
            ]
    return {
        "meta": {
            "settings": {"model": "a-model", "seed": 7, "slo": "ttft:400", "sweep": [64, 128]},
            "environment": {
                "command": "grape bench --workloads code --repeats 2",
                "date": "2026-02-03",
                "device": "cpu",
                "processor": "A Processor",
                "cores": 2,
                "system": "Linux",
                "python": "3.11.2",
                "versions": {"vllm": "0.32.0", "torch": "2.13.0"},
            },
            "cells": [{"workload": workload, "arms": {"grape": {"scheduler": "ours"}}}],
        },
        "metrics": metrics,
        "runs": runs,
        "pairs": [],
        "equal": {
            "compared": 18,
            "identical": 17,
            "baseline": variants[0],
            "variants": {"grape": {"compared": 18, "identical": 17}},
        },
    }


def pair(
    variant: str,
    metric: str,
    ratio: float,
    ci95: tuple[float, float] | None,
    *,
    baseline: str = "vllm-opt",
    rate: float | None = 0.5,
    n: int = 8,
    over: str = "repeats",
) -> dict[str, Any]:
    """A ratio of ``document``'s cell."""
    return {
        "workload": "code",
        "rate": rate,
        "load": rate,
        "metric": metric,
        "baseline": baseline,
        "variant": variant,
        "over": over,
        "ratio": ratio,
        "ci95": None if ci95 is None else list(ci95),
        "n": n,
    }


def failed_run(
    variant: str, error: str, repeat: int = 1, rate: float | None = 0.5
) -> dict[str, Any]:
    """A run that failed, in ``document``'s cell."""
    return {
        "workload": "code",
        "rate": rate,
        "load": rate,
        "variant": variant,
        "repeat": repeat,
        "position": 1,
        "metrics": None,
        "error": error,
        "offered": 3,
        "counters": {},
        "arm": variant,
    }


def regimes() -> list[dict[str, Any]]:
    """A small map with a gain, a loss, and points that show nothing."""
    return [
        {
            "depth": depth,
            "output": output,
            "static": static,
            "rho": rho,
            "metric": metric,
            "ratio": ratio,
            "ci95": [ratio - 0.05, ratio + 0.05],
        }
        for metric in ("agentic_itl_ms.p95", "answer_s.p95")
        for depth in (2, 8)
        for rho in (0.5, 0.95)
        for output, static, ratio in (
            (16, 64, 0.9),
            (16, 1024, 1.02),
            (256, 64, 1.3),
            (256, 1024, 2.4),
        )
    ]
