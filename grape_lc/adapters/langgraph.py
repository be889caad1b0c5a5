"""attach: let the engine know of the runs of a compiled LangGraph graph."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.callbacks.base import BaseCallbackManager
from langgraph.pregel import Pregel

from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.tracing import check_compiled, to_taskflow
from grape_lc.errors import ConfigError, FlowError

if TYPE_CHECKING:
    from grape_lc.engine.base import EngineClient
    from grape_lc.flow.taskflow import TaskFlow

__all__ = ["attach", "to_taskflow"]

logger = logging.getLogger(__name__)

GraphT = TypeVar("GraphT", bound=Pregel[Any, Any, Any, Any])


def attach(
    graph: GraphT,
    flow: TaskFlow | None = None,
    *,
    trace: bool = False,
    model: ChatGrape | EngineClient | None = None,
) -> GraphT:
    """A copy of a compiled graph whose runs the engine knows of beforehand.

    LangGraph runs the graph as ever, with the same results. When a run starts, ``flow`` tells
    the engine which prompts will come, and while one call decodes, the prompts of the next are
    prefilled. What a node really sends decides; a prompt that ``flow`` did not foresee, or
    foresaw wrongly, is an ordinary call.

    flow: its task names are names of nodes (``outer/inner`` in a subgraph, ``node#2`` for a
        node's second call, ``node[0]`` for the first of several Send), its input variables keys
        of the graph's input (``messages_0`` for the text of the first message under
        ``messages``).
    trace: find the flow out by ``to_taskflow(graph)``, which runs the nodes once.
    model: the engine to use. Without one it is the engine of the graph's own ChatGrape.

    With neither ``flow`` nor ``trace`` the copy runs natively and nothing is gained. An
    attached graph may be attached again: the new flow takes the place of the old one.

    Raises ConfigError when both ``flow`` and ``trace`` are given, FlowError when the flow is
    not well formed or has a task that is no node, TraceError when tracing finds nothing, and
    TypeError when the graph is not compiled.
    """
    check_compiled(graph)
    if trace and flow is not None:
        raise ConfigError(f"give a flow (here {flow.name!r}) or trace=True, not both")
    bare = _detach(graph)
    if trace:
        flow = to_taskflow(bare)
    if flow is None:
        logger.info(
            "graph %r was attached without a flow: its calls run as ever and nothing is "
            "prefilled ahead; pass a TaskFlow, or trace=True",
            graph.name,
        )
        return bare
    flow.validate_flow()
    _check_tasks(bare, flow)
    engine = model.engine if isinstance(model, ChatGrape) else model
    return bare.with_config(callbacks=[ProgramHandler(flow, engine)])


def _detach(graph: GraphT) -> GraphT:
    config: dict[str, Any] = dict(graph.config or {})
    callbacks = config.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        manager = callbacks.copy()
        for handler in list(manager.handlers):
            if isinstance(handler, ProgramHandler):
                manager.remove_handler(handler)
        config["callbacks"] = manager
    elif callbacks:
        config["callbacks"] = [h for h in callbacks if not isinstance(h, ProgramHandler)]
    return graph.copy({"config": config})


def _check_tasks(graph: Pregel[Any, Any, Any, Any], flow: TaskFlow) -> None:
    """Refuse a flow that can never match; of names in subgraphs the first part is checked."""
    nodes = [name for name in graph.nodes if name != "__start__"]
    for task in flow.tasks:
        # A name goes on with the path inside of the node, the number of a Send or of a call.
        if not any(
            task.name == n or task.name.startswith((f"{n}/", f"{n}[", f"{n}#")) for n in nodes
        ):
            raise FlowError(
                f"flow {flow.name!r}: task {task.name!r} names no node of the graph "
                f"{graph.name!r}; its nodes: {', '.join(nodes)}"
            )
