"""Where the nodes and conditional edges of a graph can go, declared or read in their code.

An edge whose ends are not declared names them in its code all the same, as constants:

    lambda state: "revise" if "BAD" in state["review"] else END
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from types import CodeType
from typing import Any

from langgraph.graph import END
from langgraph.pregel import Pregel

from grape_lc.adapters.callsite import function_of

_OUTER = "/"


class Ends:
    """The ends that are possible at each place of a graph and its subgraphs."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        self._graphs: dict[str, Pregel[Any, Any, Any, Any]] = {"": graph}
        for namespace, inner in graph.get_subgraphs(recurse=True):
            if isinstance(inner, Pregel):
                self._graphs[namespace.replace("|", _OUTER)] = inner

    def of_edge(
        self, site: str, function: Callable[..., Any] | None, declared: Sequence[str] | None
    ) -> tuple[str, ...]:
        """Ends of a conditional edge; none where they cannot be told, or it sends packets."""
        code = _code(function)
        if code is not None and "Send" in code.co_names:
            return ()
        if declared is not None:
            return tuple(declared)
        return self._named(site, code)

    def of_node(self, site: str) -> tuple[str, ...]:
        """Ends of the Command that a node returns."""
        graph, node = self._place(site)
        builder = getattr(graph, "builder", None)
        spec = builder.nodes.get(node) if builder is not None else None
        if spec is None:
            return ()
        if spec.ends:
            return tuple(spec.ends)
        return self._named(site, _code(function_of(spec.runnable)))

    def _named(self, site: str, code: CodeType | None) -> tuple[str, ...]:
        graph, _ = self._place(site)
        if graph is None or code is None:
            return ()
        words = [*_words(code)]
        return tuple(dict.fromkeys(word for word in words if word in graph.nodes or word == END))

    def _place(self, site: str) -> tuple[Pregel[Any, Any, Any, Any] | None, str]:
        outer, _, node = site.rpartition(_OUTER)
        return self._graphs.get(outer), node.partition("[")[0]


def _code(function: Any) -> CodeType | None:
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _words(code: CodeType) -> Iterator[str]:
    """Texts that the code names, those of functions inside of it too, but for keys it looks up."""
    if "END" in code.co_names:
        yield END
    before = ""
    instructions = [*dis.get_instructions(code)]
    for instruction, following in zip_longest(instructions, instructions[1:]):
        constant = instruction.argval if instruction.opname.startswith("LOAD_CONST") else None
        # A node is often called as the key that it writes: state["plan"], state.get("plan").
        is_key = before == "get" or (following is not None and _is_look_up(following))
        if isinstance(constant, str) and not is_key:
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from sorted(c for c in constant if isinstance(c, str))
        elif isinstance(constant, CodeType):
            yield from _words(constant)
        if instruction.opname != "PRECALL":
            before = str(instruction.argval)


def _is_look_up(instruction: dis.Instruction) -> bool:
    return instruction.opname == "BINARY_SUBSCR" or instruction.argrepr == "[]"
