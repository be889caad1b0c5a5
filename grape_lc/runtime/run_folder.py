"""A folder for the sockets of one engine's processes, which goes with the engine.

Nobody but the user may enter it. The host holds a lock on it, which the kernel takes back however
the host ends. So a folder that can be locked is nobody's, and the next start removes it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

_PREFIX = "grape."  # short: the path of a socket has hardly more than a hundred characters


class RunFolder:
    """An empty folder. ``lock`` is a descriptor that holds it until all its copies are closed."""

    def __init__(self) -> None:
        sweep()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self.lock = os.open(self.path, os.O_RDONLY)
            # The sweep of another process may come in between.
            if _take(self.lock) is not False and self.path.exists():
                return
            os.close(self.lock)

    def remove(self) -> None:
        """Delete it and what is in it; idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)


def sweep() -> None:
    """Remove the user's folders that no running engine holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            found = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # gone meanwhile, somebody else's, or no folder
            continue
        try:
            if os.fstat(found).st_uid == os.getuid() and _take(found):
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(found)


def _take(descriptor: int) -> bool | None:
    """Whether it is locked now; None on a file system that knows no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
