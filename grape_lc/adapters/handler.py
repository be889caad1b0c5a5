"""One program of the engine for each run of an attached graph."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks.base import BaseCallbackHandler

from grape_lc.adapters.callsite import CallSite
from grape_lc.adapters.inputs import input_texts, is_command
from grape_lc.engine.base import EngineClient
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.variables import InputVar

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _GraphRun:
    """A run of the attached graph, from its first callback to its last.

    namespace: checkpoint namespace of the node that runs the graph, if it is nested.
    inputs: what a program is opened with; ``None``: this run gets no program.
    engine, program: where a program is open, if one is.
    settled: a call has shown which engine the graph uses, or the run has ended: from then on
        no program is opened.
    below: keys of the runs inside this one, to forget them together.
    finalizer: closes the program if LangGraph drops the run without a word.
    """

    namespace: str
    inputs: dict[str, str] | None
    engine: EngineClient | None = None
    program: str | None = None
    settled: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    below: set[int] = field(default_factory=set)
    finalizer: weakref.finalize[..., UUID] | None = None
    # Held while a program is opened: parallel first calls then find it.
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a traced run stands: in which run of the graph, how many levels down."""

    graph_run: _GraphRun
    depth: int


class ProgramHandler(BaseCallbackHandler):
    """Opens a program when the graph starts and closes it when the graph ends, however it ends.

    The engine is ``engine`` if given. Else it is the one that the graph's calls turn out to
    use, so that none is ever started for a graph that does not use it: the first run opens its
    program at its first call, later runs at their start.

    What goes wrong here never reaches the user's graph: it is logged as a warning, once, and
    the calls go on without a program. All methods may be called from any thread.
    """

    # In an event loop the handler has to see the start of a run before its first node runs.
    run_inline = True
    raise_error = False

    def __init__(self, flow: TaskFlow, engine: EngineClient | None = None) -> None:
        self.flow = flow
        self._input_names = {var.name for var in flow.variables if isinstance(var, InputVar)}
        self._fixed_engine = engine
        self._last_engine = engine
        # Keyed by the number of a run id: the id object itself must stay collectable.
        self._places: dict[int, _Place] = {}
        self._warned = False
        self._lock = threading.Lock()

    @property
    def running(self) -> int:
        """Traced runs that have begun and not ended; 0 when no run of the graph is under way."""
        with self._lock:
            return len(self._places)

    # -- for calls of the model -------------------------------------------------------------

    def depth(self, site: CallSite) -> int | None:
        """Levels between the graph's own run and the site; ``None``: not in this graph."""
        place = self._place(site.parent_run_id)
        return None if place is None else place.depth

    def bind(self, site: CallSite, engine: EngineClient) -> tuple[str | None, str | None]:
        """Program and task of a call that is about to be made on ``engine``.

        Both are ``None`` when the call is not part of a program. The second call of a node in
        one run is the task ``node#2``, and so on.
        """
        place = self._place(site.parent_run_id)
        if place is None:
            return None, None
        run = place.graph_run
        with self._guard("binding a call"), run.lock:
            name = site.name(run.namespace)
            run.calls[name] += 1
            if (count := run.calls[name]) > 1:
                name = f"{name}#{count}"
            self._settle(run, engine)
            if run.program is not None and run.engine is engine:
                return run.program, name
        return None, None

    def _settle(self, run: _GraphRun, engine: EngineClient) -> None:
        """Make sure that the program is where the run's calls go."""
        if run.settled:
            return
        run.settled = True
        self._last_engine = wanted = self._fixed_engine or engine
        if run.engine is not wanted:
            self._close_program(run)
            self._open_program(run, wanted)

    # -- callbacks --------------------------------------------------------------------------

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """The graph starts, or something inside it does."""
        with self._guard("the start of a run"):
            if self._enter(run_id, parent_run_id):
                return
            # LangGraph resumes a run without saying with which inputs it was begun.
            run = _GraphRun(
                namespace=str((metadata or {}).get("langgraph_checkpoint_ns", "")),
                inputs=None if is_command(inputs) else self._known_inputs(inputs),
            )
            key = run_id.int
            # A run that is dropped (say, its event loop is never resumed) ends without a
            # callback. The id lives as long as LangGraph's objects for the run do.
            run.finalizer = weakref.finalize(run_id, self._abandoned, key)
            run.finalizer.atexit = False
            with self._lock:
                self._places[key] = _Place(run, 0)
            engine = self._last_engine
            if engine is not None and getattr(engine, "is_open", True):
                with run.lock:
                    self._open_program(run, engine)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """The graph, or something inside it, has ended."""
        with self._guard("the end of a run"):
            self._leave(run_id.int)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed, was cancelled, or its iterator was closed."""
        with self._guard("the end of a run"):
            self._leave(run_id.int)

    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool may call the model: its calls belong to the graph."""
        self._enter(run_id, parent_run_id)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """The tool has ended."""
        self._leave(run_id.int)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """The tool has failed."""
        self._leave(run_id.int)

    @property
    def ignore_llm(self) -> bool:
        """Calls report themselves, through ``bind``; tokens need not come by."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """As ``ignore_llm``."""
        return True

    # -- inside -----------------------------------------------------------------------------

    def _known_inputs(self, inputs: object) -> dict[str, str]:
        return {k: v for k, v in input_texts(inputs).items() if k in self._input_names}

    def _place(self, run_id: UUID | None) -> _Place | None:
        with self._lock:
            return None if run_id is None else self._places.get(run_id.int)

    def _enter(self, run_id: UUID, parent_run_id: UUID | None) -> bool:
        """Note a run inside the graph; ``False`` when its parent is not inside."""
        with self._lock:
            parent = None if parent_run_id is None else self._places.get(parent_run_id.int)
            if parent is None:
                return False
            parent.graph_run.below.add(run_id.int)
            self._places[run_id.int] = _Place(parent.graph_run, parent.depth + 1)
            return True

    def _leave(self, key: int) -> None:
        with self._lock:
            place = self._places.pop(key, None)
            if place is None:
                return
            run = place.graph_run
            run.below.discard(key)
            if place.depth > 0:
                return
            for below in run.below:
                self._places.pop(below, None)
        if run.finalizer is not None:
            run.finalizer.detach()
        with run.lock:
            run.settled = True
            self._close_program(run)

    def _abandoned(self, key: int) -> None:
        # Called by the garbage collector, at any point of any thread, which may hold a lock
        # of ours or of the engine: so the work is done by a thread that holds none.
        threading.Thread(target=self._leave_abandoned, args=(key,), daemon=True).start()

    def _leave_abandoned(self, key: int) -> None:
        with self._guard("the end of an abandoned run"):
            self._leave(key)

    def _open_program(self, run: _GraphRun, engine: EngineClient) -> None:
        if run.inputs is not None:
            run.program = engine.open_program(self.flow, run.inputs)
            run.engine = engine

    def _close_program(self, run: _GraphRun) -> None:
        if run.program is not None and run.engine is not None:
            program, engine = run.program, run.engine
            run.program = run.engine = None
            engine.close_program(program)

    @contextmanager
    def _guard(self, doing: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - the user's graph goes on, whatever happens
            level = logging.DEBUG if self._warned else logging.WARNING
            self._warned = True
            logger.log(
                level,
                "flow %r: %s failed, calls go on without a program (said once): %r",
                self.flow.name,
                doing,
                error,
            )
