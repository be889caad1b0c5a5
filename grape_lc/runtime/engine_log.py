"""What the processes of an engine wrote, and what it says about the end of one."""

from __future__ import annotations

import re
from pathlib import Path

_TAIL_LINES = 25
_READ_BYTES = 1 << 18
# As vLLM logs the last line of a traceback, where the engine core or a worker runs.
_RAISED = re.compile(
    r"^\((?:EngineCore|Worker)[^)]*\) ERROR [^\]]*\] ((?:\w+\.)*\w*(?:Error|Exception)\b.*)$"
)
_WORKER = re.compile(r"^\(EngineCore[^)]*\) ERROR [^\]]*\] (Worker proc .* died unexpectedly.*)$")


def log_tail(log: Path) -> str:
    """The end of a log, with its path; before that the last error of a process with the model."""
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _READ_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return f"(no log at {log})"
    raised = [found[1] for line in lines if (found := _RAISED.match(line))]
    # What is raised in the core when a worker is killed says nothing about it.
    raised = [found[1] for line in lines if (found := _WORKER.match(line))] or raised
    error = [f"the last error in the engine's log: {raised[-1]}"] if raised else []
    return "\n".join([*error, f"the last lines of the engine's log, {log}:", *lines[-_TAIL_LINES:]])
