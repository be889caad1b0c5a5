"""Runs a program that a model wrote, confined: limits, no network, a scratch folder.

The program runs in a process and session of its own, with an empty environment. Limits of time,
memory and output are the kernel's; so is the network namespace with nothing in it, where the
system allows one. That nothing is written, no process is started and only Python's own library is
read, an audit hook sees to: it stops programs that are wrong, not one that is out to escape.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_CHILD = Path(__file__).with_name("confined_child.py")


class Bounds(NamedTuple):
    """What a program may use up.

    wall_s: seconds until it is ended; cpu_s: seconds of CPU; memory: bytes of address space;
    output: bytes that it may print.
    """

    wall_s: float = 10.0
    cpu_s: int = 5
    memory: int = 1 << 30
    output: int = 1 << 20


class Outcome(NamedTuple):
    """How a program ended, and what it printed.

    status: its exit status, negative for a signal; None when it was ended after ``wall_s``.
    """

    status: int | None
    output: str
    errors: str

    @property
    def trouble(self) -> str:
        """Why it did not end by itself and well; empty if it did."""
        if self.status is None:
            return "took too long"
        if self.status < 0:
            return f"ended by {signal.Signals(-self.status).name}"
        if self.status > 0:
            return (self.errors.strip().splitlines() or [f"exit status {self.status}"])[-1]
        return ""


def run_confined(
    source: str,
    given: str = "",
    *,
    case: Mapping[str, Any] | None = None,
    bounds: Bounds = Bounds(),  # noqa: B008 - a NamedTuple does not change
) -> Outcome:
    """Run a Python program on ``given`` as standard input, and wait for it.

    case: instead of running it as a script, call a function of it: ``function`` (its name),
        ``arguments`` (by name, or None) and ``code`` (Python that defines ``check(candidate)``,
        or None). Printed is then one JSON object: ``result``, ``raised`` or ``missing``.

    Nothing of it is left behind: the folder is removed, and its processes are ended.
    """
    with tempfile.TemporaryDirectory(prefix="grape-program-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        (scratch / "program.py").write_text(source, encoding="utf-8", errors="replace")
        if case is not None:
            (scratch / "case.json").write_text(json.dumps(case), encoding="utf-8")
        (scratch / "input").write_text(given, encoding="utf-8", errors="replace")
        with (
            (scratch / "input").open("rb") as stdin,
            tempfile.TemporaryFile() as stdout,
            tempfile.TemporaryFile() as stderr,
        ):
            limits = (bounds.cpu_s, bounds.memory, bounds.output)
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-X", "utf8", str(_CHILD), *map(str, limits)],
                cwd=scratch,
                env={},
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                status: int | None = child.wait(bounds.wall_s)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _end(child)
            return Outcome(status, _text(stdout, bounds), _text(stderr, bounds))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End the child, if it still runs, with all that it may have started."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _text(file: Any, bounds: Bounds) -> str:
    file.seek(0)
    text: str = file.read(bounds.output).decode("utf-8", errors="replace")
    return text
