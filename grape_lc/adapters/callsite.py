"""Where in a LangGraph run a call of the model happens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from langchain_core.callbacks.base import BaseCallbackHandler, BaseCallbackManager
from langchain_core.callbacks.manager import BaseRunManager
from langchain_core.runnables.config import var_child_runnable_config

# What LangGraph puts between the levels of a checkpoint namespace, and behind each name:
# ``outer:<id>|inner:<id>``, with a bare number between two of them when the outer node runs
# its subgraph a second time.
_LEVEL = "|"
_ID = ":"

_NUMBER = re.compile(r"\[\d+\]|#\d+")


@dataclass(frozen=True, slots=True)
class CallSite:
    """The node that runs now.

    namespace: its checkpoint namespace, with an id at each level.
    node: its name.
    push: its number among the ``Send`` tasks of this step; ``None`` for any other node.
    parent_run_id: the run under which a call of the model made here is traced.
    handlers: the callback handlers of that run.
    """

    namespace: str
    node: str
    push: int | None
    parent_run_id: UUID | None
    handlers: tuple[BaseCallbackHandler, ...]

    def name(self, root: str = "") -> str:
        """The node's name within the graph that runs under the namespace ``root``.

        A node of that graph is known by its name; one of a subgraph by all names on the way,
        ``outer/inner``; the n-th ``Send`` to a node as ``node[n]``, from 0.
        """
        levels = self.namespace.removeprefix(root).split(_LEVEL)
        outer = [level.partition(_ID)[0] for level in levels[:-1] if _ID in level]
        number = "" if self.push is None else f"[{self.push}]"
        return "/".join([*outer, self.node]) + number


def numbered(name: str, counts: Counter[str]) -> str:
    """The task of a node's next call: ``node`` for its first, ``node#2`` for its second, ..."""
    counts[name] += 1
    return name if counts[name] == 1 else f"{name}#{counts[name]}"


def unnumbered(name: str) -> str:
    """The node of a task or of a call site, without the numbers of Sends and calls."""
    return _NUMBER.sub("", name)


def function_of(runnable: Any) -> Any:
    """The function that the runnable of a node or an edge wraps, or None."""
    return getattr(runnable, "func", None) or getattr(runnable, "afunc", None)


def current_call_site(run_manager: BaseRunManager | None = None) -> CallSite | None:
    """The site of a call that is made here and now, or ``None`` outside of LangGraph.

    Read from the context variable that LangChain hands down, since the usual paths call a
    model's ``_stream`` without a run manager. In a thread that got no context, ``run_manager``
    still knows, if the node passed its config on.
    """
    config = var_child_runnable_config.get() or {}
    callbacks = config.get("callbacks")
    if isinstance(callbacks, BaseCallbackManager):
        site = call_site(config.get("metadata"), callbacks.handlers, callbacks.parent_run_id)
        if site is not None:
            return site
    if run_manager is not None:
        return call_site(run_manager.metadata, run_manager.handlers, run_manager.parent_run_id)
    return None


def call_site(
    metadata: Mapping[str, Any] | None,
    handlers: Sequence[BaseCallbackHandler],
    parent_run_id: UUID | None,
) -> CallSite | None:
    """The site that LangGraph's ``metadata`` tells of; ``None`` outside of LangGraph."""
    if not metadata or not isinstance(node := metadata.get("langgraph_node"), str):
        return None
    given = metadata.get("langgraph_path")
    path: Sequence[Any] = given if isinstance(given, list | tuple) else ()
    # ("__pregel_push", n, ...) is a Send; tasks of the functional API have a path as the
    # second entry, and their numbers mix all tasks of the caller.
    number = path[1] if len(path) > 1 and path[0] == "__pregel_push" else None
    return CallSite(
        namespace=str(metadata.get("langgraph_checkpoint_ns", "")),
        node=node,
        push=number if isinstance(number, int) else None,
        parent_run_id=parent_run_id,
        handlers=tuple(handlers),
    )
