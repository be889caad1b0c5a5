"""What the calls of a graph's last runs found prefilled: numbers, and no texts.

A call ends with the usage that its engine reports. It is noted with the run that it belongs to;
when the run is over, the run goes into a ring of the last ``MOST_RUNS``. With a file, the ring is
also there for other processes, such as ``grape explain``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.config import graph_file, graphs_dir
from grape_lc.engine.base import Usage
from grape_lc.files import write_whole
from grape_lc.strict_json import read_json_file

logger = logging.getLogger(__name__)

VERSION = 1
"""Of the file's form."""

MOST_RUNS = 20
MOST_CALLS = 200
"""Calls of a run that are noted: a loop without end must not fill the memory."""

_PAUSE_S = 1.0  # from the end of a run to its writing

PROGRAM = "open"
"""``CallSaving.program`` of a call that was part of an open program."""

RESUMED = "resumed"
"""``CallSaving.program`` of a call in a run of which the beginning is not known."""


class CallSaving(NamedTuple):
    """What one call took.

    task: its name in a flow. Then tokens of its prompt, of its answer, of the prompt those that
    were there already, and of these those that were prefilled ahead; see ``engine.base.Usage``.
    outcome: of the take-over. program: ``PROGRAM``, or why there was none.
    """

    task: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    ahead_tokens: int
    outcome: str
    program: str


@dataclass(slots=True)
class RunSavings:
    """The calls of one run, in the order in which they ended. Usable from any thread.

    id: unique. at: when it began, in seconds since 1970.
    """

    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    at: float = field(default_factory=time.time)
    calls: list[CallSaving] = field(default_factory=list)

    def note(self, task: str, program: str, usage: Usage) -> None:
        """A call has ended."""
        if len(self.calls) < MOST_CALLS:
            self.calls.append(
                CallSaving(
                    task,
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.cached_tokens,
                    usage.ahead_tokens,
                    usage.ahead_outcome,
                    program,
                )
            )


class Savings:
    """The last runs of one graph, the latest last. Usable from any thread."""

    def __init__(self) -> None:
        self._runs: deque[RunSavings] = deque(maxlen=MOST_RUNS)
        self._lock = threading.Lock()
        self._file: _File | None = None

    def keep_in(self, path: Callable[[], Path], *, pause_s: float = _PAUSE_S) -> None:
        """Write the runs to this file too, ``pause_s`` seconds after one has ended, and at the end.

        path: asked once, when the first run has ended. What cannot be written is logged, once. It
        is all done on a thread of its own, which nobody waits for.
        """
        self._file = _File(path, pause_s)
        # At the end of the process, or of this object if that comes before.
        weakref.finalize(self, self._file.write, self._runs)

    def add(self, run: RunSavings) -> None:
        """A run is over. One without calls is nobody's news."""
        if not run.calls:
            return
        with self._lock:
            self._runs.append(run)
            if self._file is not None:
                self._file.write_soon(self._runs)

    def flush(self) -> None:
        """Write now what was not written yet."""
        if self._file is not None:
            self._file.write(self._runs)

    @property
    def runs(self) -> tuple[RunSavings, ...]:
        """Those of this process, and before them those of others that the file has."""
        with self._lock:
            own = tuple(self._runs)
            file = self._file
        return own if file is None else file.with_others(own)


class _File:
    """Where runs are kept for other processes."""

    def __init__(self, path: Callable[[], Path], pause_s: float) -> None:
        self._find = path
        self._path: Path | None = None
        self._pause_s = pause_s
        self._timer: threading.Timer | None = None
        self._failed = False
        self._lock = threading.Lock()
        # Held while files are read and written: who only sets the timer never waits for that.
        self._writing = threading.Lock()

    def write_soon(self, runs: Iterable[RunSavings]) -> None:
        """Runs in quick succession are written together."""
        with self._lock:
            # A process that was forked meanwhile has the timer, but not its thread.
            waits = self._timer is not None and self._timer.is_alive()
            if not waits and not self._failed:
                self._timer = threading.Timer(self._pause_s, self.write, [runs])
                self._timer.daemon = True
                # While the interpreter ends there are no new threads; the end itself writes.
                with contextlib.suppress(RuntimeError):
                    self._timer.start()

    def write(self, runs: Iterable[RunSavings]) -> None:
        """Write what was not written yet; other processes' runs stay."""
        with self._writing:
            with self._lock:
                if self._timer is None or self._failed:
                    return
                self._timer.cancel()
                self._timer = None
            try:
                path = self._where()
                with _alone(path.parent):
                    save(path, merged(load(path), tuple(runs)))
            except Exception as error:  # noqa: BLE001 - a run must not fail for its statistics
                self._failed = True
                logger.warning("what runs save is not kept for other processes: %r", error)

    def with_others(self, own: Sequence[RunSavings]) -> tuple[RunSavings, ...]:
        with self._writing:
            if self._failed:
                return tuple(own)
            try:
                return merged(load(self._where()), own)
            except Exception as error:  # noqa: BLE001 - as above
                self._failed = True
                logger.warning("what runs of other processes saved is not known: %r", error)
                return tuple(own)

    def _where(self) -> Path:
        if self._path is None:
            self._path = self._find()
        return self._path


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Other processes that add to a file here wait, so that none takes out what another put in."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def savings_path(graph: str, source_hash: str, folder: Path | None = None) -> Path:
    """Where the runs of a graph are kept; a change of its code makes it another file.

    folder: by default ``graphs_dir()``. Raises ConfigError where there is none.
    """
    return graph_file(graph, source_hash, ".savings.json", folder)


def runs_of(source_hash: str) -> tuple[RunSavings, ...]:
    """The last runs of graphs with this code in any process, the latest last."""
    files = sorted(graphs_dir().glob(f"*-{source_hash[:12]}.savings.json"))
    return merged((run for file in files for run in load(file)), ())


def merged(others: Iterable[RunSavings], own: Sequence[RunSavings]) -> tuple[RunSavings, ...]:
    """The last runs of both by the time at which they began, each once; ties by id."""
    runs = {run.id: run for run in (*others, *own)}
    return tuple(sorted(runs.values(), key=lambda run: (run.at, run.id))[-MOST_RUNS:])


def save(path: Path, runs: Iterable[RunSavings]) -> None:
    """Write runs to a file; readers see the old one or the new one. Raises OSError."""
    content = {
        "version": VERSION,
        "runs": [{"id": run.id, "at": run.at, "calls": list(run.calls)} for run in runs],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(content))


def load(path: Path) -> tuple[RunSavings, ...]:
    """The runs in a file; none, with a line in the log, if it cannot be used."""
    try:
        return tuple(_read(read_json_file(path)))
    except FileNotFoundError:
        return ()
    except (OSError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        logger.info("%s is not used: %r", path, error)
        return ()


def _read(content: Any) -> Iterable[RunSavings]:
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r} of the file, this reads {VERSION}")
    for run in content["runs"]:
        calls = [_call(item) for item in run["calls"][:MOST_CALLS]]
        yield RunSavings(str(run["id"]), float(run["at"]), calls)


def _call(item: Any) -> CallSaving:
    task, *numbers, outcome, program = item
    prompt, completion, cached, ahead = (int(number) for number in numbers)
    return CallSaving(str(task), prompt, completion, cached, ahead, str(outcome), str(program))
