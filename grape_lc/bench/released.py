"""Programs of a workflow without its graph: the flow's driver releases the next task itself.

Between two calls of a graph lies a round trip: the model's answer goes back to the node, LangGraph
ends its step, and the next node asks anew. A server that knows the program does without: as soon as
an answer is there it makes the next call. Here the workflow's flow, written out by hand in
``twins``, stands for that knowledge, and ``runtime/driver`` for the server. The prompts are those
of the graph, word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from grape_lc.bench.examples import Example
from grape_lc.bench.synthetic import synthetic_flow, synthetic_past, synthetic_tools
from grape_lc.bench.twins import code_flow, search_flow, summary_flow
from grape_lc.engine.base import EngineClient
from grape_lc.errors import ConfigError
from grape_lc.flow.events import ProgramFinished
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.runtime.driver import ToolStep, run_events_sync
from grape_lc.workflow_package import load_workflow

FlowOf = Callable[[Mapping[str, Any], Example, Sampling], TaskFlow]
"""The flow for the state that a program begins with; its shape may depend on that."""

ToolsOf = Callable[[TaskFlow], tuple[ToolStep, ...]]
"""The steps between the calls of a flow."""


class ReleasedProgram:
    """Has the part of a compiled graph that a run needs; its programs are runs of a flow.

    max_tokens: limit of each answer. fixed_lengths: each is exactly so long. logprobs: as in
    Sampling.
    Raises ConfigError when no flow is written out for the example.
    """

    def __init__(
        self,
        engine: EngineClient,
        example: Example,
        max_tokens: int,
        *,
        fixed_lengths: bool,
        logprobs: int | None = None,
    ) -> None:
        name = example.name.partition(":")[0]
        if name not in _FLOWS:
            raise ConfigError(
                f"+release: no flow is written out for {example.name!r}, only for: "
                f"{', '.join(_FLOWS)}"
            )
        self._engine = engine
        self._example = example
        self._sampling = Sampling(
            temperature=0.0, max_tokens=max_tokens, ignore_eos=fixed_lengths, logprobs=logprobs
        )
        self._flow_of = _FLOWS[name]
        self._tools_of = _TOOLS[name](example) if name in _TOOLS else _no_tools

    def invoke(self, input: Mapping[str, Any], /) -> dict[str, Any]:  # noqa: A002 - as a graph's
        """Run one program to its end; returns its state, with all that was written.

        Raises what the engine and the tools raise, and FlowInputError for a state that is none
        of this workflow.
        """
        flow, inputs, tools = self.run_of(input)
        written: Mapping[str, str] = {}
        for event in run_events_sync(self._engine, flow, inputs, tools):
            if isinstance(event, ProgramFinished):
                written = event.values
        return {**input, **written}

    def run_of(
        self, state: Mapping[str, Any]
    ) -> tuple[TaskFlow, dict[str, str], tuple[ToolStep, ...]]:
        """What the driver is given for a program that begins with ``state``."""
        from grape_lc.adapters.inputs import input_texts

        flow = self._flow_of(state, self._example, self._sampling)
        return flow, input_texts(dict(state)), self._tools_of(flow)


def _code(state: Mapping[str, Any], example: Example, sampling: Sampling) -> TaskFlow:
    return code_flow(max_tokens=sampling.max_tokens, sampling=sampling)


def _summary(state: Mapping[str, Any], example: Example, sampling: Sampling) -> TaskFlow:
    return summary_flow(
        len(state["chunks"]),
        mode=example.options.get("mode", "refine"),
        max_tokens=sampling.max_tokens,
        sampling=sampling,
    )


def _search(state: Mapping[str, Any], example: Example, sampling: Sampling) -> TaskFlow:
    return search_flow(max_tokens=sampling.max_tokens, sampling=sampling)


def _synthetic(state: Mapping[str, Any], example: Example, sampling: Sampling) -> TaskFlow:
    return synthetic_flow(
        past=synthetic_past(state["task"], example.options),
        max_tokens=sampling.max_tokens,
        sampling=sampling,
        **example.options,
    )


def _no_tools(flow: TaskFlow) -> tuple[ToolStep, ...]:
    return ()


def _retriever(example: Example) -> ToolsOf:
    """The searcher's: from the queries that were written to the passages that it is shown."""
    module: Any = load_workflow("search")
    library = example.options.get("retriever") or module.PassageRetriever.of(module.load_passages())

    def use(values: Mapping[str, str]) -> str:
        return str(module.search(library, values["question"], values["queries"]))

    return lambda flow: (ToolStep(("question", "queries"), "passages", use),)


def _lookups(example: Example) -> ToolsOf:
    return lambda flow: synthetic_tools(flow, example.options)


_FLOWS: Mapping[str, FlowOf] = {
    "code": _code,
    "search": _search,
    "summary": _summary,
    "synthetic": _synthetic,
}
_TOOLS: Mapping[str, Callable[[Example], ToolsOf]] = {"search": _retriever, "synthetic": _lookups}
