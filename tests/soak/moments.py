"""A program under way, whatever runs it: what happens in it, and its outputs at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from grape_lc import GrapeEngine
from grape_lc.flow.events import ProgramFinished, TaskFinished, TokenEvent
from tests.soak.flows import flow_of
from tests.soak.graphs import Options, graph_of
from tests.soak.plan import Fault, Job, Shape, Way
from tests.soak.tenants import TenantEngine

Outputs = dict[str, str]
Moment = Literal["token", "answer"] | Outputs

SHORT_S = 0.001
"""No call is as quick as this."""

_THREADS = 400
"""More than an attached graph remembers."""


@dataclass(frozen=True)
class Workplace:
    """The engine, and a graph of each shape and way.

    too_long: a text of more tokens than the engine holds.
    """

    engine: GrapeEngine
    graphs: Mapping[tuple[Shape, Way], Any]
    too_long: str

    @classmethod
    def of(cls, engine: GrapeEngine) -> Workplace:
        """With its graphs."""
        ways = [way for way in Way if way is not Way.TASKFLOW]
        graphs: dict[tuple[Shape, Way], Any] = {
            (shape, way): graph_of(shape, way, engine) for shape in Shape for way in ways
        }
        return cls(engine, graphs, "word " * int(engine.info()["max_model_len"]))


def moments(job: Job, place: Workplace, *, streamed: bool) -> AsyncIterator[Moment]:
    """Tokens and answers as they come, the outputs last. A graph tells only if ``streamed``."""
    if job.way is Way.TASKFLOW:
        return _of_flow(job, place)
    return _of_graph(job, place, streamed=streamed)


def inputs_of(job: Job, place: Workplace) -> dict[str, str]:
    """What the program is given."""
    return {"topic": place.too_long if job.fault is Fault.PROMPT_TOO_LONG else job.topic}


async def _of_flow(job: Job, place: Workplace) -> AsyncIterator[Moment]:
    flow = flow_of(job.shape, sampled=job.sampled, bad=job.fault is Fault.BAD_SAMPLING)
    engine = TenantEngine(place.engine, job.tenant)
    if job.fault is Fault.TIMEOUT:
        engine = replace(engine, timeout_s=SHORT_S)
    elif job.fault is Fault.OTHER_INPUTS:
        engine = replace(engine, foretold={"topic": f"not {job.topic}"})
    async for event in flow.stream(engine, inputs_of(job, place)):
        if isinstance(event, TokenEvent):
            yield "token"
        elif isinstance(event, TaskFinished):
            yield "answer"
        elif isinstance(event, ProgramFinished):
            yield event.outputs


async def _of_graph(job: Job, place: Workplace, *, streamed: bool) -> AsyncIterator[Moment]:
    graph = place.graphs[job.shape, job.way]
    flow = flow_of(job.shape, sampled=job.sampled, bad=job.fault is Fault.BAD_SAMPLING)
    inputs = inputs_of(job, place)
    options = Options(
        flow,
        timeout_s=SHORT_S if job.fault is Fault.TIMEOUT else None,
        raises=job.fault is Fault.NODE_RAISES,
    )
    if job.fault is Fault.OTHER_INPUTS:
        options, inputs = replace(options, topic=job.topic), {"topic": f"not {job.topic}"}
    # No state is kept under it; but the handler remembers the runs of a thread.
    thread = f"thread {job.number % _THREADS}"
    config: Any = {
        "configurable": {"soak": options, "thread_id": thread},
        "metadata": {"tenant": job.tenant},
    }
    values: dict[str, str] = {}
    if not streamed:
        values = await graph.ainvoke(inputs, config)
    else:
        async for mode, data in graph.astream(inputs, config, stream_mode=["messages", "updates"]):
            if mode == "messages":
                yield "token"
            else:
                for update in data.values():
                    values |= update
                yield "answer"
    yield {v.name: values[v.name] for v in flow.variables if v.kind == "output"}
