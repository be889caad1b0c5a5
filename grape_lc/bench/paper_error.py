"""How far the simulator is from a real engine: recorded runs, simulated again.

The programs of each recorded run, with the fitted cost of its machine, run through its arm in the
simulator. What comes out otherwise is the simulator's error, of F, of the front end's constants and
of all that is not simulated together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from grape_lc.bench.arms import TUNED, parse_arm
from grape_lc.bench.paper_options import spelled
from grape_lc.bench.paper_rows import METRICS
from grape_lc.bench.recorded import recorded_metrics
from grape_lc.bench.simulate import Figures, Simulation
from grape_lc.bench.simulation_options import SimulationSettings
from grape_lc.engine.simulator.recorded import read_runs
from grape_lc.errors import ConfigError


class Cost(NamedTuple):
    """The machine that the runs were recorded on.

    file: of ``grape profile --json``. kv_blocks: None: as the record says. block_size: tokens.
    """

    file: Path
    kv_blocks: int | None
    block_size: int


class Error(NamedTuple):
    """One figure of an arm, recorded and simulated: means over its runs.

    baseline: None, or the arm that both values are ratios against.
    """

    workload: str
    rate: float | None
    arm: str
    baseline: str | None
    metric: str
    recorded: float
    simulated: float
    runs: int

    @property
    def error(self) -> float:
        """Signed, relative to what was recorded."""
        return self.simulated / self.recorded - 1

    def to_record(self) -> dict[str, Any]:
        """For the JSON file."""
        return {**self._asdict(), "error": self.error}


class Errors(NamedTuple):
    """All errors, and why some arms have none, by arm."""

    found: tuple[Error, ...]
    left_out: Mapping[str, str]


_Place = tuple[str, float | None]
_Pairs = list[tuple[Figures, Figures]]


def simulator_errors(path: Path, cost: Cost) -> Errors:
    """Simulate every run of a file. Raises ConfigError for a file without runs or without KV."""
    runs = [run for run in read_runs(path) if run.get("programs")]  # others failed
    meta = _meta(path)
    measured: dict[_Place, dict[str, _Pairs]] = {}
    left_out: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        alone = Path(folder) / "run.json"  # a file of many runs is not read again for each of them
        for run in runs:
            alone.write_text(json.dumps({"runs": [run]}), encoding="utf-8")
            arm, recorded = recorded_metrics(alone, 0)
            try:
                simulated = _simulate(alone, run, arm, meta, cost)
            except ConfigError as error:
                left_out[arm] = str(error)
                continue
            where = str(run.get("workload", "")), run.get("rate")
            measured.setdefault(where, {}).setdefault(arm, []).append((dict(recorded), simulated))
    found = [error for where, arms in measured.items() for error in _errors(where, arms)]
    return Errors(tuple(found), left_out)


def _meta(path: Path) -> Mapping[str, Any]:
    """What a file tells about its runs; ``read_runs`` has checked that it is an object."""
    meta = json.loads(path.read_text(encoding="utf-8")).get("meta")
    return meta if isinstance(meta, dict) else {}


def _simulate(
    path: Path, run: Mapping[str, Any], arm: str, meta: Mapping[str, Any], cost: Cost
) -> Figures:
    if "speculative_config" in parse_arm(arm).engine:
        raise ConfigError("a record does not tell how much its answers copy")
    cell = _cell(run, meta)
    blocks = cost.kv_blocks or cell.get("kv_blocks") or meta.get("kv_blocks")
    if blocks is None:
        raise ConfigError(
            "the record does not tell how many KV blocks its engine had; name --kv-blocks"
        )
    known = (cell.get("arms") or meta.get("arms") or {}).get(arm) or {}
    budget = known.get("max_num_batched_tokens") if isinstance(known, dict) else None
    settings = SimulationSettings(
        record=path,
        cost=cost.file,
        kv_blocks=blocks,
        block_size=cost.block_size,
        device="cpu",
        arms=arm if budget is None else spelled(arm, budget),
        sweep=(),
        seeds=1,
        jobs=1,
    )
    ((figures,),) = Simulation(settings, lambda text: None).run().figures.values()
    return figures


def _cell(run: Mapping[str, Any], meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the file tells about the cell of a run; empty where it has no cells."""
    cells: Iterable[Any] = meta.get("cells") or ()
    for cell in cells:
        if (cell.get("workload"), cell.get("rate")) == (run.get("workload"), run.get("rate")):
            return dict(cell)
    return {}


def _errors(where: _Place, arms: Mapping[str, _Pairs]) -> Iterable[Error]:
    means: dict[tuple[str, str], tuple[float, float]] = {}
    for arm, pairs in arms.items():
        for metric in METRICS:
            both = [
                (a, b)
                for recorded, simulated in pairs
                if (a := metric.of(recorded)) is not None
                and (b := metric.of(simulated)) is not None
            ]
            if not both or fmean(a for a, _ in both) <= 0:
                continue
            found = fmean(a for a, _ in both), fmean(b for _, b in both)
            means[arm, metric.name] = found
            yield Error(*where, arm, None, metric.name, *found, len(both))
    for arm in arms:
        for metric in METRICS:
            ours, base = means.get((arm, metric.name)), means.get((TUNED, metric.name))
            if arm == TUNED or ours is None or base is None or min(*ours, *base) <= 0:
                continue
            real, simulated = ours[0] / base[0], ours[1] / base[1]
            if metric.lower:
                real, simulated = 1 / real, 1 / simulated
            yield Error(*where, arm, TUNED, metric.name, real, simulated, len(arms[arm]))
