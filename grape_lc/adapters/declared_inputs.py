"""Input variables of declared prompts that no run will give, told when the graph is attached."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from langgraph.pregel import Pregel

from grape_lc.adapters.inputs import identifier
from grape_lc.adapters.merging import Layer

logger = logging.getLogger(__name__)


def warn_of_unknown_inputs(graph: Pregel[Any, Any, Any, Any], layers: Iterable[Layer]) -> None:
    """Warn once of all input variables of declared prompts that are no part of the graph's state.

    Says nothing where the state's keys are not known: of the functional API, and of a state that
    is one value.
    """
    keys = _keys(graph)
    if not keys:
        return
    wrong = {
        name: None
        for layer in layers
        if layer.source == "declared"
        for name in _inputs(layer)
        # What is inside of a value has a name that goes on.
        if not any(name == key or name.startswith(f"{key}_") for key in keys)
    }
    if not wrong:
        return
    nodes = [name for name in wrong if name in graph.nodes]
    logger.warning(
        "declared prompts of graph %r have input variables that no run gives, so that nothing is "
        "prepared behind them: %s; the keys of its state: %s%s",
        graph.name,
        ", ".join(map(repr, wrong)),
        ", ".join(keys),
        f"; for the answer of the node {nodes[0]!r} declare reads=[{nodes[0]!r}], or the variable "
        "as an IntermediateVar that its task writes"
        if nodes
        else "",
    )


def _keys(graph: Pregel[Any, Any, Any, Any]) -> list[str]:
    """Keys of the input and of the state, by the names that variables have for them."""
    schemas = getattr(getattr(graph, "builder", None), "schemas", {})
    keys = (key for channels in schemas.values() for key in channels if key != "__root__")
    return list(dict.fromkeys(map(identifier, keys)))


def _inputs(layer: Layer) -> Iterator[str]:
    for template in layer.templates:
        for origin in template.origins.values():
            yield from (one.name for one in origin.all() if one.kind == "input")
