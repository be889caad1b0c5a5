"""The same programs as LangGraph graphs, attached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph

from grape_lc import ChatGrape, GrapeEngine, attach
from grape_lc.adapters.handler import ProgramHandler
from grape_lc.flow.taskflow import Task, TaskFlow
from tests.soak.flows import flow_of
from tests.soak.plan import Shape, Way


class NodeError(Exception):
    """What a node raises on purpose."""


@dataclass(frozen=True, slots=True)
class Options:
    """How the calls of one run are made; it does not see them.

    flow: the sampling of its tasks counts. topic: stands in the prompts instead of the input.
    raises: the last node raises when it was answered.
    """

    flow: TaskFlow
    topic: str | None = None
    timeout_s: float | None = None
    raises: bool = False


def graph_of(shape: Shape, way: Way, engine: GrapeEngine) -> Any:
    """An attached graph; each run is given its ``Options`` in ``configurable["soak"]``."""
    flow = flow_of(shape)
    llm = ChatGrape(engine=engine)
    builder = StateGraph(_state(flow))
    for task in flow.tasks:
        node = _blocking(task, llm) if way is Way.BLOCKING else _node(task, llm)
        builder.add_node(task.name, node)
    for task in flow.tasks:
        above = sorted(flow.upstream(task))
        builder.add_edge(above or START, task.name)
    graph = builder.compile(name=f"soak {shape} {way}")
    if way is Way.LEARNED:
        return attach(graph, learned="memory")
    return attach(graph, flow, learn=False)


def _state(flow: TaskFlow) -> Any:
    """A type whose keys are the flow's variables."""
    return TypedDict("_State", {v.name: str for v in flow.variables}, total=False)  # type: ignore[operator]


def handler_of(graph: Any) -> ProgramHandler:
    """The handler of an attached graph."""
    handlers = [h for h in graph.config["callbacks"] if isinstance(h, ProgramHandler)]
    return handlers[0]


def _node(task: Task, llm: ChatGrape) -> Callable[..., Any]:
    async def run(state: Mapping[str, str], config: RunnableConfig) -> dict[str, str]:
        options: Options = config["configurable"]["soak"]
        prompt, how = _call(task, state, options)
        answer = await llm.ainvoke(prompt, **how)
        return _answered(task, str(answer.content), options)

    return run


def _blocking(task: Task, llm: ChatGrape) -> Callable[..., Any]:
    def run(state: Mapping[str, str], config: RunnableConfig) -> dict[str, str]:
        options: Options = config["configurable"]["soak"]
        prompt, how = _call(task, state, options)
        return _answered(task, str(llm.invoke(prompt, **how).content), options)

    return run


def _call(task: Task, state: Mapping[str, str], options: Options) -> tuple[Any, dict[str, Any]]:
    """Messages and options of a task's call."""
    values = state if options.topic is None else {**state, "topic": options.topic}
    prompt = task.prompt.render_partial(lambda slot: values[slot.variable])
    sampling = options.flow.task(task.name).sampling
    how = sampling.model_dump(include={"max_tokens", "temperature", "seed"}, exclude_none=True)
    how |= {"extra": sampling.extra}
    if options.timeout_s is not None:
        how["timeout"] = options.timeout_s
    return prompt, how


def _answered(task: Task, answer: str, options: Options) -> dict[str, str]:
    if options.raises and task.name == options.flow.tasks[-1].name:
        raise NodeError(f"node {task.name} was told to fail")
    return {task.output: answer}
