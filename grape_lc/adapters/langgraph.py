"""attach: let the engine know of the runs of a compiled LangGraph graph."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.callbacks.base import BaseCallbackManager
from langgraph.constants import START
from langgraph.pregel import Pregel

from grape_lc.adapters.attached import as_attached
from grape_lc.adapters.chat_settings import ServedModel
from grape_lc.adapters.declared import declared_layer, declares_prompt
from grape_lc.adapters.declared_inputs import warn_of_unknown_inputs
from grape_lc.adapters.flow_file import FlowFile, check_fresh, load_flow_file
from grape_lc.adapters.handler import EngineSource, ProgramHandler
from grape_lc.adapters.learning import Learner
from grape_lc.adapters.merging import Layer
from grape_lc.adapters.savings import savings_path
from grape_lc.adapters.source_hash import source_hash
from grape_lc.adapters.template_store import TemplateStore, learned_path
from grape_lc.adapters.templates import Templates
from grape_lc.adapters.trace_process import is_tracing
from grape_lc.adapters.tracing import check_compiled, to_taskflow
from grape_lc.config import graphs_dir
from grape_lc.errors import ConfigError, FlowError
from grape_lc.files import is_special
from grape_lc.flow.taskflow import TaskFlow

if TYPE_CHECKING:
    from grape_lc.engine.base import EngineClient

__all__ = ["attach", "declares_prompt", "to_taskflow"]

logger = logging.getLogger(__name__)

AnyGraph = Pregel[Any, Any, Any, Any]

GraphT = TypeVar("GraphT", bound=Pregel[Any, Any, Any, Any])

_CACHE, _MEMORY = "cache", "memory"


def attach(
    graph: GraphT,
    flow: TaskFlow | str | os.PathLike[str] | None = None,
    *,
    trace: bool = False,
    learn: bool = True,
    learned: str | os.PathLike[str] = _CACHE,
    model: ServedModel | EngineClient | None = None,
) -> GraphT:
    """A copy of a compiled graph whose runs the engine knows of beforehand.

    LangGraph runs the graph as ever, with the same results. When a run starts, a flow tells
    the engine which prompts will come, and while one call decodes, the prompts of the next are
    prefilled. What a node really sends decides; a prompt that the flow did not foresee, or
    foresaw wrongly, is an ordinary call.

    The flow is put together, task by task, of what is *declared*, by ``flow`` or at the nodes with
    ``declares_prompt``; what was *traced*; and what is *learned*; in this order.

    flow: its task names are names of nodes (``outer/inner`` in a subgraph, ``node#2`` for a
        node's second call, ``node[0]`` for the first of several Send), its input variables keys
        of the graph's input (``messages_0`` for the text of the first message under
        ``messages``). Or the path of a file: of ``grape trace``, or of a TaskFlow as JSON.
    trace: find out by ``to_taskflow(graph)``, which runs the nodes, what is not declared.
    learn: find out the rest by watching the graph's runs: from the third run on, what earlier ones
        had in common is prepared. A declared or traced prompt that was wrong in three runs in a
        row is then set aside, with a warning. If this is false, and nothing declared or traced,
        the copy runs natively and nothing is gained.
    learned: where it is kept what runs taught. ``"cache"``: in a file of the cache folder, without
        any text of a prompt; a later process then needs one run instead of two. ``"memory"``:
        nowhere. Else the path of a file of yours (mode 0600), which **holds texts of prompts as
        they were sent**; a later process then prepares the first run.
    model: the model or the engine to use. Without one it is the engine of the graph's own
        ChatGrape. Neither starts an engine before a call needs it.

    How much each call found prefilled is kept of the last runs, as numbers, in the cache folder too
    unless ``learned`` is ``"memory"``; ``graph.explain()`` of the copy shows it.

    A run may be a tenant's, ``app.invoke(x, config={"metadata": {"tenant": "acme"}})``; without a
    word it is that of ``model`` or of the run's first call. What is learned from the runs of a
    tenant is used for that tenant only, and not kept in a file.

    An attached graph may be attached again: the new flow takes the place of the old one.

    Raises FlowError when a flow is not well formed or has a task that is no node, or when a
    declared prompt reads the answer of one, ConfigError when a file cannot be read or none can be
    kept at ``learned``, TraceError when tracing finds nothing, and TypeError when the graph is not
    compiled or ``flow`` is neither a TaskFlow nor a path.
    """
    check_compiled(graph)
    _check_flow(flow)
    _check_learned(learned)
    bare = _detach(graph)
    digest = cache(lambda: source_hash(bare))
    layers = _layers(bare, flow, digest, trace=trace)
    warn_of_unknown_inputs(bare, layers)
    name = next((layer.flow.name for layer in layers if layer.flow), graph.name or "flow")
    learner = store = None
    if learn:
        store = _store(bare, learned, digest)
        learner = Learner(name, None if store is None else store.load())
    elif not layers:
        logger.info(
            "graph %r was attached without a flow: its calls run as ever and nothing is "
            "prefilled ahead; pass a TaskFlow, or trace=True, or let it learn",
            graph.name,
        )
        return as_attached(bare)
    templates = Templates(name, layers, learner, store)
    tenant = model.tenant if isinstance(model, ServedModel) else ""
    handler = ProgramHandler(templates, _engine_source(model), tenant or None)
    if learned != _MEMORY:
        folder = None
        with suppress(ConfigError):  # said when something is written
            folder = graphs_dir()  # of now: it is written much later, on another thread
        handler.savings.keep_in(lambda: savings_path(bare.name or "flow", digest(), folder))
    return as_attached(bare.with_config(callbacks=[handler]))


def _layers(
    graph: AnyGraph,
    flow: TaskFlow | str | os.PathLike[str] | None,
    digest: Callable[[], str],
    *,
    trace: bool,
) -> list[Layer]:
    """What is declared and what was traced, those that win first. digest: ``source_hash``."""
    declared: list[Layer] = []
    traced: list[Layer] = []
    if isinstance(flow, TaskFlow):
        flow.validate_flow()
        _check_tasks(graph, flow)
        declared.append(Layer.of("declared", flow))
    elif flow is not None:
        try:
            layer = _of_file(graph, flow, digest)
        except (ConfigError, FlowError) as error:
            if not is_tracing():
                raise
            # The trace is to write this very file. It is no warning: that would be written into
            # the file, and be another one the next time.
            logger.info("%s is left out of the trace: %s", flow, error)
        else:
            (declared if layer.source == "declared" else traced).append(layer)
    at_nodes = declared_layer(graph)
    if at_nodes.templates:
        declared.append(at_nodes)
    if trace:
        traced.append(Layer.of("traced", to_taskflow(graph)))
    return declared + traced


def _of_file(graph: AnyGraph, path: str | os.PathLike[str], digest: Callable[[], str]) -> Layer:
    """What a flow's file says of the graph: traced, or declared if it is a bare TaskFlow."""
    file = load_flow_file(path)
    file.flow.validate_flow()
    if file.source_hash is None:
        _check_tasks(graph, file.flow)
        return Layer.of("declared", file.flow)
    if file.source_hash == digest():
        return Layer.of("traced", file.flow)
    # Of code that has changed since, what is no node any more is nobody's mistake. Of the
    # functional API nobody knows the nodes before they run.
    gone = set(_strangers(graph, file.flow)) if hasattr(graph, "builder") else set()
    if gone and len(gone) == len(file.flow.tasks):
        raise FlowError(_of_another(file, graph, path))
    if not is_tracing():
        check_fresh(file, graph.name, digest(), path)
    return Layer.of("traced", file.flow).without(gone)


def _of_another(file: FlowFile, graph: AnyGraph, path: str | os.PathLike[str]) -> str:
    target = file.graph or "MODULE:GRAPH"
    return (
        f"{os.fspath(path)} is the flow of {target}, which is another graph than {graph.name!r}: "
        f"none of its tasks ({', '.join(task.name for task in file.flow.tasks)}) is one of the "
        f"nodes ({', '.join(_nodes(graph))}). If they have new names only, trace it again: "
        f"grape trace {target} -o {os.fspath(path)}"
    )


def _store(
    graph: AnyGraph, learned: str | os.PathLike[str], digest: Callable[[], str]
) -> TemplateStore | None:
    """Where what is learned of the graph is kept; None: nowhere. digest: ``source_hash``."""
    if learned == _MEMORY:
        return None
    name = graph.name or "flow"
    if learned != _CACHE:
        path = Path(learned).absolute()
        try:
            refused = is_special(path) or not path.parent.is_dir()
        except (OSError, ValueError):
            refused = True
        if refused:
            raise ConfigError(
                f"learned={os.fspath(learned)!r}: no file can be kept there; give a path in a "
                f"folder that exists, of a file or of none yet, or {_CACHE!r}, or {_MEMORY!r}"
            )
        return TemplateStore(path, name, digest(), content=True)
    try:
        source = digest()
        return TemplateStore(learned_path(name, source), name, source, content=False)
    except Exception as error:  # noqa: BLE001 - nobody has asked for the file
        logger.info("what runs of graph %r teach is not kept: %r", name, error)
        return None


def _check_flow(flow: object) -> None:
    """Refuse what is no flow and no path."""
    if flow is not None and not isinstance(flow, TaskFlow | str | os.PathLike):
        raise TypeError(
            f"attach() takes as its flow a TaskFlow or the path of a file, not "
            f"{type(flow).__name__} ({flow!r:.100}); without one, leave it out"
        )


def _check_learned(learned: object) -> None:
    """Refuse what is no place, and a word that looks like a mistyped one."""
    advice = (
        f"give {_CACHE!r}, {_MEMORY!r} to keep nothing, or the path of a file, such as "
        "'./prompts.json', which will hold texts of prompts"
    )
    if not isinstance(learned, str | os.PathLike):
        raise ConfigError(f"learned={learned!r} says no place: {advice}")
    if isinstance(learned, str) and learned not in (_CACHE, _MEMORY):
        path = Path(learned)
        if not path.suffix and path.name == learned:
            raise ConfigError(f"learned={learned!r} is neither a place nor a path: {advice}")


def _engine_source(model: ServedModel | EngineClient | None) -> EngineSource | None:
    if model is None:
        return None
    # Asked anew at each run: an engine that was closed may have been made anew.
    return model.served_by if isinstance(model, ServedModel) else lambda: model


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


def _check_tasks(graph: AnyGraph, flow: TaskFlow) -> None:
    """Refuse a flow that can never match."""
    if strangers := _strangers(graph, flow):
        raise FlowError(
            f"flow {flow.name!r}: task {strangers[0]!r} names no node of the graph "
            f"{graph.name!r}; its nodes: {', '.join(_nodes(graph))}"
        )


def _strangers(graph: AnyGraph, flow: TaskFlow) -> list[str]:
    """Tasks that name no node; of names in subgraphs the first part is looked at."""
    # A name goes on with the path inside of the node, the number of a Send or of a call.
    return [
        task.name
        for task in flow.tasks
        if not any(
            task.name == n or task.name.startswith((f"{n}/", f"{n}[", f"{n}#"))
            for n in _nodes(graph)
        )
    ]


def _nodes(graph: AnyGraph) -> list[str]:
    return [name for name in graph.nodes if name != START]
