"""Cells: what was measured of one workload at one rate, taken out of the files.

Cells of different files are never pooled: they were measured at different times, and often on
different machines. Cells that look alike are told apart by the number of their file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple

from grape_lc.bench.html_input import Document, Pair, Place, Run
from grape_lc.bench.metrics import RunRecord
from grape_lc.bench.outcomes import BENCH_FIGURES, shown
from grape_lc.bench.recorded import run_of
from grape_lc.bench.report import Figure
from grape_lc.errors import ConfigError

OURS = "grape"

_PATHS = {figure.path: figure for figure in BENCH_FIGURES}


class Cell(NamedTuple):
    """One workload at one rate, of one file.

    title: unique in a report. rate: programs/s; None in a closed loop. load: the rate as a share of
    what the engine can carry; None where that is not known. metrics: of each variant.
    """

    title: str
    workload: str
    rate: float | None
    load: float | None
    metrics: Mapping[str, Mapping[str, Any]]
    runs: tuple[Run, ...]
    pairs: tuple[Pair, ...]

    @property
    def variants(self) -> list[str]:
        """Names of all variants, in the order of the file; those too that have no figures."""
        return list(dict.fromkeys([*self.metrics, *(run.variant for run in self.runs)]))

    @property
    def failures(self) -> list[Run]:
        """Runs that failed."""
        return [run for run in self.runs if run.error is not None]


class FigureRow(NamedTuple):
    """A line of a table of figures; a text for each variant."""

    title: str
    path: tuple[str, ...]
    cells: tuple[str, ...]


def cells_of(documents: Sequence[Document]) -> list[Cell]:
    """The cells of all documents, in their order."""
    found = [(n, place, d) for n, d in enumerate(documents, 1) for place in _places(d)]
    titles = [_title(place) for _, place, _ in found]
    return [
        Cell(
            title if titles.count(title) == 1 else f"{title}, file {source}",
            *place,
            {each.variant: each.metrics for each in document.metrics if each.place == place},
            tuple(run for run in document.runs if run.place == place),
            tuple(pair for pair in document.pairs if pair.place == place),
        )
        for title, (source, place, document) in zip(titles, found, strict=True)
    ]


def _places(document: Document) -> Iterator[Place]:
    entries = [*document.metrics, *document.runs, *document.pairs]
    return iter(dict.fromkeys(entry.place for entry in entries))


def _title(place: Place) -> str:
    workload, rate, load = place
    if rate is None:
        return f"{workload}, closed loop"
    if load is None:
        return f"{workload}, {rate:.3g} programs/s"
    return f"{workload}, {load:.2g} of saturation ({rate:.3g} programs/s)"


def without_mechanism(variant: str) -> bool:
    """Whether a variant is grape without one mechanism, or several."""
    return variant.startswith(f"{OURS}-")


def whole_variants(cell: Cell) -> list[str]:
    """Variants for a plot of lines: where grape is there, none of it without a mechanism."""
    if OURS not in cell.variants:
        return cell.variants
    return [name for name in cell.variants if not without_mechanism(name)]


def is_ours(variant: str) -> bool:
    """Whether a variant is grape with all its mechanisms, drafting or other settings aside."""
    return variant.startswith(OURS) and not without_mechanism(variant)


def records(cell: Cell) -> dict[str, dict[int, RunRecord]]:
    """The raw runs of a cell, by variant and repeat; failed ones are left out.

    Raises ConfigError for a run whose records have another form.
    """
    found: dict[str, dict[int, RunRecord]] = {name: {} for name in cell.variants}
    for run in cell.runs:
        if run.programs is not None:
            try:
                record = run_of({"arm": run.variant, "programs": run.programs})
            except (KeyError, TypeError, ValueError) as error:
                raise ConfigError(
                    f"{cell.title}: the records of {run.variant} in repeat {run.repeat} have "
                    f"another form: {error!r}"
                ) from error
            found[run.variant][run.repeat] = record
    return {name: runs for name, runs in found.items() if runs}


def figure_at(metrics: Mapping[str, Any] | None, path: Sequence[str]) -> float | None:
    """A figure by its path of names; None where there is none."""
    value: Any = metrics
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return _number_or_none(value)


def figure_rows(cell: Cell) -> list[FigureRow]:
    """Every figure that any variant has: the known ones first, then others by their path."""
    paths = [figure.path for figure in BENCH_FIGURES]
    for metrics in cell.metrics.values():
        paths += [path for path in _leaves(metrics, ()) if path not in paths]
    rows = []
    for path in paths:
        values = [figure_at(cell.metrics.get(name), path) for name in cell.variants]
        if any(value is not None for value in values):
            texts = tuple(figure_text(path, value) for value in values)
            rows.append(FigureRow(figure_title(path), path, texts))
    return rows


def figure_title(path: Sequence[str]) -> str:
    """The title of a figure; of one that no table knows, its path in words."""
    figure = _known(path)
    return " ".join(path).replace("_", " ") if figure is None else figure.title


def figure_text(path: Sequence[str], value: float | None) -> str:
    """A figure as a text, with the digits that it is known to need, else four."""
    figure = _known(path)
    if figure is not None:
        return shown(figure, value)
    return "-" if value is None else f"{value:.4g}"


def _known(path: Sequence[str]) -> Figure | None:
    return _PATHS.get(tuple(path))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, (*path, str(name)))
    elif _number_or_none(value) is not None:
        yield path


def _number_or_none(value: Any) -> float | None:
    # Python counts truth values among the numbers; no table should.
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None
