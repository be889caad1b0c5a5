"""``grape profile``: measure, fit, tell, store."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from grape_lc import __version__
from grape_lc.bench.profiler import Profiler, profile_engine
from grape_lc.engine import profile_store
from grape_lc.engine.profile_cells import Step
from grape_lc.engine.profile_fit import fit
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost, StepLoad, chunk_weight

_LINE_EVERY_S = 10.0

Document = dict[str, Any]


def run(
    model: str | None,
    dtype: str | None,
    *,
    seconds: float,
    seed: int,
    tell: Callable[[str], None],
) -> tuple[Document, list[Step]]:
    """Start an engine, profile it for about ``seconds`` and end it.

    Returns the profile as plain values, and all steps that were measured. Raises ConfigError,
    or EngineError if the engine does not come up.
    """
    if not (isfinite(seconds) and seconds > 0):
        raise ConfigError(f"seconds={seconds}: a positive number")
    tell("starting the engine")
    with profile_engine(model, dtype) as engine:
        began = time.monotonic()
        profiler = Profiler(engine, seconds=seconds, seed=seed, tell=tell)
        steps = asyncio.run(profiler.measure())
        took, key = time.monotonic() - began, engine.info()["profile"]
    tell(f"fitting {len(steps)} steps")
    found = fit(steps, seed=seed)
    document = {
        **key,
        **found.to_mapping(),
        "measured_steps": len(steps),
        "rounds": profiler.rounds,
        "seconds": round(took, 1),
        "seed": seed,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "grape_lc": __version__,
    }
    return document, steps


def store(document: Document) -> tuple[Path | None, str | None]:
    """Keep a profile for the engine: its file, or None and why it was refused."""
    why = profile_store.refusal(document)
    if why is not None:
        return None, why
    key = {name: document[name] for name in ("machine", "model", "dtype", "settings")}
    rest = {name: value for name, value in document.items() if name not in key}
    return profile_store.save(key, rest), None


def show(document: Document, console: Console) -> None:
    """The errors, the coefficients, and what they mean for a few steps."""
    machine = document["machine"]
    console.print(
        f"{machine['processor']}, {machine['cores']} cores; {document['dtype']}; "
        f"{document['measured_steps']} steps of {document['cells']} kinds, "
        f"rounds: {document['rounds']}, "
        f"{document['seconds']:.0f} s",
        highlight=False,
        markup=False,
    )
    errors = Table(title="Error on steps that the fit had not seen", title_justify="left")
    for column in ("measurement", "count", "mean", "P95"):
        errors.add_column(column, justify="left" if column == "measurement" else "right")
    by_kind = document["heldout_by_kind"]
    rows = {
        "median of the repeats of a step": document["heldout"],
        **{f"  {kind}": error for kind, error in by_kind.items()},
        "single steps": document["heldout_single"],
        "medians, as measured": document["heldout_unpaced"],
    }
    for name, error in rows.items():
        errors.add_row(
            name, str(error["steps"]), f"{error['mape']:.1%}", f"{error['p95_error']:.1%}"
        )
    console.print(errors)
    console.print(
        "All but the last line at the pace that the machine had: one step in twenty was measured "
        f"while it was at least {document['slowest_pace']:.2f} times as slow as usual.",
        highlight=False,
        soft_wrap=True,
    )
    cost = LinearCost.from_mapping(document["coefficients"])
    console.print(formula(cost), highlight=False, markup=False, soft_wrap=True)
    load = StepLoad.of([(1, 512)] * 4)
    console.print(
        f"4 decodes behind 512 tokens: {1e3 * cost.seconds(load):.1f} ms; a chunk of 64 beside "
        f"them: {1e3 * cost.seconds(load.plus(64, 512)):.1f} ms; weight of a partial edge there: "
        f"{chunk_weight(cost, load)} tokens",
        highlight=False,
        soft_wrap=True,
    )


def formula(cost: LinearCost) -> str:
    """F in milliseconds, as a sum; parts that cost nothing are left out."""
    names = (
        (cost.per_row, "rows"),
        (cost.per_token, "tokens"),
        *((slope, f"tokens beyond {knot}") for knot, slope in cost.hinges),
        (cost.per_kv, "KV tokens"),
        (cost.per_pair, "pairs"),
    )
    parts = [
        f" {'-' if value < 0 else '+'} {abs(1e3 * value):.3g} x {name}"
        for value, name in names
        if value
    ]
    return f"T [ms] = {1e3 * cost.base:.2f}{''.join(parts)}"


def write(document: Document, steps: list[Step], path: Path) -> None:
    """The profile and every measured step as JSON. Raises ConfigError if it cannot be written."""
    content = {**document, "steps": [[*step.load, step.seconds] for step in steps]}
    try:
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


class ProgressLine:
    """One line that is rewritten on a terminal; elsewhere a line now and then."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._status = console.status("") if console.is_terminal else None
        self._printed = float("-inf")

    def __enter__(self) -> Callable[[str], None]:
        if self._status is not None:
            self._status.start()
        return self.tell

    def __exit__(self, *exc_info: object) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, text: str) -> None:
        """Show where things stand."""
        if self._status is not None:
            self._status.update(text)
        elif self._clock() - self._printed >= _LINE_EVERY_S:
            self._printed = self._clock()
            self._console.print(text, highlight=False)
