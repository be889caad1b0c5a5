"""What a comparison has measured so far, in a file from which an interrupted one goes on.

JSON lines, each written when it is known::

    {"kind": "head", "format": 3, "device": ..., "versions": ..., "settings": ...}
    {"kind": "probe", "workload": "code", "kv_blocks": null, "tokens_per_s": ..., ...}
    {"kind": "run", "part": "code at 0.85x", "arm": ..., "repeat": 1, ..., "programs": [...]}

Runs that failed are not in it: they are tried again. A last line that an interrupt cut short is
taken off. The owner of the file is one process; two must not write to it at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.bench.arms import Tuning
from grape_lc.bench.probe import Probe
from grape_lc.bench.recorded import run_of
from grape_lc.bench.report import raw_run
from grape_lc.bench.server import ArmRun
from grape_lc.errors import ConfigError
from grape_lc.limits import RESULT_BYTES
from grape_lc.strict_json import read_json

FORMAT = 3
UNTUNED = Tuning()

FREE = ("workloads", "rates", "repeats", "limit_s", "base", "slo")
"""Settings that may change when a comparison goes on: what was measured stays comparable."""

_Key = tuple[str, str, int]


class RunLog:
    """The records of one comparison; without a file nothing is kept.

    head: what must be the same for records to belong together, as plain data.

    Raises ConfigError when the file cannot be read, is no such file, or has another head.
    """

    def __init__(self, path: Path | None, head: Mapping[str, Any]) -> None:
        self._path = path
        self._runs: dict[_Key, _Kept] = {}
        self._probes: dict[tuple[str, int | None], Probe] = {}
        if path is None:
            return
        data = _content(path)
        whole = data[: data.rfind(b"\n") + 1]
        ours = json.loads(json.dumps({"kind": "head", "format": FORMAT, **head}))
        if not data:
            self._append(ours)
            return
        try:
            first, *rest = whole.decode("utf-8").splitlines() or [""]
            _compare(path, read_json(first, size=RESULT_BYTES, values=False), ours)
            for line in rest:
                self._take(read_json(line, size=RESULT_BYTES, values=False))
        except ConfigError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ConfigError(f"{path} holds no records of grape bench: {error!r:.300}") from error
        if len(whole) < len(data):  # only now is it known that the file is ours to change
            _cut(path, len(whole))

    def part(self, name: str) -> RunLogPart:
        """The runs of a part of a comparison, such as the sweep of a cell."""
        return RunLogPart(self, name)

    def probe(self, workload: str, kv_blocks: int | None) -> Probe | None:
        """What a probe of a workload with so many blocks showed."""
        return self._probes.get((workload, kv_blocks))

    def add_probe(self, workload: str, kv_blocks: int | None, probe: Probe) -> None:
        """Keep what a probe showed. Raises ConfigError if the file cannot be written."""
        self._probes[workload, kv_blocks] = probe
        place = {"workload": workload, "kv_blocks": kv_blocks}
        self._append({"kind": "probe", **place, **probe._asdict()})

    def run(self, key: _Key) -> _Kept | None:
        """A run by part, arm and repeat."""
        return self._runs.get(key)

    def add_run(
        self, part: str, run: ArmRun, info: Mapping[str, Any], tuning: Tuning = UNTUNED
    ) -> None:
        """Keep a run that succeeded. Raises ConfigError if the file cannot be written."""
        if run.record is None:
            return
        self._append(
            {
                "kind": "run",
                "part": part,
                "repeat": run.repeat,
                "position": run.position,
                "offered": run.offered,
                "counters": dict(run.counters),
                "engine": dict(info),
                **tuning._asdict(),
                **raw_run(run.record),
            }
        )

    def _take(self, line: Mapping[str, Any]) -> None:
        if line["kind"] == "probe":
            largest = tuple(map(int, line["largest"]))
            fields = {name: line[name] for name in Probe._fields}
            place = line["workload"], line["kv_blocks"]
            self._probes[place] = Probe(**{**fields, "largest": largest})
        elif line["kind"] == "run":
            run = ArmRun(
                line["arm"],
                line["repeat"],
                line["position"],
                run_of(line),
                dict(line["counters"]),
                offered=line["offered"],
            )
            self._runs[line["part"], run.arm, run.repeat] = _Kept(
                run, dict(line["engine"]), Tuning(line["budget"], line["order"])
            )
        else:
            raise ValueError(f"unknown kind {line['kind']!r}")

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot write {self._path}: {error.strerror}") from error


class RunLogPart:
    """The runs of one part of a comparison."""

    def __init__(self, log: RunLog, name: str) -> None:
        self._log = log
        self._name = name

    def get(
        self, arm: str, repeat: int, tuning: Tuning = UNTUNED
    ) -> tuple[ArmRun, dict[str, Any]] | None:
        """A run that was measured before, and what its engine told about itself.

        tuning: what it must have had. Where a sweep goes on after an interrupt it may choose
        another one than before.
        """
        kept = self._log.run((self._name, arm, repeat))
        return (kept.run, kept.info) if kept is not None and kept.tuning == tuning else None

    def has(self, arm: str, repeat: int) -> bool:
        """Whether there is such a run, however it was tuned."""
        return self._log.run((self._name, arm, repeat)) is not None

    def add(self, run: ArmRun, info: Mapping[str, Any], tuning: Tuning = UNTUNED) -> None:
        """As ``RunLog.add_run``."""
        self._log.add_run(self._name, run, info, tuning)


class _Kept(NamedTuple):
    """A run, what its engine told about itself, and how its arm was tuned."""

    run: ArmRun
    info: dict[str, Any]
    tuning: Tuning


def head_of(
    settings: Mapping[str, Any], device: str, versions: Mapping[str, str]
) -> dict[str, Any]:
    """What makes records comparable: the settings but the free ones, device and versions."""
    fixed = {name: value for name, value in settings.items() if name not in FREE}
    return {"device": device, "versions": dict(versions), "settings": fixed}


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error


def _cut(path: Path, length: int) -> None:
    try:
        os.truncate(path, length)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error


def _compare(path: Path, found: Any, ours: Mapping[str, Any]) -> None:
    if not isinstance(found, dict) or found.get("kind") != "head":
        raise ConfigError(f"{path} holds no records of grape bench: it has no head")
    theirs, mine = _flat(found), _flat(ours)
    differing = [
        f"{name:.60}: {theirs.get(name)!r:.200} there, {mine.get(name)!r:.200} now"
        for name in sorted(theirs.keys() | mine.keys())
        if theirs.get(name) != mine.get(name)
    ]
    if differing:
        raise ConfigError(
            f"{path} is of another comparison ({'; '.join(differing)}); take another file"
        )


def _flat(head: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in head.items():
        flat |= value if isinstance(value, dict) else {name: value}
    return flat
