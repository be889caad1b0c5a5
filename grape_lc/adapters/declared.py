r"""Prompts that are declared at the nodes which send them.

@declares_prompt("Plan a program: {problem}")
def plan(state): ...

@declares_prompt(
    [("system", "You write Python."), ("user", "Plan:\n{plan|strip}")], reads=["plan"]
)
def code(state): ...
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from langgraph.constants import START
from langgraph.pregel import Pregel

from grape_lc.adapters.inputs import identifier
from grape_lc.adapters.merging import Layer, Origin, Template, merge
from grape_lc.errors import CycleError, FlowError, FlowFormatError
from grape_lc.flow.template import MessageTemplate, PromptLike, PromptTemplate

_MARK = "__grape_prompts__"

NodeT = TypeVar("NodeT")

AnyGraph = Pregel[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Declaration:
    """The prompts that a node sends, in order; reads: variables of them that are answers of tasks,
    and the tasks' names.
    """

    prompts: tuple[PromptTemplate, ...]
    reads: Mapping[str, str]


def declares_prompt(
    *prompts: PromptLike, reads: Mapping[str, str] | Iterable[str] = ()
) -> Callable[[NodeT], NodeT]:
    """Say at a node's function what it sends to the model. ``attach`` finds it there.

    prompts: those of the node's calls, in order: ``node``, ``node#2``, ... Each is what
        ``llm.invoke`` of a ChatGrape is given: a text, which is one user message, or messages as
        (role, content) pairs. For a GrapeLLM it is a ``PromptTemplate(text=...)``. Slots are
        those of a TaskFlow: ``{name}`` or ``{name|transducer}``, and ``{{`` for a brace.
    reads: which of the variables are answers of the model, and of which call:
        ``{"draft": "write#2"}``, or names of variables that are called like their node:
        ``["plan"]``. All others are texts of the graph's input, named as in a TaskFlow
        (``problem``, ``messages_0``).

    The function is returned as it was, with a mark on it: it may be synchronous or asynchronous,
    a callable object is marked itself or at its ``__call__``, and a runnable is marked itself. What
    a node really sends decides, as with any flow.

    Raises FlowError: PromptSyntaxError for a template that does not parse, FlowFormatError for
    ``reads`` that names no variable, and when the function is marked already or takes no mark.
    """
    if not prompts:
        raise FlowFormatError("declares_prompt() without a prompt: give those that the node sends")
    templates = tuple(_template(prompt) for prompt in prompts)
    declaration = Declaration(templates, _reads(reads, templates))

    def mark(node: NodeT) -> NodeT:
        name = getattr(node, "__qualname__", type(node).__name__)
        if declaration_of(node) is not None:
            raise FlowFormatError(
                f"the prompts of {name} are declared twice: give all of them to one declares_prompt"
            )
        try:
            setattr(node, _MARK, declaration)
        except (AttributeError, TypeError, ValueError) as error:
            raise FlowFormatError(
                f"{name} cannot be marked ({error}): decorate a function, the __call__ of a class, "
                "or declare its prompts in a TaskFlow"
            ) from error
        return node

    return mark


def declaration_of(node: object) -> Declaration | None:
    """What ``declares_prompt`` said of a function, of a callable, or of the runnable it became."""
    seen: list[object] = []
    waiting = [node]
    while waiting:
        part = waiting.pop(0)
        if part is None or any(part is other for other in seen):
            continue
        seen.append(part)
        declaration = getattr(part, _MARK, None)
        if isinstance(declaration, Declaration):
            return declaration
        if isinstance(part, functools.partial):
            waiting.append(part.func)
        elif callable(part):
            waiting.append(type(part).__call__)
        # What LangGraph and LangChain wrap functions in.
        waiting += [getattr(part, name, None) for name in ("func", "afunc")]
    return None


def declared_layer(graph: AnyGraph) -> Layer:
    """The templates that are declared at the nodes of a graph and of its subgraphs.

    A name in ``reads`` is looked for in the node's own graph, then in those around it.

    Raises FlowError for a name that is no call, and CycleError for prompts that wait for each
    other's answers.
    """
    nodes = dict(_nodes(graph, ""))
    counts = {
        name: len(declaration.prompts)
        for name, (declaration, _) in nodes.items()
        if declaration is not None
    }
    templates = []
    for name, (declaration, prefix) in nodes.items():
        if declaration is None:
            continue
        reads = {
            variable: _resolved(task, prefix, nodes.keys(), counts, f"node {name!r}: {variable!r}")
            for variable, task in declaration.reads.items()
        }
        for number, prompt in enumerate(declaration.prompts, 1):
            origins = {
                variable: Origin("answer", reads[variable])
                if variable in reads
                else Origin("input", variable)
                for variable in prompt.variables
            }
            task = name if number == 1 else f"{name}#{number}"
            templates.append(Template(task, prompt, origins, f"{identifier(task)}_text"))
    layer = Layer("declared", templates)
    kept = merge("declared", [layer]).sources
    if left_out := [t.task for t in templates if t.task not in kept]:
        raise CycleError(
            f"declared prompts of graph {graph.name!r} wait for each other's answers: "
            f"{', '.join(map(repr, left_out))} would close a circle; a later round of a loop is a "
            "call of its own: node#2"
        )
    return layer


def _template(prompt: PromptLike) -> PromptTemplate:
    if isinstance(prompt, str):
        return PromptTemplate(messages=(MessageTemplate("user", prompt),))
    if not isinstance(prompt, Iterable | PromptTemplate):
        raise FlowFormatError(
            f"declares_prompt({prompt!r}): a prompt is a text, (role, content) pairs or a "
            f"PromptTemplate, not {type(prompt).__name__}"
        )
    return PromptTemplate.of(prompt)


def _reads(
    reads: Mapping[str, str] | Iterable[str], prompts: tuple[PromptTemplate, ...]
) -> dict[str, str]:
    if isinstance(reads, str):
        raise FlowFormatError(f"reads={reads!r}: write [{reads!r}], or {{variable: node}}")
    named = dict(reads) if isinstance(reads, Mapping) else {name: name for name in reads}
    variables = list(dict.fromkeys(name for prompt in prompts for name in prompt.variables))
    for variable, task in named.items():
        if variable not in variables:
            raise FlowFormatError(
                f"reads names {variable!r}, which no prompt has; "
                f"variables: {', '.join(map(repr, variables)) or 'none'}"
            )
        if not isinstance(task, str):
            raise FlowFormatError(f"reads[{variable!r}] is {task!r}: write the name of a node")
    return named


def _nodes(graph: AnyGraph, prefix: str) -> Iterator[tuple[str, tuple[Declaration | None, str]]]:
    """Every node that is known without running: its declaration, and the path of its graph."""
    subgraphs = dict(graph.get_subgraphs())
    for name, node in graph.nodes.items():
        if name == START:
            continue
        yield prefix + name, (declaration_of(node.bound), prefix)
        if isinstance(inner := subgraphs.get(name), Pregel):
            yield from _nodes(inner, f"{prefix}{name}/")


def _resolved(
    task: str, prefix: str, nodes: Iterable[str], counts: Mapping[str, int], who: str
) -> str:
    """The full name of the task that ``task`` names, seen from the graph at ``prefix``."""
    name, _, number = task.partition("#")
    node = name.partition("[")[0]
    known = set(nodes)
    levels = prefix.split("/")[:-1]
    for depth in range(len(levels), -1, -1):
        path = "".join(f"{level}/" for level in levels[:depth])
        if path + node not in known:
            continue
        if number and not number.isdigit():
            break
        if number and counts.get(path + node, int(number)) < int(number):
            raise FlowError(
                f"{who} reads {task!r}, but {path + node!r} declares {counts[path + node]} prompts"
            )
        return path + task
    close = difflib.get_close_matches(task, sorted(known), 1)
    raise FlowError(
        f"{who} reads the answer of {task!r}, which is no node; "
        + (f"did you mean {close[0]!r}? " if close else "")
        + f"nodes: {', '.join(sorted(known))}"
    )
