"""Figures of runs that were recorded, read back from the JSON file of a demo or a bench."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grape_lc.bench.metrics import CallRecord, Metrics, ProgramRecord, RunRecord, measure
from grape_lc.engine.simulator.recorded import read_run
from grape_lc.errors import ConfigError


def run_of(raw: Mapping[str, Any]) -> RunRecord:
    """The run that ``report.raw_run`` made plain data of.

    Raises KeyError, TypeError or ValueError for anything else.
    """

    def call(data: Mapping[str, Any]) -> CallRecord:
        tokens = tuple((float(at), int(count)) for at, count in data["tokens"])
        return CallRecord(**{**data, "tokens": tokens})

    return RunRecord(
        raw["arm"],
        tuple(
            ProgramRecord(
                program["program"],
                program["arrived"],
                program["finished"],
                tuple(call(data) for data in program["calls"]),
                program.get("scheduled"),
                program.get("tenant", ""),
            )
            for program in raw["programs"]
        ),
    )


def recorded_metrics(path: Path, run: int) -> tuple[str, Metrics]:
    """Arm and figures of the run at a place in a file. Raises ConfigError."""
    raw = read_run(path, run)
    try:
        record = run_of(raw)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{path}: run {run} is not a recorded run: {error!r:.300}") from error
    return record.arm, measure([record])
