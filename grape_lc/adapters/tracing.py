"""to_taskflow: find out a graph's prompts by running it on markers instead of texts.

The graph runs natively, with a copy of everything that it would keep: its input texts and its
model's answers are markers (markers.py), ChatGrape is answered by a recorder (recording.py).
The prompts that come out are templates: a marker in them is a slot. What is decided by the content
of a text is decided otherwise in further runs (trace_paths.py), and what all runs that make a call
have in common is its template (trace_merge.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from langgraph.pregel import Pregel

from grape_lc.adapters.flow_builder import (
    ABOUT_TOOLS,
    TEXT,
    FlowBuilder,
    Messages,
    PlannedCall,
    in_order,
    texts_of,
)
from grape_lc.adapters.markers import Damaged, Found, Part, split
from grape_lc.adapters.recording import RecordedCall
from grape_lc.adapters.trace_hooks import hooks
from grape_lc.adapters.trace_input import SymbolicInput
from grape_lc.adapters.trace_merge import Seen, merged
from grape_lc.adapters.trace_numbers import Numbers
from grape_lc.adapters.trace_paths import SECOND, SHIFT, THINKING, Path, Paths
from grape_lc.adapters.trace_run import AnyGraph
from grape_lc.adapters.trace_thoughts import with_cuts
from grape_lc.adapters.trace_volatile import changes, dates_in
from grape_lc.errors import ConfigError, TraceError
from grape_lc.flow.taskflow import TaskFlow

logger = logging.getLogger(__name__)

MOST_PATHS = 64


def to_taskflow(
    graph: AnyGraph, *, example: Any = None, name: str | None = None, paths: int = MOST_PATHS
) -> TaskFlow:
    """The TaskFlow of a compiled graph, found by running the graph without a model.

    **The nodes are executed**, once for each path, in a thread of their own: what they do to files,
    databases or services, they do. ChatGrape and GrapeLLM are replaced (any other model is really
    called), tools and retrievers of LangChain are not executed, and the checkpointer, store, cache
    and callbacks of the graph are left out.

    example: an input of the graph, in any form that it takes. Texts in it, and texts of
        messages, become input variables, whatever they say; other values are used as they
        are. Without an example the input is made from the input schema: its texts, or one human
        message if there is none but ``messages``.
    name: of the flow; by default the graph's.
    paths: runs of the graph at most. With 1 the nodes are executed once: where a text decides, the
        flow has the path that a marker takes, and what changes with each run is not found out.

    Tasks are named as ``attach`` expects it, their outputs ``<node>_text``. Text that a program
    changed in a way that cannot be followed becomes an input variable of its own, ``opaque_1``
    and so on, which no run gives: prefilling ahead stops there. So it does where paths that make
    the same call send different prompts.

    If the graph fails under way, goes in circles or is interrupted, the flow has what was seen
    up to there, and a warning says so; as it does of dates, random texts, and paths left out.

    Raises TraceError when no call was seen, ConfigError when ``paths`` is no positive number,
    TypeError when the graph is not compiled.
    """
    check_compiled(graph)
    if paths < 1:
        raise ConfigError(f"paths={paths}: a trace runs the graph once at least")
    numbers = Numbers()
    symbolic = SymbolicInput(graph, example, numbers)
    following = Paths(graph, symbolic, numbers, paths)
    with hooks():
        following.follow()
    tasks = _tasks(following.paths, numbers)
    if not tasks:
        stop = following.paths[0].stop
        raise TraceError(
            f"no call of ChatGrape was seen in graph {graph.name!r}"
            + ("" if stop is None else f": {stop.why}")
            + f"; nodes: {', '.join(graph.nodes)}; input texts: {symbolic.names}"
            + _advice(following)
        ) from (None if stop is None else stop.error)
    _warn(graph.name, following, tasks)
    planned = [task.planned(numbers.of("answer", name)) for name, task in tasks.items()]
    inputs = numbers.named("input")
    return FlowBuilder(name or graph.name or "flow", inputs, in_order(planned)).build()


def check_compiled(graph: object) -> None:
    """Raise TypeError, with advice, for anything but a compiled graph."""
    if not isinstance(graph, Pregel):
        hint = ": call .compile() first" if hasattr(graph, "compile") else ""
        raise TypeError(f"not a compiled LangGraph graph but {type(graph).__name__}{hint}")


def _advice(following: Paths) -> str:
    if following.foreign:
        return f"; it calls {_models(following)}: nothing can be prepared for models of others"
    return "; an example of the graph's input may help"


def _models(following: Paths) -> str:
    """Models that are not ours, with the calls of each in a run."""
    return ", ".join(f"{name} ({calls})" for name, calls in sorted(following.foreign.items()))


def _warn(graph: object, following: Paths, tasks: Mapping[str, _Task]) -> None:
    """Say what the flow lacks, and what in it will not hold for long."""
    # A run that was sent where the program never goes may well fail there.
    stops = dict.fromkeys(p.stop.why for p in following.paths[:1] if p.stop is not None)
    for why in stops:
        logger.warning(
            "trace of graph %r: %s; the flow has the %d tasks seen: %s",
            graph,
            why,
            len(tasks),
            ", ".join(tasks),
        )
    if following.foreign:
        logger.warning(
            "trace of graph %r: calls of models of others, which were really made and are not in "
            "the flow: %s",
            graph,
            _models(following),
        )
    now = datetime.now().astimezone()
    for name, task in tasks.items():
        if (place := changes(task.prompts)) is not None:
            logger.warning(
                "trace of graph %r: the prompt of %r has something in it that is not known before "
                "a run (a time, a random or computed value, an input that is no text, an answer of "
                "a model of others): nothing is prepared behind it: %s. Of an input that is no "
                "text, an example gives the usual value: --example, to_taskflow(example=...)",
                graph,
                name,
                place,
            )
        if dates := task.dates(now):
            logger.warning(
                "trace of graph %r: the prompt of %r has the date of today in it, and is right "
                "today only: %s",
                graph,
                name,
                ", ".join(dates),
            )
    if following.left_out:
        logger.warning(
            "trace of graph %r: not every path was followed in %d runs; a larger paths= follows "
            "more",
            graph,
            following.runs,
        )


@dataclass(slots=True)
class _Task:
    """A call, as the paths that make it made it.

    call: of the first of them. prompts: without thoughts in them. thinking: those with.
    """

    call: RecordedCall
    prompts: list[Seen] = field(default_factory=list)
    thinking: list[Messages] = field(default_factory=list)

    def dates(self, now: datetime) -> list[str]:
        """How its prompts write the day of ``now``, where they do."""
        literals = "\n".join(
            part for _, parts in self.prompts[0].messages for part in parts if isinstance(part, str)
        )
        return dates_in(literals, now)

    def planned(self, number: int) -> PlannedCall:
        """What of it goes into the flow."""
        messages = with_cuts(merged(self.prompts), self.thinking)
        request = self.call.request
        return PlannedCall(self.call.task, number, messages, request.sampling, request.tools)


def _tasks(paths: Iterable[Path], numbers: Numbers) -> dict[str, _Task]:
    """The calls of all paths by their tasks."""
    reading = _Reading(numbers)
    tasks: dict[str, _Task] = {}
    for path in paths:
        chosen: dict[Found, str] = {}
        documents: dict[int, str] = {}
        answers: dict[int, int] = {}
        for call in path.calls:
            messages = reading.prompt(call, documents, answers)
            if path.kind == THINKING:
                # Only what the usual runs call is of interest.
                if call.task in tasks:
                    tasks[call.task].thinking.append(messages)
            else:
                task = tasks.setdefault(call.task, _Task(call))
                short, before = path.kind == SECOND, tuple(answers.values())
                task.prompts.append(Seen(messages, dict(chosen), short=short, before=before))
            answers[call.number % SHIFT] = number = numbers.of("answer", call.task)
            if call.answer.document:
                documents[call.number] = call.answer.text
            for spec, text in call.answer.chosen.items():
                chosen[Found(number, spec)] = text
    return tasks


class _Reading:
    """Reads the values out of the prompts of a trace."""

    def __init__(self, numbers: Numbers) -> None:
        self._unknown = numbers.named("unknown")

    def prompt(
        self, call: RecordedCall, documents: Mapping[int, str], answers: Mapping[int, int]
    ) -> Messages:
        """The prompt of a call.

        documents: answers that are JSON, by the numbers of their markers. answers: the numbers
        of answers by those of their markers.
        """
        request = call.request
        texts = [(TEXT, request.text)] if request.messages is None else texts_of(request.messages)
        return tuple(
            (
                role,
                (Damaged(ABOUT_TOOLS),) if text is None else self._parts(text, documents, answers),
            )
            for role, text in texts
        )

    def _parts(
        self, text: str, documents: Mapping[int, str], answers: Mapping[int, int]
    ) -> tuple[Part, ...]:
        return tuple(self._part(part, answers) for part in split(text, documents))

    def _part(self, part: Part, answers: Mapping[int, int]) -> Part:
        if not isinstance(part, Found):
            return part
        number = part.number % SHIFT
        if number in self._unknown:
            return Damaged(self._unknown[number])
        return Found(answers.get(number, number), part.transducer)
