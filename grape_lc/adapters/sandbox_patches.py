"""Functions of Python that are others in the sandbox, since an audit hook alone does too little.

- Some change files or start something without an audit event: they raise one of ours first.
- Instead of files and SQLite databases that may not be written, copies in the scratch folder are,
  and what a program seldom asks back about, such as making a folder, is left out. The hook has
  reported it, and the program goes on.
- What a coroutine hands to a thread is done in its node's name, and waiting is cut short.
"""

from __future__ import annotations

import asyncio
import builtins
import contextvars
import functools
import importlib
import inspect
import io
import os
import posix
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grape_lc.adapters.sandbox_frames import actor, called_by_user
from grape_lc.adapters.sandbox_guard import Denied, DeniedAtImportError, running_at
from grape_lc.adapters.sandbox_policy import database_file

_LONGEST_WAIT_S = 0.01
_PLACE_OF_FACTORY = 5  # of ``sqlite3.connect``, behind the database

# Functions that change files or start programs without an audit event, and ours for them.
_UNAUDITED = (
    ("os", "mkfifo", "grape.mkfifo"),
    ("os", "mknod", "grape.mknod"),
    ("_dbm", "open", "grape.dbm"),
    ("_gdbm", "open", "grape.dbm"),
    ("_posixshmem", "shm_open", "grape.shm_open"),
    ("_posixsubprocess", "fork_exec", "grape.fork_exec"),
    ("os", "setpriority", "grape.setpriority"),
    ("os", "setpgid", "grape.setpgid"),
    ("os", "sched_setaffinity", "grape.sched_setaffinity"),
    ("os", "sched_setparam", "grape.sched_setparam"),
    ("os", "sched_setscheduler", "grape.sched_setscheduler"),
    ("signal", "pidfd_send_signal", "grape.pidfd_send_signal"),
    # Python's own event for threads came later than 3.11.
    ("_thread", "start_new_thread", "grape.start_thread"),
    ("_thread", "start_joinable_thread", "grape.start_thread"),
    ("threading", "_start_new_thread", "grape.start_thread"),
    ("threading", "_start_joinable_thread", "grape.start_thread"),
)

# What a program seldom asks back about: left out, and the program goes on.
_PRETENDED = (
    "chmod",
    "chown",
    "link",
    "mkdir",
    "putenv",
    "remove",
    "rename",
    "replace",
    "rmdir",
    "symlink",
    "truncate",
    "unlink",
    "unsetenv",
    "utime",
)

_READING = frozenset({"r", "rb", "rt"})


def replace_functions(scratch: Path, folder: str) -> None:
    """From here on, until the process ends; the hook of ``sandbox_guard`` is there already.

    scratch: what may be written. folder: the user's, from which files are named.
    """
    for module, name, event in _UNAUDITED:
        try:
            owner: Any = importlib.import_module(module)
            original = getattr(owner, name)
        except (ImportError, AttributeError):
            continue
        _replace(owner, name, _audited(original, event))
        if owner is os and hasattr(posix, name):
            _replace(posix, name, getattr(os, name))
    for owner in (os, posix):
        _replace(owner, "open", _audited_open(owner.open))
    _audit_semaphores()
    for name in _PRETENDED:
        _replace(os, name, _pretended(getattr(os, name)))
    instead = _Instead(scratch / "instead", open)
    opened = _redirected(open, instead)
    for owner in (builtins, io):
        _replace(owner, "open", opened)
    connect = _connecting(sqlite3.connect, instead)
    for owner in (sqlite3, sqlite3.dbapi2):
        _replace(owner, "connect", connect)
        vars(owner)["Connection"] = _Asking
    for owner, name, shorten in _WAITING:
        _replace(owner, name, shorten(getattr(owner, name)))
    loop: Any = asyncio.BaseEventLoop
    loop.run_in_executor = _with_context(loop.run_in_executor, folder)


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """As what is replaced, the new one is no method when a class has it as an attribute."""
    setattr(owner, name, functools.partial(function))


def _audited(original: Callable[..., Any], event: str) -> Callable[..., Any]:
    try:
        names = tuple(inspect.signature(original).parameters)
    except ValueError:  # C code that does not tell: it takes no keywords
        names = ()

    def audited(*args: Any, **kwargs: Any) -> Any:
        sys.audit(event, *args, *(kwargs[name] for name in names if name in kwargs))
        return original(*args, **kwargs)

    return audited


def _audited_open(original: Callable[..., int]) -> Callable[..., int]:
    """``os.open`` relative to an open folder: the event of Python leaves the folder out."""

    def audited(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if dir_fd is None:
            return original(path, flags, mode)
        sys.audit("grape.open_at", path, flags, dir_fd)
        return original(path, flags, mode, dir_fd=dir_fd)

    return audited


def _audit_semaphores() -> None:
    """A lock whose name is to stay for other processes would be left when ours is killed."""
    try:
        owner: Any = importlib.import_module("_multiprocessing")
        original: Any = owner.SemLock
    except (ImportError, AttributeError):
        return

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        names = ("kind", "value", "maxvalue", "name", "unlink")
        sys.audit("grape.sem_open", *args, *(kwargs.get(name) for name in names[len(args) :]))
        return original.__new__(cls, *args, **kwargs)

    # A class still, since it has attributes that are asked for.
    owner.SemLock = type("SemLock", (original,), {"__new__": new})


def _connecting(original: Callable[..., Any], instead: _Instead) -> Callable[..., Any]:
    def connect(database: Any, *args: Any, **kwargs: Any) -> Any:
        if len(args) < _PLACE_OF_FACTORY:
            kwargs.setdefault("factory", _Asking)
        try:
            connection = original(database, *args, **kwargs)
        except (Denied, DeniedAtImportError):
            connection = original(instead.copy(database_file(database)), *args, **kwargs)
        connection.set_authorizer(_authorize)  # a factory may have made it of another class
        return connection

    return connect


class _Asking(sqlite3.Connection):
    """SQLite opens further files by itself: it is told to ask."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, *rest: object) -> int:
    if action != sqlite3.SQLITE_ATTACH or first is None:
        return sqlite3.SQLITE_OK
    try:
        sys.audit("grape.attach_database", first)
    except (Denied, DeniedAtImportError):
        return sqlite3.SQLITE_DENY  # SQLite makes an error of its own of it
    return sqlite3.SQLITE_OK


def _pretended(original: Callable[..., None]) -> Callable[..., None]:
    def pretended(*args: Any, **kwargs: Any) -> None:
        try:
            original(*args, **kwargs)
        except (Denied, DeniedAtImportError):
            return

    return pretended


class _Instead:
    """Files in the scratch folder that stand for those that may not be written.

    opened: Python's own ``open``, which is another one by the time it is used.
    """

    def __init__(self, folder: Path, opened: Callable[..., Any]) -> None:
        folder.mkdir()
        self._folder = folder
        self._open = opened
        self._lock = threading.Lock()
        self._files: dict[str, str] = {}

    def of(self, path: Any) -> str:
        """The file that is written instead of ``path``; the same each time."""
        with self._lock:
            return self._of(path)

    def copy(self, path: Any) -> str:
        """The file that is changed instead of ``path``: what was written there, else a copy."""
        with self._lock:
            stands_for = self._of(path)
            if not os.path.exists(stands_for):  # noqa: PTH110
                # What SQLite has not taken into the database yet lies beside it.
                for suffix in ("", "-wal"):
                    self._copy(os.fsdecode(path) + suffix, stands_for + suffix)
            return stands_for

    def written(self, path: Any) -> str | None:
        """The file that was written instead of ``path``, if one was."""
        if not self._files or isinstance(path, int):
            return None
        return self._files.get(os.path.realpath(os.fsdecode(path)))

    def _of(self, path: Any) -> str:
        name = os.path.realpath(os.fsdecode(path))
        return self._files.setdefault(name, str(self._folder / str(len(self._files))))

    def _copy(self, source: str, target: str) -> None:
        """Nothing where there is nothing to read, or too much of it."""
        try:
            before = self._open(source, "rb")
        except OSError:
            return  # another thread may just be making the target
        try:
            with before, self._open(target, "wb") as after:
                shutil.copyfileobj(before, after)
        except OSError:
            Path(target).unlink(missing_ok=True)


def _redirected(original: Any, instead: _Instead) -> Any:
    def redirected(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        try:
            # What was written is read back.
            there = instead.written(file) if mode in _READING else None
            return original(there or file, mode, *args, **kwargs)
        except (Denied, DeniedAtImportError):
            if "w" in mode or "x" in mode:
                # A new one may be there from an earlier run of the graph.
                return original(instead.of(file), mode.replace("x", "w"), *args, **kwargs)
            return original(instead.copy(file), mode, *args, **kwargs)

    return redirected


def _with_context(original: Callable[..., Any], folder: str) -> Callable[..., Any]:
    """What a coroutine hands to another thread is done in its node's name, from its place."""

    def run_in_executor(self: Any, executor: Any, func: Callable[..., Any], *args: Any) -> Any:
        context = contextvars.copy_context()
        context.run(running_at.set, actor(folder).user or running_at.get())
        return original(self, executor, context.run, func, *args)

    return run_in_executor


def _short_sleep(original: Callable[[float], None]) -> Callable[[float], None]:
    """Waiting between calls is no part of a prompt."""

    def sleep(seconds: float, /) -> None:
        original(min(seconds, _LONGEST_WAIT_S) if called_by_user(1) else seconds)

    return sleep


def _short_async_sleep(original: Callable[..., Any]) -> Callable[..., Any]:
    async def sleep(delay: float, result: Any = None) -> Any:
        # Coroutines are on the stack below the one that awaits them.
        return await original(min(delay, _LONGEST_WAIT_S) if called_by_user(1) else delay, result)

    return sleep


_WAITING: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (time, "sleep", _short_sleep),
    (asyncio, "sleep", _short_async_sleep),
)
