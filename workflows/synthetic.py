r"""An agent whose structure is set by axes, as a LangGraph graph.

With ``depth=4, fan_out=2`` and a tool::

    stage_1 -> look_up_2 -> stage_2_1 -> look_up_3 -> stage_3 -> look_up_4 -> stage_4
                        \-> stage_2_2 /

Each stage is one call of the model, or several side by side: instructions of a wanted length, a
task, what a tool found, and the answers of the stage before. With ``branch`` a program may go past
every second stage. It does nothing useful: it is there to change one thing at a time and see
what that does to a server. Any LangChain chat model will do::

    graph = build(llm, depth=8, fan_out=2)
    graph.invoke({"task": "Write about a harbour."})["answer"]

By the text of the task its tool calls fail and its branches are taken, so that a program meets the
same whatever model serves it.

From a shell, ``python -m workflows.synthetic --axes depth=8,fan_out=2 --task 3`` runs it on one of
its tasks; ``--llm MODULE:NAME`` says which class of chat model to make (with temperature 0).
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph

from ._asking import Layout, Limits, Node, asker, checked_layout
from ._axes import Axes, parse_axes
from ._command import chosen, command, loaded, model, show
from ._lookup import Lookup, ToolCall, query_of
from ._notes import Prompts, instructions
from .inputs import load_tasks

__all__ = [
    "Axes",
    "Lookup",
    "build",
    "instructions",
    "load_tasks",
    "main",
    "parse_axes",
    "query_of",
    "skips",
]

_SIDE_BY_SIDE = 4
"""Nodes that may run at a time at least."""

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.graph.state import CompiledStateGraph

    Program = CompiledStateGraph[Any, None, Any, Any]


class ProgramState(TypedDict, total=False):
    """The task, and what calls and tools made of it.

    answers: by call. found: by stage, what the tool found for it. tool_calls: in their order.
    answer: that of the last stage.
    """

    task: str
    answers: Annotated[dict[str, str], operator.or_]
    found: Annotated[dict[str, str], operator.or_]
    tool_calls: Annotated[list[ToolCall], operator.add]
    answer: str


def build(
    llm: BaseChatModel, *, max_tokens: Limits = None, layout: Layout = "role_first", **axes: Any
) -> Program:
    """Compile the agent for a chat model.

    max_tokens: limit of every call's answer, or limits by call (a call that is not named has no
    limit of its own). Bound with ``llm.bind``.
    layout: the order of each prompt. With ``history_first`` each call reads all notes there are,
    wherever ``variable`` would have them.
    axes: those of ``Axes``; where ``output`` is lower than ``max_tokens``, it holds.

    Raises ValueError for another layout, an unknown axis, and values that no agent can have.
    """
    checked_layout(layout)
    return _Builder(llm, max_tokens, layout, Axes.of(axes)).graph()


def skips(task: str, stage: int, branch: float) -> bool:
    """Whether the program with this task goes past a stage."""
    return random.Random(f"branch/{task}/{stage}").random() < branch  # noqa: S311 - a workload


class _Builder:
    """Makes the graph of an agent."""

    def __init__(self, llm: BaseChatModel, max_tokens: Limits, layout: Layout, axes: Axes) -> None:
        self._axes = axes
        self._stages = range(1, axes.depth + 1)
        names = [call for stage in self._stages for call in axes.calls(stage)]
        self._ask = asker(llm, _limits(max_tokens, axes.output, names))
        self._prompts = Prompts(axes, layout)
        self._lookup = Lookup(axes.tool_ms, axes.tool_failure)
        self._builder = StateGraph(ProgramState)

    def graph(self) -> Program:
        for stage in self._stages:
            if self._axes.tools and stage > 1:
                self._builder.add_node(f"look_up_{stage}", self._tool(stage))
            for call in self._axes.calls(stage):
                self._builder.add_node(call, self._call(stage, call))
        for start in self._entry(1):
            self._builder.add_edge(START, start)
        for stage in self._stages:
            self._connect(stage)
        graph = self._builder.compile(name="synthetic")
        # Else LangGraph runs as many nodes side by side as there are cores, and four more.
        return graph.with_config(max_concurrency=max(self._axes.fan_out, _SIDE_BY_SIDE))

    def _connect(self, stage: int) -> None:
        """The edges from a stage's entry on to the next one's."""
        builder, axes, calls = self._builder, self._axes, self._axes.calls(stage)
        if self._entry(stage) != calls:
            for call in calls:
                builder.add_edge(self._entry(stage)[0], call)
        if stage == axes.depth:
            builder.add_edge(calls[0], END)
        elif axes.branch > 0 and axes.inner(stage + 1):
            ends = [*self._entry(stage + 1), *self._entry(stage + 2)]
            builder.add_conditional_edges(calls[0], self._route(stage + 1), ends)
        else:
            for entry in self._entry(stage + 1):
                # One edge from all of them: the next stage waits for the last.
                builder.add_edge(calls if len(calls) > 1 else calls[0], entry)

    def _entry(self, stage: int) -> list[str]:
        """Where a stage begins."""
        if self._axes.tools and stage > 1:
            return [f"look_up_{stage}"]
        return self._axes.calls(stage)

    def _route(self, stage: int) -> Callable[[ProgramState], list[str]]:
        def route(state: ProgramState) -> list[str]:
            past = skips(state["task"], stage, self._axes.branch)
            return self._entry(stage + 1 if past else stage)

        return route

    def _tool(self, stage: int) -> RunnableLambda[ProgramState, ProgramState]:
        def look_up(state: ProgramState) -> ProgramState:
            return written(*self._lookup.find(query(state)))

        async def alook_up(state: ProgramState) -> ProgramState:
            return written(*await self._lookup.afind(query(state)))

        def query(state: ProgramState) -> str:
            return query_of(state["task"], stage)

        def written(found: str, calls: list[ToolCall]) -> ProgramState:
            return {"found": {str(stage): found}, "tool_calls": calls}

        return RunnableLambda(look_up, alook_up)

    def _call(self, stage: int, call: str) -> Node:
        def write(state: ProgramState) -> ProgramState:
            answer = self._ask(call, *self._prompts.of(state, stage, call))
            if stage == self._axes.depth:
                return {"answers": {call: answer}, "answer": answer}
            return {"answers": {call: answer}}

        return write


def _limits(max_tokens: Limits, output: int | None, calls: Sequence[str]) -> Limits:
    """The lower of both limits, for each call."""
    if output is None:
        return max_tokens
    by_call = max_tokens if isinstance(max_tokens, Mapping) else dict.fromkeys(calls, max_tokens)
    limits = {call: by_call.get(call) for call in calls}
    return {call: output if limit is None else min(limit, output) for call, limit in limits.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one task and print each note as it is finished."""
    parser = command("synthetic", __doc__, "task")
    parser.add_argument("--axes", default="", metavar="NAME=VALUE,...", help="as in docs/synthetic")
    options = parser.parse_args(arguments)
    task = chosen(parser, "task", loaded(parser, load_tasks, options.data), options)
    try:
        axes = parse_axes(options.axes)
        Axes.of(axes)
    except ValueError as error:
        parser.error(f"--axes {options.axes}: {error}")
    llm = model(parser, options)
    print(f"# {task.text}\n")
    graph = build(llm, max_tokens=options.max_tokens, **axes)
    show(graph, {"task": task.text})


if __name__ == "__main__":
    main()
