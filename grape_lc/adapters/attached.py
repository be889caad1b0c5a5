"""Attached graphs have a method more: ``explain``.

LangGraph copies a graph by calling its class with the attributes of its instance, so neither may
an attached graph have attributes of its own, nor its class another constructor. Its class is made
of the graph's, with ``explain`` and nothing else, once for each class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.pregel import Pregel

if TYPE_CHECKING:
    from grape_lc.adapters.explained import GraphExplanation

AnyGraph = Pregel[Any, Any, Any, Any]
GraphT = TypeVar("GraphT", bound=AnyGraph)


def as_attached(graph: GraphT) -> GraphT:
    """The same object, with ``explain``. It is to be a copy that nobody else has."""
    if not is_attached(graph):
        graph.__class__ = _attached_class(type(graph))
    return graph


def is_attached(graph: AnyGraph) -> bool:
    """Whether the graph came from ``attach``."""
    return getattr(type(graph), "explain", None) is _explain


def _explain(
    self: AnyGraph,
    inputs: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    tenant: str = "",
) -> GraphExplanation:
    """Where the graph's templates come from, what is prepared, and what the last runs saved.

    See ``grape_lc.adapters.explain.explain_graph``.
    """
    from grape_lc.adapters.explain import explain_graph  # it imports much

    return explain_graph(self, inputs, count_tokens, tenant)


@cache
def _attached_class(base: Any) -> Any:
    """A class of the same name, since users see it in errors and in traces."""
    members = {
        "__doc__": base.__doc__,
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__reduce_ex__": _reduce,
        # Laid out like the base, or an instance of that could not become one of this.
        "__slots__": (),
        "explain": _explain,
    }
    return type(base.__name__, (base,), members)


def _reduce(self: Any, protocol: Any) -> Any:
    """For pickle, which finds classes by name: by the graph's own, made an attached one again."""
    return _restore, (type(self).__base__,), self.__dict__


def _restore(base: Any) -> Any:
    return object.__new__(_attached_class(base))
