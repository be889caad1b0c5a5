"""What a program may do while it is traced in a sandbox: the rules, without the mechanism.

A rule reads the arguments of one of Python's audit events and says what the program is about to
change outside of itself and of its scratch folder, if anything. Reading files is free.

| kind        | events of                                     | allowed all the same              |
|-------------|-----------------------------------------------|-----------------------------------|
| network     | connections, datagrams, names to look up      |                                   |
| process     | programs and forks                            |                                   |
| signal      | signals to processes, priorities and limits   | asking whether one is there; its  |
|             | of other processes                            | own priority and limits           |
| file        | writing, removing, renaming, linking, modes   | within the scratch folder         |
| directory   | another working directory                     | within the scratch folder         |
| log         | the system's log                              |                                   |
| environment | variables                                     | at import, and set by a library   |
| thread      | threads                                       | of LangGraph and other libraries  |
| native      | C libraries that are loaded by hand           | by a library                      |
"""

from __future__ import annotations

import enum
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

KINDS = (
    "directory",
    "environment",
    "file",
    "log",
    "native",
    "network",
    "process",
    "signal",
    "thread",
)

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_HARMLESS_FILES = frozenset({"/dev/null"})
_TRUE = frozenset({"1", "on", "true", "yes"})  # in the name of a SQLite database


class Verdict(enum.Enum):
    """What becomes of an effect: let be in silence, let be and reported, or denied."""

    ALLOW = "allow"
    CONFINE = "confine"
    DENY = "deny"


# By kind: the verdict on user's code in a node, a library in a node, and on either at import.
_STRICT = (Verdict.DENY, Verdict.DENY, Verdict.DENY)
_VERDICTS: Mapping[str, tuple[Verdict, Verdict, Verdict]] = {
    # A changed variable ends with the process.
    "environment": (Verdict.DENY, Verdict.CONFINE, Verdict.CONFINE),
    "thread": (Verdict.DENY, Verdict.ALLOW, Verdict.DENY),
    "native": (Verdict.DENY, Verdict.ALLOW, Verdict.DENY),
}


def verdict(kind: str, *, by_user: bool, at_import: bool) -> Verdict:
    """The verdict on an effect; ``by_user``: the user's own code does it, not a library."""
    user, library, imported = _VERDICTS.get(kind, _STRICT)
    if at_import and (by_user or kind == "environment"):
        return imported
    return user if by_user else library


@dataclass(frozen=True, slots=True)
class Fence:
    """The folder in which files may be written. root: its real path."""

    root: str

    def inside(self, path: object, dir_fd: object = -1) -> bool:
        """Whether a path, and what it links to, lie within the folder."""
        full = absolute(path, dir_fd)
        head, tail = os.path.split(full)
        if not self._holds(os.path.realpath(full)):
            return False
        # What the path itself names, should it be a link.
        named = os.path.join(os.path.realpath(head), tail)  # noqa: PTH118 - a hook is to be quick
        return tail in {"", os.curdir, os.pardir} or self._holds(named)

    def _holds(self, real: str) -> bool:
        return real == self.root or real.startswith(self.root + os.sep)


def absolute(path: object, dir_fd: object = -1) -> str:
    """A path, or an open file's number, as an absolute path; links and ``..`` are left in it."""
    if isinstance(path, int):
        return _of_descriptor(path)
    text = os.fsdecode(path)  # type: ignore[arg-type]  # an audit event's argument
    if isinstance(dir_fd, int) and dir_fd >= 0:
        text = os.path.join(_of_descriptor(dir_fd), text)  # noqa: PTH118
    return os.path.join(os.getcwd(), text)  # noqa: PTH109, PTH118


def _of_descriptor(number: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{number}").readlink())
    except OSError:
        return f"/proc/self/fd/{number}"


Look = Callable[[tuple[Any, ...], Fence], str | None]
"""What an event's arguments would change, in words for the report; ``None``: nothing outside."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The kind of an event, and how its arguments are read."""

    kind: str
    look: Look


# -- network ----------------------------------------------------------------------------------


def _peer(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(socket, address); without an address it is a connected socket, whose peer was judged."""
    return None if args[1] is None else _address(args[1])


def _host(args: tuple[Any, ...], fence: Fence) -> str | None:
    return _address(args[:2] if len(args) > 1 else args[0])


def _address(address: object) -> str:
    if isinstance(address, tuple):
        host, *port = (part for part in address[:2] if part is not None)
        text = os.fsdecode(host) if isinstance(host, str | bytes) else str(host)
        return ":".join([text, *map(_plain, port)])
    return _plain(address)


# -- processes --------------------------------------------------------------------------------


def _program(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(program, arguments, ...): the arguments may hold secrets, so they are counted."""
    program, arguments = args[0], args[1] if len(args) > 1 else ()
    if program is None:
        program = arguments if isinstance(arguments, str | bytes) else next(iter(arguments), "")
    if isinstance(program, list | tuple):
        program, arguments = next(iter(program), ""), program
    name = _plain(program).split(maxsplit=1)[0] if _plain(program).strip() else "?"
    count = len(arguments) - 1 if isinstance(arguments, list | tuple) else 0
    return f"{name} with {count} arguments" if count > 0 else name


def _command(args: tuple[Any, ...], fence: Fence) -> str | None:
    return _plain(args[0]).split(maxsplit=1)[0] if _plain(args[0]).strip() else "a shell"


def _fork(args: tuple[Any, ...], fence: Fence) -> str | None:
    return "the process itself"


def _signal(args: tuple[Any, ...], fence: Fence) -> str | None:
    target, number = args[0], args[1]
    if not number:
        return None
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = str(number)
    # No number: the report of one program is to be the same each time.
    return f"{name} to {'itself' if target == os.getpid() else 'another process or thread'}"


def _signal_by_descriptor(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(descriptor of a process, signal, ...): which process that is makes no difference."""
    return _signal((None, args[1]), fence)


def _priority(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(kind of number, number, priority)."""
    which, number = args[0], args[1]
    own = {os.PRIO_PROCESS: _is_own(number), os.PRIO_PGRP: number in (0, os.getpgrp())}
    return None if own.get(which, False) else "another process or thread"


def _limit(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(process, resource, limits): without limits they are asked for."""
    return None if len(args) < 3 or args[2] is None else _other(args, fence)


def _other(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(process or thread, ...): what a program changes of its own ends with it."""
    return None if _is_own(args[0]) else "another process or thread"


def _is_own(number: object) -> bool:
    return number in (0, os.getpid()) or os.path.lexists(f"/proc/self/task/{number}")


def _semaphore(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(kind, value, most, name, whether its name goes at once): with a name it outlives us."""
    return "a semaphore for other processes" if len(args) < 5 or not args[4] else None


# -- files ------------------------------------------------------------------------------------


def _opened(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(path, mode, flags)."""
    path, _, flags = args
    if isinstance(path, int) or not isinstance(flags, int) or not flags & _WRITING:
        return None
    return _path(path, fence)


def _opened_at(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(path, flags, dir_fd)."""
    path, flags, dir_fd = args
    return _path(path, fence, dir_fd) if flags & _WRITING else None


def _path(path: object, fence: Fence, dir_fd: object = -1) -> str | None:
    if path is None or fence.inside(path, dir_fd):
        return None
    real = absolute(path, dir_fd)
    if isinstance(path, int) and (not real.startswith(os.sep) or real.startswith("/memfd:")):
        return None  # a pipe, a socket, or memory
    real = os.path.realpath(real)
    return None if real in _HARMLESS_FILES else real


def _changed(place: int | None = None) -> Look:
    """The path is the first argument, its folder's descriptor that at ``place``, if any."""

    def look(args: tuple[Any, ...], fence: Fence) -> str | None:
        folder = args[place] if place is not None and place < len(args) else -1
        return _path(args[0], fence, folder)

    return look


def _made(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(path, mode, dir_fd): a folder that is there already is an error and no change."""
    found = _path(args[0], fence, args[2])
    return None if found is None or os.path.lexists(absolute(args[0], args[2])) else found


def _moved(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(source, target, their folders). A hard link changes its source as much as a new name."""
    source, target, source_fd, target_fd = args
    return _path(source, fence, source_fd) or _path(target, fence, target_fd)


def _linked(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(what it says, path, folder): a link may point anywhere."""
    return _path(args[1], fence, args[2])


def database_file(name: object) -> str | None:
    """The file of a SQLite database that is opened to be written.

    ``None`` when its name says that it lives in memory or is only read. An option that is given
    twice counts as what changes more: which of the two SQLite takes depends on the option.
    """
    text = os.fsdecode(name)  # type: ignore[arg-type]  # an audit event's argument
    if text.startswith("file:"):
        parts = urlsplit(text)
        options = parse_qs(parts.query, keep_blank_values=True)
        modes, text = set(options.get("mode", [""])), unquote(parts.path)
        if modes == {"memory"} or modes == {"ro"}:
            return None
        # A file that is said not to change is made all the same where there is none.
        if set(options.get("immutable", [""])) <= _TRUE and os.path.lexists(text):
            return None
    return None if text in {"", ":memory:"} else text


def _database(args: tuple[Any, ...], fence: Fence) -> str | None:
    return _path(database_file(args[0]), fence)


# -- the process itself -----------------------------------------------------------------------


def _variable(args: tuple[Any, ...], fence: Fence) -> str | None:
    return _plain(args[0])


def _function(args: tuple[Any, ...], fence: Fence) -> str | None:
    function = args[0]
    owner = getattr(function, "__self__", None)
    # threading starts its own method, which calls the target.
    target = getattr(owner, "_target", None) or function
    return str(getattr(target, "__qualname__", type(target).__name__))


def _library(args: tuple[Any, ...], fence: Fence) -> str | None:
    """(name): without one it is the process, with all of its C functions."""
    return "the process itself" if args[0] is None else _plain(args[0])


def _extension(args: tuple[Any, ...], fence: Fence) -> str | None:
    return "extensions of SQLite" if args[1] else None


def _text(args: tuple[Any, ...], fence: Fence) -> str | None:
    return "the system's log"


def _plain(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, str | bytes | os.PathLike) else str(value)


RULES: Mapping[str, Rule] = {
    "socket.connect": Rule("network", _peer),
    "socket.bind": Rule("network", _peer),
    "socket.sendto": Rule("network", _peer),
    "socket.sendmsg": Rule("network", _peer),
    "socket.getaddrinfo": Rule("network", _host),
    "socket.gethostbyname": Rule("network", _host),
    "socket.gethostbyaddr": Rule("network", _host),
    "socket.getnameinfo": Rule("network", _host),
    "socket.sethostname": Rule("network", _host),
    "subprocess.Popen": Rule("process", _program),
    "os.exec": Rule("process", _program),
    "os.posix_spawn": Rule("process", _program),
    "os.system": Rule("process", _command),
    "os.fork": Rule("process", _fork),
    "os.forkpty": Rule("process", _fork),
    "pty.spawn": Rule("process", _program),
    "os.kill": Rule("signal", _signal),
    "os.killpg": Rule("signal", _signal),
    "signal.pthread_kill": Rule("signal", _signal),
    "resource.prlimit": Rule("signal", _limit),
    "open": Rule("file", _opened),
    "os.remove": Rule("file", _changed(1)),
    "os.rmdir": Rule("file", _changed(1)),
    "os.mkdir": Rule("file", _made),
    "os.rename": Rule("file", _moved),
    "os.link": Rule("file", _moved),
    "os.symlink": Rule("file", _linked),
    "os.truncate": Rule("file", _changed()),
    "os.chmod": Rule("file", _changed(2)),
    "os.chown": Rule("file", _changed(3)),
    "os.utime": Rule("file", _changed(3)),
    "os.chflags": Rule("file", _changed()),
    "os.setxattr": Rule("file", _changed()),
    "os.removexattr": Rule("file", _changed()),
    "sqlite3.connect": Rule("file", _database),
    "os.chdir": Rule("directory", _changed()),
    "syslog.openlog": Rule("log", _text),
    "syslog.syslog": Rule("log", _text),
    "os.putenv": Rule("environment", _variable),
    "os.unsetenv": Rule("environment", _variable),
    "ctypes.dlopen": Rule("native", _library),
    "sqlite3.enable_load_extension": Rule("native", _extension),
    # What Python does not audit, and the guard tells of itself.
    "grape.open_at": Rule("file", _opened_at),
    "grape.mkfifo": Rule("file", _changed()),
    "grape.mknod": Rule("file", _changed()),
    "grape.dbm": Rule("file", _changed()),
    "grape.shm_open": Rule("file", _library),
    "grape.attach_database": Rule("file", _database),
    "grape.fork_exec": Rule("process", _program),
    "grape.sem_open": Rule("process", _semaphore),
    "grape.pidfd_send_signal": Rule("signal", _signal_by_descriptor),
    "grape.setpriority": Rule("signal", _priority),
    "grape.setpgid": Rule("signal", _other),
    "grape.sched_setaffinity": Rule("signal", _other),
    "grape.sched_setparam": Rule("signal", _other),
    "grape.sched_setscheduler": Rule("signal", _other),
    "grape.start_thread": Rule("thread", _function),
}
