"""run_sandboxed: the flow of ``module:graph``, found in a process of its own.

The user's module is imported, and its graph run once or more without a model, in a child process:

    scratch folder      working folder, home and temporary files; removed afterwards
    environment         the values of secrets withheld
    standard input      empty
    limits              time, memory, size of files; all of its process group is killed at the end
    audit hook          network, processes, files elsewhere, threads ... denied and reported
    network namespace   without a network, where the system lets users make one
    Landlock            files elsewhere kept from C code as well, where the kernel has it

What is denied and what escapes is told in docs/tracing.md.
"""

from __future__ import annotations

import contextlib
import functools
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from grape_lc.adapters.flow_file import FlowFile
from grape_lc.adapters.load_graph import Target
from grape_lc.adapters.sandbox_environment import make_scratch, scrubbed
from grape_lc.adapters.sandbox_policy import KINDS
from grape_lc.adapters.sandbox_protocol import REQUEST, RESULT, Request, Result
from grape_lc.errors import ConfigError, FlowError, TraceError
from grape_lc.flow.taskflow import TaskFlow

TIMEOUT_S = 60.0
LONGEST_S = 86400.0  # a day
MEMORY_BYTES = 16 << 30

_KEPT_OUTPUT = 64 << 10  # bytes at the end of what the program prints
_LARGEST_RESULT = 64 << 20  # bytes
_SHOWN_LINES = 8
_SHOWN_REASON = 200  # characters
_ERRORS = {"ConfigError": ConfigError, "FlowError": FlowError, "TraceError": TraceError}

# Prefixes of a command that take the network away, the first that works here is used. The first
# needs privileges; the second makes a user namespace, which some systems forbid.
_UNSHARE = (
    ("unshare", "--net"),
    ("unshare", "--user", "--map-current-user", "--net"),
)


@dataclass(frozen=True, slots=True)
class SandboxedTrace:
    """What came of a trace.

    flow: what was traced, and what is declared in the code, as ``attach`` puts them together;
    sources: where each of its tasks is from.
    withheld: names of the environment's variables whose values the program did not get.
    output: the end of what it printed. offline: whether it had no network at all.
    wall_s: seconds, from the start of the process to its end.
    """

    file: FlowFile
    flow: TaskFlow
    sources: Mapping[str, str]
    withheld: tuple[str, ...]
    output: str
    offline: bool
    wall_s: float


def run_sandboxed(
    target: str,
    *,
    folder: str | os.PathLike[str] | None = None,
    example: Any = None,
    name: str | None = None,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int = MEMORY_BYTES,
    allow: Collection[str] = (),
    isolate: bool = True,
) -> SandboxedTrace:
    """Trace ``target`` in a process of its own.

    target: ``module:graph``, see ``load_graph``. folder: where it is looked for, and against which
        its relative paths are read; by default the current one.
    example: an input of the graph as JSON has it, else ``None``; name: of the flow. Both are those
        of ``to_taskflow``.
    timeout_s: seconds, more than 0 and at most a day, for all, imports included; a visit of a
        node may take a quarter of it.
    allow: kinds of effects (``sandbox_policy.KINDS``) that are not denied.
    isolate: take the network away as well, where the system can; not if ``network`` is allowed.

    Blocks; may be called from any thread, also of a running event loop.

    Raises ConfigError for a target that is none and for options that make no sense, TraceError
    when the graph cannot be traced, or not in time, and FlowError when its flow is not well formed.
    """
    Target.parse(target)
    unknown = sorted(set(allow) - set(KINDS))
    if unknown:
        raise ConfigError(f"allow: no such kind: {', '.join(unknown)}; kinds: {', '.join(KINDS)}")
    if not 0 < timeout_s <= LONGEST_S:
        raise ConfigError(
            f"timeout_s is more than 0 seconds and at most {LONGEST_S:g}, not {timeout_s:g}"
        )
    place = Path.cwd() if folder is None else Path(folder).absolute()
    if not place.is_dir():
        raise ConfigError(f"there is no folder {place}")
    prefix = _offline_prefix() if isolate and "network" not in allow else ()
    with _scratch() as scratch:
        environment, withheld = scrubbed(os.environ, scratch)
        request = Request(
            target=target,
            folder=str(place),
            example=example,
            name=name,
            timeout_s=timeout_s,
            memory_bytes=memory_bytes,
            allowed=tuple(sorted(allow)),
        )
        try:
            text = request.model_dump_json()
            Request.model_validate_json(text)  # what is nested deeply can be written and not read
        except ValueError as error:
            why = " ".join(str(error).split())[:_SHOWN_REASON]
            raise ConfigError(f"the example of an input is not JSON: {why}") from error
        python = [sys.executable, "-P", "-m", "grape_lc.adapters.sandbox_child", str(scratch)]
        start = time.monotonic()
        try:
            (scratch / REQUEST).write_text(text, encoding="utf-8")
            work = make_scratch(scratch, place)
            code, output = _run([*prefix, *python], environment, work, timeout_s)
        except OSError as error:
            raise TraceError(f"no process could be started to trace {target}: {error}") from error
        file, flow, sources = _read(scratch / RESULT, target, timeout_s, code, output)
    wall_s = time.monotonic() - start
    return SandboxedTrace(file, flow, sources, withheld, output, bool(prefix), wall_s)


@functools.cache
def _offline_prefix() -> tuple[str, ...]:
    for prefix in _UNSHARE:
        program = shutil.which(prefix[0])
        if program is None:
            continue
        command = (program, *prefix[1:])
        try:
            done = subprocess.run(
                [*command, sys.executable, "-S", "-c", ""],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return command
    return ()


@contextmanager
def _scratch() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="grape-trace-")).resolve()
    try:
        yield path
    finally:
        # A program may have taken its own permissions away.
        shutil.rmtree(path, ignore_errors=True)


def _run(
    command: list[str], environment: dict[str, str], work: Path, timeout_s: float
) -> tuple[int | None, str]:
    """Exit code, ``None`` when it was killed at the end of its time, and the end of its output."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=work,
        env=environment,
        start_new_session=True,
    ) as child:
        try:
            in_time, output = _follow(child, time.monotonic() + timeout_s)
        finally:
            # Whatever it has left behind too; the group is its own.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    return child.returncode if in_time else None, output.decode("utf-8", "replace")


def _follow(child: subprocess.Popen[bytes], deadline: float) -> tuple[bool, bytes]:
    """Read what it prints until it ends, and keep the end of that."""
    assert child.stdout is not None
    kept = bytearray()
    os.set_blocking(child.stdout.fileno(), False)
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while child.poll() is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False, bytes(kept)
            # Its output may stay open in what it has started, so its end is asked for as well.
            for key, _ in selector.select(min(left, 0.05)):
                if not _take(child.stdout, kept):
                    selector.unregister(key.fileobj)
            if not selector.get_map():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(left)
    while _take(child.stdout, kept):
        pass
    return True, bytes(kept)


def _take(stream: Any, kept: bytearray) -> bool:
    """Read once; whether there may be more."""
    try:
        data = os.read(stream.fileno(), 1 << 16)
    except BlockingIOError:
        return False
    kept += data
    del kept[:-_KEPT_OUTPUT]
    return bool(data)


def _read(
    path: Path, target: str, timeout_s: float, code: int | None, output: str
) -> tuple[FlowFile, TaskFlow, Mapping[str, str]]:
    """The flow file in a result, the whole flow and its sources.

    The child ran the user's code, so nothing in it is believed.
    """
    if code is None:
        raise TraceError(
            f"{target} was not traced within {timeout_s:g} s and was killed; give it more time, or "
            f"see what it waits for{_last_lines(output)}"
        )
    try:
        left = _left_in(path)
        if left is None:
            raise TraceError(
                f"the process that traced {target} {_how(code)} and left no result"
                f"{_last_lines(output)}"
            )
        result = Result.model_validate_json(left)
        file = None if result.flow_file is None else FlowFile.from_json(result.flow_file)
        whole = None if result.whole is None else TaskFlow.from_json(result.whole)
    except (OSError, ValidationError, FlowError) as error:
        why = " ".join(str(error).split())[:_SHOWN_REASON]
        raise TraceError(
            f"the process that traced {target} left no usable result: {why}"
        ) from error
    if result.error is not None:
        denied = "".join(f"\n  denied: {effect}" for effect in result.denied[:_SHOWN_LINES])
        raise _ERRORS[result.error](result.message + denied)
    if file is None:
        raise TraceError(f"the process that traced {target} left an empty result")
    return file, whole or file.flow, result.sources


def _left_in(path: Path) -> bytes | None:
    """A file's content; ``None`` where it is none, is too large, or is a link to another one."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(number, "rb") as file:
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode) or found.st_size > _LARGEST_RESULT:
            return None
        return file.read(_LARGEST_RESULT)


def _how(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _last_lines(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()][-_SHOWN_LINES:]
    return "; it printed last:\n  " + "\n  ".join(lines) if lines else ""
