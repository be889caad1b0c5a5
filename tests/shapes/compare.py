"""What a run of a graph shows from outside, in a form in which two runs can be compared.

Ids and times differ between any two runs of any graph, and are taken out. So is what ChatGrape
says of work done ahead: that is what attaching is for. Everything else has to be the same.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import StateSnapshot
from pydantic import BaseModel

from tests.shapes.shape import Run, Shape

MODES = ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"]

# Names of runs, checkpoints and tasks; of calls of tools; of interrupts; times; versions of
# channels, which have a random part; addresses of objects.
_DIFFERS = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r"|call_[0-9a-f]{24}"
    r"|\b[0-9a-f]{32}\b"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[0-9.]*(?:\+00:00|Z)?"
    r"|\b[0-9]{32}\.[0-9.]+"
    r"|\b0x[0-9a-f]+\b"
)
_AHEAD = frozenset(
    {"ahead_tokens", "ahead_outcome", "cached_tokens", "found_by", "input_token_details"}
)


def comparable(value: Any) -> Any:
    """Plain data for a value, equal for values that differ in ids, times and work ahead only."""
    match value:
        case str():
            return _DIFFERS.sub("<>", value)
        case None | bool() | int() | float():
            return value
        case BaseMessage():
            # LangGraph gives a message an id while a checkpoint of it may be under way.
            return (type(value).__name__, comparable(value.model_dump(exclude={"id"})))
        case BaseModel():
            return (type(value).__name__, comparable(dict(value)))
        case Mapping():
            return {
                comparable(key): comparable(item)
                for key, item in value.items()
                if key not in _AHEAD
            }
        case StateSnapshot():
            return ("StateSnapshot", comparable(value._asdict()))
        case list() | tuple():
            return [comparable(item) for item in value]
        case BaseException():
            return (type(value).__name__, comparable(str(value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return (type(value).__name__, comparable(fields))
    return comparable(repr(value))


def with_checkpoints(graph: Any) -> Any:
    """The graph with a checkpointer, so that it has a history; its own if it has one."""
    if graph.checkpointer is not None:
        return graph
    return graph.copy({"checkpointer": InMemorySaver()})


def config_of(thread: str) -> Any:
    """A config that names a thread."""
    return {"configurable": {"thread_id": thread}}


def streamed(graph: Any, shape: Shape, run: Run, thread: str, *, use_async: bool) -> list[Any]:
    """What all stream modes gave for the turns of a run and for its subgraphs, in order."""
    options = {"config": config_of(thread), "stream_mode": MODES, "subgraphs": True}

    async def items() -> list[Any]:
        return [item for turn in run.turns async for item in graph.astream(turn, **options)]

    if use_async:
        seen = asyncio.run(items())
    else:
        seen = [item for turn in run.turns for item in graph.stream(turn, **options)]
    return by_step(seen) if shape.parallel else comparable(seen)


def by_step(items: Iterable[tuple[tuple[str, ...], str, Any]]) -> list[Any]:
    """Items of a stream with those of each step sorted: LangGraph runs a step's nodes in any order.

    A step ends with the ``values`` of the graph itself.
    """
    steps: list[list[Any]] = [[]]
    for namespace, mode, item in items:
        steps[-1].append(comparable([namespace, mode, item]))
        if mode == "values" and not namespace:
            steps.append([])
    return [sorted(step, key=repr) for step in steps]


def events(graph: Any, shape: Shape, run: Run, thread: str) -> list[Any]:
    """The events of version 2, each with the names of the runs that it is inside of.

    Those of an app with branches side by side are sorted.
    """

    async def seen() -> list[Any]:
        return [
            event
            for turn in run.turns
            async for event in graph.astream_events(turn, config_of(thread), version="v2")
        ]

    everything = asyncio.run(seen())
    names = {event["run_id"]: event["name"] for event in everything}
    out = [
        {
            **comparable({key: item for key, item in event.items() if key not in _IDS}),
            "inside": [names[parent] for parent in event["parent_ids"]],
        }
        for event in everything
    ]
    return sorted(out, key=repr) if shape.parallel else out


_IDS = frozenset({"run_id", "parent_ids"})


def history(graph: Any, thread: str) -> list[Any]:
    """The checkpoints of a thread, the latest first, with their metadata and tasks."""
    snapshots: Sequence[StateSnapshot] = list(graph.get_state_history(config_of(thread)))
    return [comparable(snapshot) for snapshot in snapshots]
