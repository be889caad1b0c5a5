"""The end of a process group: all of it, with the shared memory that it held."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

_CLEAN_UP_S = 2.0
_LOOK_S = 0.01


def end_group(group: int) -> None:
    """Kill what is left of a group whose leader has ended; waits until it is gone.

    Its members end with the leader (``lifelines``). Those that do not, such as Python's resource
    tracker, remove the semaphores and the shared memory that the others left, and get 2 s for it.
    """
    end = time.monotonic() + _CLEAN_UP_S
    while lives(group) and time.monotonic() < end:
        time.sleep(_LOOK_S)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def lives(group: int) -> bool:
    """Whether a process of the group runs. One that ended and was not collected yet does not."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    processes = Path("/proc")
    if not (processes / "self" / "stat").exists():
        return True
    return any(_belongs(path, group) for path in processes.iterdir() if path.name.isdigit())


def _belongs(process: Path, group: int) -> bool:
    try:
        # The name before these fields may hold anything, brackets too.
        state, _, its_group = (process / "stat").read_text().rpartition(")")[2].split()[:3]
    except OSError:  # it ended meanwhile
        return False
    return int(its_group) == group and state != "Z"
