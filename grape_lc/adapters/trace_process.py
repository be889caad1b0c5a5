"""Whether this process is one that ``grape trace`` started to import and trace a graph in.

There a module that attaches its graph to the very file that the trace is to write must be
importable before that file is there.
"""

from __future__ import annotations

import threading

_tracing = threading.Event()


def begin_tracing() -> None:
    """From here on, until the process ends."""
    _tracing.set()


def is_tracing() -> bool:
    """Whether this process is there for a trace alone. May be asked from any thread."""
    return _tracing.is_set()
