"""The process in which ``grape trace`` imports and runs a user's graph: ``sandbox.py`` starts it.

    python -P -m grape_lc.adapters.sandbox_child SCRATCH

reads its request in the folder SCRATCH, a real path, and leaves its result there. Only in that
folder may be written.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from grape_lc.adapters.explain import declared_of
from grape_lc.adapters.flow_file import Effect, FlowFile, MadeWith
from grape_lc.adapters.load_graph import load_graph
from grape_lc.adapters.merging import Layer, merge
from grape_lc.adapters.sandbox_guard import DeniedAtImportError, Guard
from grape_lc.adapters.sandbox_landlock import keep_writing_in
from grape_lc.adapters.sandbox_nodes import Hung, contained
from grape_lc.adapters.sandbox_patches import replace_functions
from grape_lc.adapters.sandbox_policy import Fence, Verdict
from grape_lc.adapters.sandbox_protocol import (
    NODE_SHARE,
    REQUEST,
    RESULT,
    Request,
    Result,
    readable,
)
from grape_lc.adapters.source_hash import source_hash
from grape_lc.adapters.trace_process import begin_tracing
from grape_lc.adapters.tracing import to_taskflow
from grape_lc.errors import ConfigError, FlowError, GrapeError

_LARGEST_FILE = 256 << 20
_GRACE_S = 5


def main() -> None:
    """Trace what the request asks for, and end without waiting for threads of the user's."""
    scratch = Path(sys.argv[1])
    request = Request.model_validate_json((scratch / REQUEST).read_bytes())
    _limit(request)
    if "file" not in request.allowed:
        keep_writing_in([scratch])
    guard = Guard(Fence(str(scratch)), request.folder, request.allowed)
    guard.install()
    replace_functions(scratch, request.folder)
    result = _result(request, guard)
    # Written beside and moved, so that a result is there as a whole or not at all.
    part = scratch / f"{RESULT}.part"
    part.write_text(result.model_dump_json(), encoding="utf-8")
    part.replace(scratch / RESULT)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _limit(request: Request) -> None:
    seconds = math.ceil(request.timeout_s)
    for what, most in (
        (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1)),
        (resource.RLIMIT_DATA, request.memory_bytes),
        (resource.RLIMIT_FSIZE, _LARGEST_FILE),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(what)
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (limit, limit))
    # Should who started this be gone by then.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds + _GRACE_S)


def _result(request: Request, guard: Guard) -> Result:
    denied: tuple[Effect, ...] = ()
    try:
        return _traced(request, guard)
    except GrapeError as error:
        kind = next(
            (k.__name__ for k in (ConfigError, FlowError) if isinstance(error, k)), "TraceError"
        )
        message = str(error)
        if isinstance(error.__cause__, DeniedAtImportError):
            effect = error.__cause__.effect
            message = (
                f"{request.target} does before its run what is denied in a trace: {effect}; let a "
                f"node do it, or allow it with --allow {effect.kind}"
            )
        else:
            denied = guard.effects(Verdict.DENY)
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        kind, message = "TraceError", f"{type(error).__name__}: {error}"
        denied = guard.effects(Verdict.DENY)
    return Result.model_validate({"error": kind, "message": readable(message), "denied": denied})


def _traced(request: Request, guard: Guard) -> Result:
    hung = Hung(request.timeout_s * NODE_SHARE)
    begin_tracing()
    with _warnings() as warnings:
        graph = load_graph(request.target, Path(request.folder))
        # Before the run, which may change what the hash goes over.
        digest = source_hash(graph)
        declared = declared_of(graph)
        guard.run_begins()
        graph = contained(graph, hung, request.folder)
        flow = to_taskflow(graph, example=request.example, name=request.name)
    seen = [task.name for task in flow.tasks]
    said = (*warnings, *hung.warnings(), *hung.without_calls(seen))
    file = FlowFile(
        graph=request.target,
        source_hash=digest,
        made_with=MadeWith.here(),
        warnings=tuple(map(readable, said)),
        denied=guard.effects(Verdict.DENY),
        confined=guard.effects(Verdict.CONFINE),
        flow=flow,
    )
    whole = merge(flow.name, [declared, Layer.of("traced", flow)])
    assert whole.flow is not None
    return Result(flow_file=file.to_json(), whole=whole.flow.to_json(), sources=dict(whole.sources))


class _Kept(logging.Handler):
    """Keeps what this package warns of, each sentence once."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.said[record.getMessage()] = None


@contextmanager
def _warnings() -> Iterator[dict[str, None]]:
    handler = _Kept()
    logger = logging.getLogger("grape_lc")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield handler.said
    finally:
        logger.removeHandler(handler)
        logger.propagate = True


if __name__ == "__main__":
    main()
