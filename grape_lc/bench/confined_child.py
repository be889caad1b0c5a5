"""Runs one untrusted program, in a process of its own: started by ``confined``, never imported.

    python -I -S -B confined_child.py CPU_SECONDS MEMORY_BYTES OUTPUT_BYTES < input

The working directory is a scratch folder with ``program.py``, and ``case.json`` if one of its
functions is to be called. Standard library only; what it needs is imported before the fence is up.
"""

from __future__ import annotations

import inspect
import io
import json
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000

# Audit events, by their beginnings. The `open` event is looked at more closely.
_DENIED_EVENTS = (
    "ctypes.",
    "ftplib.",
    "http.client.",
    "os.add_dll",
    "os.chflags",
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.lockf",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.setxattr",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.utime",
    "pty.",
    "resource.",
    "shutil.",
    "signal.",
    "smtplib.",
    "socket.",
    "sqlite3.",
    "subprocess.",
    "syslog.",
    "urllib.",
)
# They start processes, or call the system, without an event of their own.
_DENIED_IMPORTS = frozenset({"_ctypes", "_posixshmem", "_posixsubprocess", "ctypes"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main() -> None:
    """Read the program and its case, put up the fence, run."""
    cpu_s, memory, output = map(int, sys.argv[1:4])
    source = Path("program.py").read_text(encoding="utf-8")
    case_file = Path("case.json")
    case = json.loads(case_file.read_text(encoding="utf-8")) if case_file.exists() else None
    _limit(cpu_s, memory, output)
    _leave_network()
    library = str(Path(os.__file__).parent.resolve())
    sys.addaudithook(_fence(library, str(Path.cwd().resolve())))
    if case is None:
        _execute(source, "__main__")
    else:
        print(json.dumps(_call(source, case)))  # noqa: T201 - this is what the parent reads


def _limit(cpu_s: int, memory: int, output: int) -> None:
    for what, most in (
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, output),  # standard output is a file
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _leave_network() -> None:
    """Into a network namespace with nothing in it, where the system lets us."""
    import ctypes

    libc = ctypes.CDLL(None)
    if libc.unshare(_CLONE_NEWNET) != 0:
        libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
    # Importing it again is an event, and denied.
    for name in [name for name in sys.modules if name.split(".")[0] in _DENIED_IMPORTS]:
        del sys.modules[name]


def _fence(library: str, scratch: str) -> Any:
    readable = (library + os.sep, scratch + os.sep)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if isinstance(path, int):
                return
            real = os.path.realpath(os.fsdecode(path))
            if flags & _WRITING or not f"{real}{os.sep}".startswith(readable):
                raise PermissionError(f"a program that is checked may not open {path}")
        elif event == "import":
            if args[0] in _DENIED_IMPORTS:
                raise ImportError(f"a program that is checked may not import {args[0]}")
        elif event.startswith(_DENIED_EVENTS):
            raise PermissionError(f"a program that is checked may not do this: {event}")

    return hook


def _execute(source: str, name: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(source, "program.py", "exec"), namespace)  # noqa: S102 - its purpose
    return namespace


def _call(source: str, case: dict[str, Any]) -> dict[str, Any]:
    """Call a function of the program. What the program prints meanwhile is dropped.

    Returns ``result``, ``raised`` (which exception) or ``missing`` (which function).
    """
    shown, sys.stdout = sys.stdout, io.StringIO()
    try:
        namespace = _execute(source, "program")
        arguments = case["arguments"]
        function = _function(namespace, case["function"], arguments)
        if function is None:
            return {"missing": case["function"]}
        if case["code"] is not None:
            _execute(case["code"], "check")["check"](function)
            return {"result": None}
        try:
            result = _bound(function, arguments)
        except Exception as error:  # noqa: BLE001 - whatever the program raises is its answer
            return {"raised": f"{type(error).__name__}: {error}"}
        return {"result": json.loads(json.dumps(result))}
    finally:
        sys.stdout = shown


def _function(namespace: dict[str, Any], name: str, arguments: dict[str, Any] | None) -> Any:
    """The function of this name, in either spelling; else the only one that would take the call.

    Problems do not always say what their function is called.
    """
    for spelling in (name, _snake(name)):
        if callable(namespace.get(spelling)):
            return namespace[spelling]
    fitting = [
        value
        for key, value in namespace.items()
        if inspect.isfunction(value)
        and value.__globals__ is namespace
        and not key.startswith("_")
        and key != "main"
        and arguments is not None
        and _takes(value, len(arguments))
    ]
    return fitting[0] if len(fitting) == 1 else None


def _takes(function: Any, count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


def _bound(function: Any, arguments: dict[str, Any]) -> Any:
    """Call by the names of the arguments, in either spelling, else by their order."""
    signature = inspect.signature(function)
    for named in (arguments, {_snake(key): value for key, value in arguments.items()}):
        try:
            signature.bind(**named)
        except TypeError:
            continue
        return function(**named)
    return function(*arguments.values())


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


if __name__ == "__main__":
    main()
