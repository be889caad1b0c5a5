"""Files kept from C code too, by the kernel: Linux's Landlock, where it is there.

C code raises no audit events. Landlock refuses it what is not allowed, for this process and all
that it starts, until they end: writing, making and removing files anywhere but in the folders that
are given. Numbers are those of ``linux/landlock.h`` and of the system call table that all
architectures share.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38  # of prctl

_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
# Removing folders and files, making devices, folders, files, sockets, pipes and links.
_CHANGE_FOLDERS = sum(1 << bit for bit in range(4, 13))
_MOVE = 1 << 13
# With the first version nothing can be moved from folder to folder, not even within the own one.
_FIRST_VERSION = 2
_VERSION_OF_TRUNCATE = 3

# Devices are written to for what they are, and OpenMP and semaphores live in shared memory.
_DEVICES, _SHARED_MEMORY = "/dev", "/dev/shm"  # noqa: S108 - whatever is there


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def version() -> int:
    """The version of Landlock that this kernel speaks; 0: none."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def keep_writing_in(folders: Iterable[Path]) -> bool:
    """Let this thread and all that it starts write only in ``folders``, devices and shared memory.

    Returns whether the kernel does so. It cannot be undone.
    """
    speaks = version()
    if speaks < _FIRST_VERSION:
        return False
    change = _WRITE_FILE | _CHANGE_FOLDERS | _MOVE
    if speaks >= _VERSION_OF_TRUNCATE:
        change |= _TRUNCATE
    libc = _libc()
    attributes = _Ruleset(change)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    if ruleset < 0:
        return False
    try:
        places = {str(folder): change for folder in folders}
        places = {_DEVICES: change & (_WRITE_FILE | _TRUNCATE), _SHARED_MEMORY: change, **places}
        return (
            all(_allow(ruleset, path, access) for path, access in places.items())
            and libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
            and libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
        )
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, access: int) -> bool:
    """Add a rule for what lies beneath ``path``; if that is missing there is nothing to allow."""
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        rule = _Beneath(access, folder)
        done = _libc().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
        return int(done) == 0
    finally:
        os.close(folder)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
