"""No process of an engine outlives the one that it works for, however that one ends.

The host lives for its user: the socket between them tells it. The engine core and the workers live
for the process that started them, and vLLM tells most of them nothing: a core whose front end was
killed waits for it for ever.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable

_PARENT = "GRAPE_LC_PARENT"
_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0


def keep_no_orphans() -> None:
    """Have every process that this one forks end with it, and tell those it spawns whose they are.

    What is spawned has to call ``end_with_parent`` itself.
    """
    os.environ[_PARENT] = str(os.getpid())
    os.register_at_fork(after_in_child=end_with_parent)


def end_with_parent() -> None:
    """Be killed when the parent process ends, in whatever way; at once if it has already.

    On Linux the kernel does it, when the thread ends that started this process: vLLM starts its
    processes from main threads. Elsewhere a thread looks once a second.
    """
    parent = int(os.environ.get(_PARENT, os.getppid()))
    os.environ[_PARENT] = str(os.getpid())  # what this process starts is its own
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(
            target=_look_for, args=(parent,), name="grape-lifeline", daemon=True
        ).start()
    if os.getppid() != parent:  # it ended before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def _look_for(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os.kill(os.getpid(), signal.SIGKILL)


def when_gone(fd: int, then: Callable[[], None]) -> None:
    """Call ``then`` on a thread once the other end of socket ``fd`` sends no more, or is closed."""

    def watch() -> None:
        news = select.poll()
        # Its end is always told, where there is no mask for it.
        news.register(fd, getattr(select, "POLLRDHUP", 0))
        news.poll()
        then()

    threading.Thread(target=watch, name="grape-lifeline", daemon=True).start()
