"""Explain a graph: where its templates come from, what is prepared when, and what that saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from langchain_core.callbacks.base import BaseCallbackManager
from langgraph.pregel import Pregel

from grape_lc.adapters.attached import is_attached
from grape_lc.adapters.declared import declared_layer
from grape_lc.adapters.explain_edges import edges_into
from grape_lc.adapters.explain_order import in_order
from grape_lc.adapters.explain_shares import Newest, Rows, outcome_of
from grape_lc.adapters.explain_words import plural
from grape_lc.adapters.explained import (
    CallReport,
    EdgeReport,
    GraphExplanation,
    LastCalls,
    RunReport,
    Source,
)
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.adapters.merging import Layer
from grape_lc.adapters.savings import CallSaving, RunSavings
from grape_lc.engine.base import EngineClient
from grape_lc.errors import EngineError
from grape_lc.flow.explain import explain, explain_task
from grape_lc.flow.explanation import CHARACTERS_PER_TOKEN, Explanation, TaskExplanation
from grape_lc.flow.layout import advise
from grape_lc.flow.taskflow import TaskFlow

_ATTACHED = (
    "the graph is attached without a flow and does not learn: nothing is prepared ahead; attach "
    "it with a TaskFlow, or let it learn"
)
_PLAIN = "the graph is not attached: nothing is prepared ahead until attach(graph) makes a copy"


def explain_graph(
    graph: Pregel[Any, Any, Any, Any],
    inputs: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    tenant: str = "",
) -> GraphExplanation:
    """What is known of an attached graph now; ``graph.explain()`` is the same.

    inputs: values of input variables, as many as are known; they only give sizes.
    count_tokens: tokens of a text. Without it the engine counts, if the graph has used one that
        is open; else sizes of templates are estimates.
    tenant: whose runs taught what is learned. Numbers of the last runs are those of all tenants.

    Nothing is run and no engine is started. Raises FlowInputError for inputs that the flow does
    not have.
    """
    name = graph.name or "graph"
    handler = handler_of(graph)
    if handler is None:
        note = _ATTACHED if is_attached(graph) else _PLAIN
        return explain_flow(name, None, notes=(note,))
    engine = handler.engine
    if engine is not None and not getattr(engine, "is_open", True):
        engine = None
    runs = handler.savings.runs
    templates = handler.lore(tenant).templates

    def found(engine: EngineClient | None) -> GraphExplanation:
        return explain_flow(
            name,
            templates.flow,
            sources=templates.sources,
            runs=runs,
            inputs=inputs,
            count_tokens=count_tokens or (None if engine is None else engine.count_tokens),
            foreign=dict(handler.foreign_calls),
            notes=_about_engine(engine),
        )

    try:
        return found(engine)
    except EngineError:
        return found(None)  # it has ended meanwhile


def explain_flow(
    graph: str,
    flow: TaskFlow | None,
    *,
    sources: Mapping[str, str] | None = None,
    runs: Sequence[RunSavings] = (),
    inputs: Mapping[str, str] | None = None,
    count_tokens: Callable[[str], int] | None = None,
    foreign: Mapping[str, int] | None = None,
    notes: Iterable[str] = (),
) -> GraphExplanation:
    """The same of a flow and of runs that came from anywhere.

    sources: task -> where its template comes from; ``declared`` where nothing is said.
    runs: the latest last. foreign: calls of models of others, by their class.

    Raises what ``TaskFlow.explain`` raises.
    """
    # Rows and advice count the same texts.
    count_tokens = None if count_tokens is None else cache(count_tokens)
    last = last_calls(runs)
    calls: dict[str, CallReport] = {}
    edges: list[EdgeReport] = []
    said = [*notes, *_about_foreign(foreign or {})]
    found = None if flow is None else explain(flow, inputs, count_tokens)
    for row in () if found is None else found.tasks:
        source = _source(sources, row.task)
        calls[row.task] = CallReport(row.task, source, row, last.get(row.task))
    others = [task for task in last if task not in calls]
    order = in_order(flow, others, list(last))
    if flow is not None and found is not None:
        rows = _rows(flow, found, inputs, count_tokens)
        of_flow = [task for task in order if task in calls]
        edges += (edge for task in of_flow for edge in edges_into(flow, task, last, runs, rows))
    for task in others:
        why = _without_template(flow, last[task])
        calls[task] = CallReport(task, "none", None, last[task], why)
    unsized = dict.fromkeys(name for edge in edges for name in edge.known.unsized)
    said += _about(flow, runs, foreign=bool(foreign), unsized=unsized)
    if flow is not None and count_tokens is None:
        said.append(
            f"~ estimated at {CHARACTERS_PER_TOKEN} characters a token; text of messages only, "
            "without the marks of a chat template"
        )
    return GraphExplanation(
        graph=graph,
        estimated=count_tokens is None,
        calls=tuple(calls[task] for task in order),
        edges=tuple(edges),
        advice=() if flow is None else advise(flow, inputs, count_tokens),
        runs=tuple(_total(run) for run in runs),
        notes=tuple(said),
    )


def _rows(
    flow: TaskFlow,
    found: Explanation,
    inputs: Mapping[str, str] | None,
    count_tokens: Callable[[str], int] | None,
) -> Rows:
    """Rows by what each NewestVar stands for; each is made once, since counting takes time."""
    made = {(row.task, frozenset[tuple[str, str | None]]()): row for row in found.tasks}

    def row(task: str, newest: Newest) -> TaskExplanation:
        key = (task, frozenset(newest.items()))
        if key not in made:
            made[key] = explain_task(flow, task, newest, inputs, count_tokens)
        return made[key]

    return row


def handler_of(graph: Pregel[Any, Any, Any, Any]) -> ProgramHandler | None:
    """The handler that ``attach`` gave to the graph; None: it is not attached."""
    callbacks = (graph.config or {}).get("callbacks")
    handlers = callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks or ()
    return next((h for h in handlers if isinstance(h, ProgramHandler)), None)


def declared_of(graph: Pregel[Any, Any, Any, Any]) -> Layer:
    """The prompts that a graph's own code declares: at its nodes, or to ``attach``.

    Raises what ``declared_layer`` raises.
    """
    handler = handler_of(graph)
    if handler is None or handler.flow is None:
        return declared_layer(graph)
    others = {task for task, source in handler.sources.items() if source != "declared"}
    return Layer.of("declared", handler.flow).without(others)


def last_calls(runs: Iterable[RunSavings]) -> dict[str, LastCalls]:
    """Each call in these runs, in the order in which they ended first."""
    calls: dict[str, list[CallSaving]] = {}
    made_in: dict[str, set[str]] = {}
    first: Counter[str] = Counter()
    for run in runs:
        for number, call in enumerate(tuple(run.calls)):  # it may still be going on
            first[call.task] += number == 0
            calls.setdefault(call.task, []).append(call)
            made_in.setdefault(call.task, set()).add(run.id)
    return {task: _means(made, len(made_in[task]), first[task]) for task, made in calls.items()}


def _means(calls: Sequence[CallSaving], runs: int, first: int) -> LastCalls:
    def mean(numbers: Iterable[int]) -> float:
        return sum(numbers) / len(calls)

    counts = Counter(map(outcome_of, calls))
    return LastCalls(
        runs=runs,
        calls=len(calls),
        prompt_tokens=mean(c.prompt_tokens for c in calls),
        completion_tokens=mean(c.completion_tokens for c in calls),
        cached_tokens=mean(c.cached_tokens for c in calls),
        ahead_tokens=mean(c.ahead_tokens for c in calls),
        first=first,
        outcomes=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
    )


def _total(run: RunSavings) -> RunReport:
    calls = tuple(run.calls)
    return RunReport(
        at=run.at,
        calls=len(calls),
        prompt_tokens=sum(c.prompt_tokens for c in calls),
        cached_tokens=sum(c.cached_tokens for c in calls),
        ahead_tokens=sum(c.ahead_tokens for c in calls),
    )


def _source(sources: Mapping[str, str] | None, task: str) -> Source:
    match (sources or {}).get(task):
        case "traced":
            return "traced"
        case "learned":
            return "learned"
        case _:
            return "declared"


def _without_template(flow: TaskFlow | None, seen: LastCalls) -> str:
    if flow is None:
        return f"made in {seen.runs} of the runs that were seen; two have to agree"
    return "the flow has no such task: its call is made in some runs only, or differs each time"


def _fan_in(flow: TaskFlow) -> bool:
    return any(len(flow.upstream(task)) > 1 for task in flow.tasks)


def _about(
    flow: TaskFlow | None,
    runs: Sequence[RunSavings],
    *,
    foreign: bool,
    unsized: Collection[str],
) -> Iterator[str]:
    if not runs:
        yield (
            "no call of a model of this package was seen yet: what was saved is not known"
            if foreign
            else "no run was seen yet: what was saved is not known"
        )
    if flow is None and runs:
        yield "no template yet: what two runs have in common is prepared from the third run on"
    if runs:
        yield "prompt, cached and ahead are tokens of one call, on average over the last runs"
    if flow is not None:
        yield (
            "expected is what can be prefilled while the upstream decodes; known text behind the "
            "last answer is not counted"
        )
    if flow is not None and runs and _fan_in(flow):
        yield (
            "of several answers in one prompt, what was saved is dealt out in the prompt's order, "
            "to those that were given in the run"
        )
    if runs and unsized:
        yield (
            f"of unknown size: {', '.join(unsized)}; it is taken for what the other parts of a "
            "prompt leave, and explain(inputs) gives it"
        )


def _about_engine(engine: Any) -> Iterator[str]:
    info = getattr(engine, "info", None)
    refusal = None if info is None else info().get("early_refusal")
    if refusal:
        yield f"the engine prepares no prompts: {refusal}"


def _about_foreign(foreign: Mapping[str, int]) -> Iterator[str]:
    for model, calls in foreign.items():
        yield (
            f"{plural(calls, 'call')} of {model}, which is not served by this package: not "
            "prepared; prompts that read such an answer are prepared up to there"
        )
