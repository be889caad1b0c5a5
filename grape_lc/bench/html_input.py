"""What a report is made of: the JSON files of a comparison, checked and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from grape_lc.errors import ConfigError
from grape_lc.limits import RESULT_BYTES
from grape_lc.strict_json import StrictJSONError, read_json_file

_MOST_COMPLAINTS = 4


class _Entry(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)


class _InCell(_Entry):
    """workload, rate (programs/s; None in a closed loop), load (share of saturation, if known)."""

    workload: str
    rate: float | None = None
    load: float | None = None

    @property
    def place(self) -> Place:
        """What a cell is known by within its file."""
        return self.workload, self.rate, self.load


Place = tuple[str, float | None, float | None]
"""Workload, rate and load."""


class Figures(_InCell):
    """The figures of a variant in a cell, all its runs pooled."""

    variant: str
    metrics: dict[str, Any]


class Run(_InCell):
    """One run: its figures and raw programs, or why it failed."""

    variant: str
    repeat: int
    metrics: dict[str, Any] | None = None
    error: str | None = None
    programs: list[dict[str, Any]] | None = None


class Pair(_InCell):
    """How much better a variant is than a baseline in one figure; below 1 it is worse.

    over: ``repeats`` or ``programs``. ci95: None where a single pair gives no interval.
    """

    metric: str
    baseline: str
    variant: str
    ratio: float
    ci95: tuple[float, float] | None = None
    n: int
    over: str = "repeats"


class Regime(_Entry):
    """A point of the regime map. Lengths in tokens; rho: load, 1 is what tuned vLLM can carry."""

    depth: float
    output: float
    static: float
    rho: float
    metric: str
    ratio: float
    ci95: tuple[float, float] | None = None


class Document(_Entry):
    """A file of ``grape bench``, ``grape regimes`` or ``grape paper``; each has parts of it.

    regimes: points at which the answer before stands at the end of a prompt; head: those at which
    it stands at its head. paper: rows of the paper's table; marks: what was aimed at; errors: how
    far the simulator is from a real engine.
    """

    meta: dict[str, Any] = {}
    metrics: list[Figures] = []
    runs: list[Run] = []
    pairs: list[Pair] = []
    equal: dict[str, Any] = {}
    regimes: list[Regime] = []
    head: list[Regime] = []
    paper: list[dict[str, Any]] = []
    marks: list[dict[str, Any]] = []
    errors: dict[str, Any] | None = None


def parse_document(data: Any, source: str) -> Document:
    """Check plain data. source: names it in errors. Raises ConfigError."""
    if not isinstance(data, Mapping) or not data.keys() & Document.model_fields.keys():
        raise ConfigError(
            f"{source} is no file of results: it has none of "
            f"{', '.join(Document.model_fields)}; write one with grape bench --json FILE"
        )
    try:
        return Document.model_validate(data)
    except ValidationError as error:
        found = error.errors()
        told = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in found[:_MOST_COMPLAINTS]]
        more = f" (and {len(found) - len(told)} more)" if len(found) > len(told) else ""
        raise ConfigError(
            f"{source} has not the form of results: {'; '.join(told)}{more}"
        ) from None


def read_documents(paths: Sequence[Path]) -> list[Document]:
    """Read files of results. Raises ConfigError for what cannot be read, or is none."""
    return [parse_document(_json_of(path), str(path)) for path in paths]


def _json_of(path: Path) -> Any:
    try:
        return read_json_file(path, size=RESULT_BYTES, values=False)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except StrictJSONError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error
