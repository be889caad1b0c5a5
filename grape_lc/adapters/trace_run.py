"""One run of a graph in a trace: with a copy of everything that it would keep."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks.base import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp, GraphRecursionError
from langgraph.pregel import Pregel
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Interrupt

from grape_lc.adapters.recording import RecordingEngine, TooManyCallsError, recording_engine
from grape_lc.adapters.trace_choices import ROUNDS
from grape_lc.adapters.trace_hooks import Director, director
from grape_lc.adapters.watching import foreign_model

AnyGraph = Pregel[Any, Any, Any, Any]

_INTERRUPT = "__interrupt__"
"""What LangGraph names a node that was interrupted in its updates."""

# Steps that a run may take beyond the rounds of each node: a loop without end ends here.
_SPARE_STEPS = 10
_MOST_INTERRUPTS = 8  # of one run that are answered


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run did not come to the graph's end."""

    why: str
    error: BaseException | None = None
    endless: bool = False
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run did.

    written: keys of the state that nodes wrote. stop: None at the end. foreign: calls of models
        that are not ours, by their class.
    """

    written: frozenset[str]
    stop: Stop | None
    foreign: Mapping[str, int]


def run_once(
    graph: AnyGraph,
    graph_input: Any,
    recorder: RecordingEngine,
    directing: Director,
    *,
    resume: bool = False,
) -> Ran:
    """Run the graph to its end or its first error, in a thread with an event loop of its own.

    So synchronous and asynchronous nodes run alike, also when the caller is in a loop.

    resume: go on behind interrupts, with an unknown text as the answer. That takes a checkpointer,
        whose states have to be serialised.
    """
    seen = _Observer()
    # Handlers of the user's would see a run that is none.
    config: dict[str, Any] = {k: v for k, v in (graph.config or {}).items() if k != "callbacks"}
    config["recursion_limit"] = (ROUNDS + 1) * len(graph.nodes) + _SPARE_STEPS
    config["callbacks"] = [seen]
    config["configurable"] = {**config.get("configurable", {}), "thread_id": "trace"}
    bare = graph.copy(
        {
            "checkpointer": InMemorySaver() if resume else None,
            "store": InMemoryStore(),
            "cache": None,
            "config": config,
            "interrupt_before_nodes": [],
            "interrupt_after_nodes": [],
        }
    )
    written: set[str] = set()

    def run() -> bool:
        recording_engine.set(recorder)
        director.set(directing)
        # The caller may itself be a node of a graph.
        var_child_runnable_config.set(None)
        return asyncio.run(_invoke(bare, graph_input, written, directing if resume else None))

    with ThreadPoolExecutor(1, thread_name_prefix="grape-trace") as executor:
        future = executor.submit(contextvars.copy_context().run, run)
        error = future.exception()
    stop = None
    if error is None:
        if future.result():
            why = "the graph was interrupted, to go on with an answer from outside"
            stop = Stop(why, interrupted=True)
    elif isinstance(error, GraphRecursionError | TooManyCallsError):
        stop = Stop(f"the graph went in circles ({type(error).__name__})", error, endless=True)
    else:
        where = "the graph" if seen.failed is None else f"node {seen.failed!r}"
        stop = Stop(f"{where} failed on symbolic text with {type(error).__name__}: {error}", error)
    return Ran(frozenset(written), stop, seen.foreign)


async def _invoke(
    graph: AnyGraph, graph_input: Any, written: set[str], answering: Director | None
) -> bool:
    """Whether the run ended with an interrupt. answering: goes on behind so many of them."""
    for _ in range(_MOST_INTERRUPTS if answering is not None else 1):
        interrupts: list[Interrupt] = []
        async for step in graph.astream(graph_input, stream_mode="updates"):
            for node, update in step.items() if isinstance(step, Mapping) else ():
                if node == _INTERRUPT:
                    interrupts += update
                for part in update if isinstance(update, list) else [update]:
                    if isinstance(part, Mapping):
                        written.update(str(key) for key in part)
        if not interrupts or answering is None:
            return bool(interrupts)
        text = answering.unknown("an answer to an interrupt")
        graph_input = Command(resume={interrupt.id: text for interrupt in interrupts})
    return True


class _Observer(BaseCallbackHandler):
    """Notes the first node that fails, and calls of models that really are made."""

    run_inline = True

    def __init__(self) -> None:
        self.failed: str | None = None
        self.foreign: Counter[str] = Counter()
        self._nodes: dict[UUID, str] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        node = (metadata or {}).get("langgraph_node")
        if isinstance(node, str):
            self._nodes[run_id] = node

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if self.failed is None and not isinstance(error, GraphBubbleUp | asyncio.CancelledError):
            self.failed = self._nodes.get(run_id)

    def on_chat_model_start(
        self, serialized: dict[str, Any] | None, messages: list[list[BaseMessage]], **kwargs: Any
    ) -> None:
        self._called(serialized, kwargs)

    def on_llm_start(
        self, serialized: dict[str, Any] | None, prompts: list[str], **kwargs: Any
    ) -> None:
        self._called(serialized, kwargs)

    def _called(self, serialized: dict[str, Any] | None, options: dict[str, Any]) -> None:
        if (foreign := foreign_model(options, serialized)) is not None:
            self.foreign[foreign] += 1
