"""One program of the engine for each run of an attached graph."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from langchain_core.callbacks.base import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult

from grape_lc.adapters.callsite import CallSite, call_site, numbered
from grape_lc.adapters.conversations import Histories, histories_of
from grape_lc.adapters.inputs import input_texts, is_command
from grape_lc.adapters.lists import fitted
from grape_lc.adapters.resuming import Past, Threads, left_of
from grape_lc.adapters.savings import PROGRAM, RESUMED, RunSavings, Savings
from grape_lc.adapters.templates import Templates
from grape_lc.adapters.tenant_templates import Lore, TenantTemplates
from grape_lc.adapters.tenants import tenant_in
from grape_lc.adapters.watching import Watched, Watcher, foreign_model
from grape_lc.engine.base import EngineClient, Usage
from grape_lc.flow.taskflow import TaskFlow

logger = logging.getLogger(__name__)

EngineSource = Callable[[], EngineClient | None]
"""Names the engine that a graph is to use, without starting it; asked at each run."""

_MIXED = "another tenant"


@dataclass(slots=True)
class GraphRun:
    """A run of the attached graph, from its first callback to its last.

    tenant: whose it is; None: nobody has said so yet, its first call will.
    namespace: checkpoint namespace of the node that runs the graph, if it is nested.
    inputs: texts of its input; ``None``: this run gets no program.
    thread: by which what it comes to is remembered, with the tenant that was known when it began;
        ``None``: nobody could resume it by itself.
    past: the run that it goes on with, if it was resumed.
    earlier_of: tenant of the thread's last run, if it is known.
    histories: the conversation of the thread when it began.
    engine, program: where a program is open, if one is. opened_for: its tenant.
    seen: tenants of its calls. Of a run of several nothing is learned.
    settled: a call has shown which engine the graph uses, or the run has ended: from then on
        no program is opened.
    calls: of the model, by place in the graph. watched: these calls and their answers.
    below: keys of the runs inside this one, to forget them together.
    undone: namespaces of nodes that did not come to their end, and would run again.
    saved: what its calls found prefilled.
    finalizer: closes the program if LangGraph drops the run without a word.
    owner: the coroutine that runs the graph. callers: those inside that made calls.
    """

    tenant: str | None
    namespace: str
    inputs: Mapping[str, str] | None
    thread: tuple[str | None, str] | None = None
    past: Past | None = None
    earlier_of: str | None = None
    histories: Histories = field(default_factory=dict)
    engine: EngineClient | None = None
    program: str | None = None
    opened_for: str = ""
    seen: set[str] = field(default_factory=set)
    settled: bool = False
    calls: Counter[str] = field(default_factory=Counter)
    watched: Watched = field(default_factory=Watched)
    below: set[int] = field(default_factory=set)
    undone: set[str] = field(default_factory=set)
    saved: RunSavings = field(default_factory=RunSavings)
    finalizer: weakref.finalize[..., UUID] | None = None
    owner: weakref.ref[asyncio.Task[Any]] | None = None
    callers: weakref.WeakSet[asyncio.Task[Any]] = field(default_factory=weakref.WeakSet)
    # Held while a program is opened: parallel first calls then find it.
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a traced run stands: in which run of the graph, how many levels down.

    namespace: of the node that it runs in. node: it is the run of that node itself.
    """

    graph_run: GraphRun
    depth: int
    namespace: str = ""
    node: bool = False


class ProgramHandler(BaseCallbackHandler):
    """Opens a program when the graph starts and closes it when the graph ends, however it ends.

    The program is a run of what ``templates`` know by then; what the run's calls were sent and
    answered is told to them when it has come to its end. Of a run that was resumed the program is
    what is left of the flow, if the run was begun in this process.

    A run is a tenant's: that of its config, of ``tenant``, or of its first call. What the runs of
    one tenant teach is not used for another's.

    The engine is that of ``engine`` if it names one. Else it is the one that the graph's calls turn
    out to use, so that none is ever started for a graph that does not use it: the first run opens
    its program at its first call, later runs at their start.

    What goes wrong here never reaches the user's graph: it is logged as a warning, once, and
    the calls go on without a program. All methods may be called from any thread.
    """

    # In an event loop the handler has to see the start of a run before its first node runs.
    run_inline = True
    raise_error = False

    def __init__(
        self,
        templates: Templates,
        engine: EngineSource | None = None,
        tenant: str | None = None,
    ) -> None:
        self._lore = TenantTemplates(templates)
        self._tenant = tenant
        # Calls have named tenants that no config had named: who comes next is not known at a start.
        self._named_by_calls = False
        self._named_engine = engine or (lambda: None)
        self._last_engine: EngineClient | None = None
        self._watcher = Watcher()
        self._threads = Threads()
        # Keyed by the number of a run id: the id object itself must stay collectable.
        self._places: dict[int, Place] = {}
        self._warned = False
        self.savings = Savings()
        # Calls of other models than ours, by their class: nothing is gained there.
        self.foreign_calls: Counter[str] = Counter()
        self._lock = threading.Lock()

    @property
    def flow(self) -> TaskFlow | None:
        """What a run without a tenant is expected to do; None: nothing is known yet."""
        return self.lore("").templates.flow

    @property
    def sources(self) -> Mapping[str, str]:
        """Who says what a task of the flow is sent: ``declared``, ``traced`` or ``learned``."""
        return self.lore("").templates.sources

    def lore(self, tenant: str) -> Lore:
        """What is known of the runs of a tenant."""
        return self._lore.of(tenant)

    @property
    def engine(self) -> EngineClient | None:
        """Where the graph's calls go, as far as it is known; it may be closed."""
        return self._last_engine

    @property
    def running(self) -> int:
        """Traced runs that have begun and not ended; 0 when no run of the graph is under way."""
        with self._lock:
            return len(self._places)

    @property
    def sizes(self) -> dict[str, int]:
        """Entries of what is kept for runs, calls, threads that could go on, and tenants."""
        return {
            "runs": self.running,
            "calls": self._watcher.waiting,
            "threads": len(self._threads),
            "tenants": len(self._lore),
        }

    # -- for calls of the model -------------------------------------------------------------

    def depth(self, site: CallSite) -> int | None:
        """Levels between the graph's own run and the site; ``None``: not in this graph."""
        place = self.place(site.parent_run_id)
        return None if place is None else place.depth

    def bind(
        self, site: CallSite, engine: EngineClient, tenant: str = ""
    ) -> tuple[str | None, str | None, Callable[[Usage], None] | None]:
        """Program and task of a call that is about to be made on ``engine``; who notes its usage.

        Program and task are ``None`` when the call is not part of a program, or is of another
        tenant than the run. The second call of a node in one run is the task ``node#2``, and so on.
        """
        place = self.place(site.parent_run_id)
        if place is None:
            return None, None, None
        run = place.graph_run
        program = task = ended = None
        with self._guard("binding a call"), run.lock:
            _note_caller(run)
            name = numbered(site.name(run.namespace), run.calls)
            self._settle(run, engine, tenant)
            run.seen.add(tenant)
            if tenant != run.tenant:
                why = _MIXED
            elif run.program is not None and run.engine is engine:
                program, task, why = run.program, name, PROGRAM
            else:
                why = self._without(run)
            ended = partial(run.saved.note, name, why)
        return program, task, ended

    def _without(self, run: GraphRun) -> str:
        """Why a call of the run is in no program, for those who look at what was saved."""
        if run.inputs is None:
            return RESUMED
        return "no flow" if self.lore(run.tenant or "").templates.flow is None else "no program"

    def _settle(self, run: GraphRun, engine: EngineClient, tenant: str) -> None:
        """Make sure that the program is where the run's calls go, and of the same tenant."""
        if run.settled:
            return
        run.settled = True
        if run.tenant is None:
            run.tenant = tenant
            self._named_by_calls |= bool(tenant)
            if run.earlier_of not in (None, tenant):
                run.histories = {}  # another tenant's
                if run.past is not None:
                    run.inputs = None
        self._last_engine = wanted = self._named_engine() or engine
        if run.engine is not wanted or run.opened_for != run.tenant:
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
            if self._enter(run_id, parent_run_id, metadata):
                return
            run = self._begun(inputs, metadata or {})
            if (task := _current_task()) is not None:
                run.owner = weakref.ref(task)
            key = _key(run_id)
            with self._lock:
                if (other := self._places.get(key)) is not None:
                    # The caller gave one id to two runs at once. Which of them a call is in is not
                    # to be told: nothing is learned, and only the first has a program.
                    other.graph_run.inputs = None
                    return
                self._places[key] = Place(run, 0, run.namespace)
            if _end_is_noticed(run_id):
                # A run that is dropped (say, its event loop is never resumed) ends without a
                # callback. The id lives as long as LangGraph's objects for the run do.
                run.finalizer = weakref.finalize(run_id, self._abandoned, key)
                run.finalizer.atexit = False
            else:
                run.inputs = None  # nobody would close its program
            engine = self._named_engine() or self._last_engine
            known = run.tenant is not None or not self._named_by_calls
            if known and engine is not None and getattr(engine, "is_open", True):
                with run.lock:
                    self._open_program(run, engine)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """The graph, or something inside it, has ended."""
        with self._guard("the end of a run"):
            self._leave(_key(run_id), complete=True, outputs=outputs)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed, was cancelled, or its iterator was closed."""
        with self._guard("the end of a run"):
            left = self._leave(_key(run_id), failed=True)
            if left is not None and isinstance(error, asyncio.CancelledError | GeneratorExit):
                _cancel_callers(left)

    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool may call the model: its calls belong to the graph."""
        self._enter(run_id, parent_run_id, metadata)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """The tool has ended."""
        self._leave(_key(run_id))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """The tool has failed."""
        self._leave(_key(run_id))

    def on_chat_model_start(
        self,
        serialized: dict[str, Any] | None,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A call of a chat model begins, of whichever model."""
        if len(messages) == 1:
            self._watch(run_id, parent_run_id, metadata, messages[0], kwargs, serialized)

    def on_llm_start(
        self,
        serialized: dict[str, Any] | None,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A call of a model for plain text begins, of whichever model."""
        if len(prompts) == 1:
            self._watch(run_id, parent_run_id, metadata, prompts[0], kwargs, serialized)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """It was answered."""
        with self._guard("watching an answer"):
            self._watcher.ends(_key(run_id), response)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It failed."""
        self._watcher.fails(_key(run_id))

    # -- inside -----------------------------------------------------------------------------

    def place(self, run_id: UUID | None) -> Place | None:
        """Where a traced run stands; ``None``: not in a run of this graph."""
        with self._lock:
            return None if run_id is None else self._places.get(_key(run_id))

    def _begun(self, inputs: object, metadata: Mapping[str, Any]) -> GraphRun:
        """A run of the graph. LangGraph resumes one without saying how it was begun."""
        namespace = str(metadata.get("langgraph_checkpoint_ns", ""))
        tenant = tenant_in(metadata)
        if tenant is None:
            tenant = self._tenant
        # Inside of another graph it is begun anew by its node, whatever becomes of the whole.
        known = metadata.get("thread_id") if not namespace else None
        thread = None if known is None else (tenant, str(known))
        past = None if thread is None else self._threads.past(thread)
        if not is_command(inputs):
            before, earlier_of = ({}, None) if past is None else (past.after, past.tenant)
            texts = input_texts(inputs)
            return GraphRun(
                tenant, namespace, texts, thread, histories=before, earlier_of=earlier_of
            )
        if past is None:
            return GraphRun(tenant, namespace, None)
        counts = past.counts
        return GraphRun(
            tenant,
            namespace,
            past.inputs,
            thread,
            past,
            past.tenant,
            past.before,
            calls=counts.copy(),
            watched=Watched(counts),
        )

    def _watch(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        metadata: Mapping[str, Any] | None,
        prompt: list[BaseMessage] | str,
        options: dict[str, Any],
        serialized: Mapping[str, Any] | None,
    ) -> None:
        with self._guard("watching a call"):
            place = self.place(parent_run_id)
            site = call_site(metadata, (), parent_run_id)
            if place is not None and site is not None:
                run = place.graph_run
                if (foreign := foreign_model(options, serialized)) is not None:
                    with self._lock:
                        self.foreign_calls[foreign] += 1
                else:
                    run.seen.add(_tenant_of(options, metadata))
                self._watcher.begins(
                    _key(run_id), run.watched, site, run.namespace, prompt, options
                )

    def _enter(
        self, run_id: UUID, parent_run_id: UUID | None, metadata: Mapping[str, Any] | None
    ) -> bool:
        """Note a run inside the graph; ``False`` when its parent is not inside."""
        with self._lock:
            parent = None if parent_run_id is None else self._places.get(_key(parent_run_id))
            if parent is None:
                return False
            parent.graph_run.below.add(_key(run_id))
            namespace = str((metadata or {}).get("langgraph_checkpoint_ns", parent.namespace))
            self._places[_key(run_id)] = Place(
                parent.graph_run, parent.depth + 1, namespace, namespace != parent.namespace
            )
            return True

    def _leave(
        self, key: int, *, complete: bool = False, failed: bool = False, outputs: object = None
    ) -> GraphRun | None:
        """A run has ended; returns it if it is one of the graph itself."""
        with self._lock:
            place = self._places.pop(key, None)
            if place is None:
                return None
            run = place.graph_run
            run.below.discard(key)
            if place.depth > 0:
                if failed and place.node:
                    run.undone.add(place.namespace)
                return None
            for below in run.below:
                left = self._places.pop(below, None)
                if left is not None and left.node:
                    run.undone.add(left.namespace)
        if run.finalizer is not None:
            run.finalizer.detach()
        with run.lock:
            run.settled = True
            self._close_program(run)
        self.savings.add(run.saved)
        self._ended(run, complete=complete, outputs=outputs)
        return run

    def _ended(self, run: GraphRun, *, complete: bool, outputs: object) -> None:
        """A run of the graph is over; ``complete``: it came to its end, or was interrupted."""
        self._watcher.forgets(run.watched)
        tenants = run.seen if run.tenant is None else {*run.seen, run.tenant}
        if run.inputs is None or len(tenants) > 1:
            return
        tenant = next(iter(tenants), "")
        lore = self.lore(tenant)
        calls = run.watched.answered()
        earlier = run.past or Past(run.inputs, before=run.histories, tenant=tenant)
        if run.thread is not None:
            after = histories_of(outputs) if complete else {}
            self._threads.remember(run.thread, earlier.and_then(calls, run.undone, after))
        if complete:
            # A call that is made again after an interruption was learned from the first time.
            seen = [
                w.call.answer_only() if w.call.task in earlier.undone else w.call for w in calls
            ]
            told = lore.conversations.told(seen, run.histories)
            lore.templates.watch(run.inputs, told, earlier.answers)

    def _abandoned(self, key: int) -> None:
        # Called by the garbage collector, at any point of any thread, which may hold a lock
        # of ours or of the engine: so the work is done by a thread that holds none.
        threading.Thread(target=self._leave_abandoned, args=(key,), daemon=True).start()

    def _leave_abandoned(self, key: int) -> None:
        with self._guard("the end of an abandoned run"):
            self._leave(key)

    def _open_program(self, run: GraphRun, engine: EngineClient) -> None:
        tenant = run.tenant or ""
        lore = self.lore(tenant)
        flow = lore.templates.flow
        if run.inputs is None or flow is None:
            return
        known = dict(run.inputs)
        if run.past is not None:
            left, answers = left_of(flow, run.past.answers)
            if left is None:
                return
            flow, known = left, {**known, **answers}
        flow, said = lore.conversations.continued(fitted(flow, known), run.histories)
        # Nor may a text of the input stand in for one that no run gives.
        names = {v.name for v in flow.variables if v.kind == "input" and not v.opaque}
        inputs = {name: text for name, text in known.items() if name in names} | said
        run.program = engine.open_program(flow, inputs, tenant)
        run.engine, run.opened_for = engine, tenant

    def _close_program(self, run: GraphRun) -> None:
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
                self._lore.nobodys.templates.name,
                doing,
                error,
            )


def _key(run_id: UUID | str) -> int:
    """A number for a run; LangGraph passes on whatever the caller's config has as its id."""
    return run_id.int if isinstance(run_id, UUID) else uuid5(NAMESPACE_OID, str(run_id)).int


def _tenant_of(options: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> str:
    """The tenant of a call of ours, from what LangChain's callbacks get."""
    said = (options.get("invocation_params") or {}).get("tenant")
    return said if isinstance(said, str) else tenant_in(metadata) or ""


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs here
        return None


def _note_caller(run: GraphRun) -> None:
    task = _current_task()
    if task is not None and (run.owner is None or run.owner() is not task):
        run.callers.add(task)


def _cancel_callers(run: GraphRun) -> None:
    """A run was cancelled: end what its nodes still wait for.

    LangGraph does so itself, unless it is cancelled again while it is at it, as anyio, and so a web
    server, does at each turn of the loop: then the nodes would go on, with calls for nobody.
    """
    for task in list(run.callers):
        if not task.done():
            with suppress(RuntimeError):  # its loop is closed
                task.get_loop().call_soon_threadsafe(task.cancel)


def _end_is_noticed(run_id: object) -> bool:
    """Whether we hear when nobody holds the id any more; of a text we do not."""
    return isinstance(run_id, UUID)
