"""How a process ended, in words."""

from __future__ import annotations

import signal


def how_it_ended(what: str, pid: int | None, code: int | None) -> str:
    """For an error message, as ``the engine core (process 7) was killed by SIGKILL``.

    code: as ``subprocess`` and ``multiprocessing`` give it, a signal's number being negative;
    None where it is not known.
    """
    who = f"{what} (process {pid})" if pid is not None else what
    if code is None:
        return f"{who} does not answer any more"
    if code >= 0:
        return f"{who} ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    memory = ", as the kernel does where memory runs out" if name == "SIGKILL" else ""
    return f"{who} was killed by {name}{memory}"
