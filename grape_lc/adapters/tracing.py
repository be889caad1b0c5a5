"""to_taskflow: find out a graph's prompts by running it once on markers instead of texts.

The graph runs natively, with a copy of everything that it would keep: its input texts and its
model's answers are markers (markers.py), ChatGrape is answered by a recorder (recording.py).
The prompts that come out are templates: a marker in them is a slot.
"""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import logging
import typing
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from langchain_core.callbacks.base import BaseCallbackHandler
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.runnables.config import var_child_runnable_config
from langgraph.channels import LastValue
from langgraph.errors import GraphBubbleUp, GraphRecursionError
from langgraph.pregel import Pregel
from langgraph.store.memory import InMemoryStore
from pydantic import BaseModel

from grape_lc.adapters.inputs import (
    WHOLE,
    identifier,
    input_items,
    message_name,
    messages_of,
)
from grape_lc.adapters.markers import Damaged, Found, marker, split
from grape_lc.adapters.recording import (
    RecordedCall,
    RecordingEngine,
    TooManyCallsError,
    recording_engine,
)
from grape_lc.errors import TraceError
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.template import MessageTemplate, PromptTemplate, literal_to_template
from grape_lc.flow.variables import InputVar, IntermediateVar, OutputVar

logger = logging.getLogger(__name__)

AnyGraph = Pregel[Any, Any, Any, Any]

# Steps that a trace may take beyond one for each node: loops that would go on for ever, since
# no marker ever says DONE, end here.
_SPARE_STEPS = 25
_MAX_CALLS = 200


def to_taskflow(graph: AnyGraph, *, example: Any = None, name: str | None = None) -> TaskFlow:
    """The TaskFlow of a compiled graph, found by running the graph once without a model.

    **The nodes are executed**, in a thread of their own: what they do to files, databases or
    services, they do. Only ChatGrape is replaced (any other model is really called), and the
    checkpointer, store, cache and callbacks of the graph are left out.

    example: an input of the graph, in any form that it takes. Texts in it, and texts of
        messages, become input variables, whatever they say; other values are used as they
        are. Without an example the input is a text under every key of the input schema that is
        a ``str`` without a reducer, or one human message if there is none but ``messages``.
    name: of the flow; by default the graph's.

    Tasks are named as ``attach`` expects it, their outputs ``<node>_text``. Text that a program
    changed in another way than by stripping becomes an input variable of its own, ``opaque_1``
    and so on, which no run gives: prefilling ahead stops there. What the nodes decide by the
    content of a text, they decide by that of a marker: the flow shows one path.

    If the graph fails under way, goes in circles or is interrupted, the flow has what was seen
    up to there, and a warning says so.

    Raises TraceError when no call of ChatGrape was seen, TypeError when the graph is not
    compiled.
    """
    check_compiled(graph)
    symbols, graph_input = _symbolic_input(graph, example)
    recorder = RecordingEngine(len(symbols), _MAX_CALLS)
    stop = _run(graph, graph_input, recorder)
    calls = recorder.calls
    if not calls:
        raise TraceError(
            f"no call of ChatGrape was seen in graph {graph.name!r}"
            + ("" if stop is None else f": {stop.why}")
            + f"; nodes: {', '.join(graph.nodes)}; input texts: {', '.join(symbols) or 'none'}"
            + "; an example of the graph's input may help"
        ) from (None if stop is None else stop.error)
    if stop is not None:
        if stop.endless:
            calls = tuple(call for call in calls if call.visit == 1)
        logger.warning(
            "trace of graph %r: %s; the flow has the %d tasks seen up to there: %s",
            graph.name,
            stop.why,
            len(calls),
            ", ".join(call.task for call in calls),
        )
    return _Builder(name or graph.name or "flow", symbols, calls).build()


def check_compiled(graph: object) -> None:
    """Raise TypeError, with advice, for anything but a compiled graph."""
    if not isinstance(graph, Pregel):
        hint = ": call .compile() first" if hasattr(graph, "compile") else ""
        raise TypeError(f"not a compiled LangGraph graph but {type(graph).__name__}{hint}")


# -- input ------------------------------------------------------------------------------------


def _symbolic_input(graph: AnyGraph, example: Any) -> tuple[list[str], Any]:
    """Names of the input texts, by the numbers of their markers, and the input made of them."""
    symbols: list[str] = []

    def symbol(name: str) -> str:
        symbols.append(name)
        return marker(len(symbols) - 1)

    if example is None:
        example = _default_input(graph)
    if isinstance(example, str):
        return symbols, symbol(WHOLE)
    changed: dict[str, Any] = {}
    for key, value in input_items(example):
        if isinstance(value, str):
            changed[key] = symbol(identifier(key))
        elif (messages := messages_of(value)) is not None:
            changed[key] = [
                _symbolic_message(message, message_name(key, index), symbol)
                for index, message in enumerate(messages)
            ]
    if isinstance(example, Mapping):
        return symbols, {**example, **changed}
    if isinstance(example, BaseModel):
        return symbols, example.model_copy(update=changed)
    if dataclasses.is_dataclass(example) and not isinstance(example, type):
        return symbols, dataclasses.replace(example, **changed)
    return symbols, example


def _symbolic_message(
    message: BaseMessage, name: str, symbol: typing.Callable[[str], str]
) -> BaseMessage:
    if not isinstance(message.content, str) or not message.content:
        return message
    return message.model_copy(update={"content": symbol(name)})


def _default_input(graph: AnyGraph) -> dict[str, Any]:
    """Any text under every key that takes one and has no reducer; else one human message.

    A key with a reducer gathers what nodes write: it starts empty.
    """
    schema = getattr(getattr(graph, "builder", None), "input_schema", None)
    if schema is None:
        return {}
    hints = typing.get_type_hints(schema)
    texts = {
        key: "text"
        for key, hint in hints.items()
        if hint is str and type(graph.channels.get(key)) is LastValue
    }
    return texts or ({"messages": [HumanMessage("text")]} if "messages" in hints else {})


# -- the run ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Stop:
    """Why a trace did not come to the graph's end."""

    why: str
    error: BaseException | None = None
    endless: bool = False


class _NodeErrors(BaseCallbackHandler):
    """Notes the first node that fails."""

    run_inline = True

    def __init__(self) -> None:
        self.node: str | None = None
        self._nodes: dict[UUID, str] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        node = (metadata or {}).get("langgraph_node")
        if isinstance(node, str):
            self._nodes[run_id] = node

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if self.node is None and not isinstance(error, GraphBubbleUp | asyncio.CancelledError):
            self.node = self._nodes.get(run_id)


def _run(graph: AnyGraph, graph_input: Any, recorder: RecordingEngine) -> _Stop | None:
    """Run the graph to its end or its first error, in a thread with an event loop of its own.

    So synchronous and asynchronous nodes run alike, also when the caller is in a loop.
    """
    errors = _NodeErrors()
    # Handlers of the user's would see a run that is none.
    config = {key: value for key, value in (graph.config or {}).items() if key != "callbacks"}
    config["recursion_limit"] = len(graph.nodes) + _SPARE_STEPS
    config["callbacks"] = [errors]
    bare = graph.copy(
        {
            "checkpointer": None,
            "store": InMemoryStore(),
            "cache": None,
            "config": config,
            "interrupt_before_nodes": [],
            "interrupt_after_nodes": [],
        }
    )

    def run() -> Any:
        recording_engine.set(recorder)
        # The caller may itself be a node of a graph.
        var_child_runnable_config.set(None)
        return asyncio.run(_invoke(bare, graph_input))

    with ThreadPoolExecutor(1, thread_name_prefix="grape-trace") as executor:
        future = executor.submit(contextvars.copy_context().run, run)
        error = future.exception()
    if error is None:
        return _interrupted(future.result())
    if isinstance(error, GraphRecursionError | TooManyCallsError):
        return _Stop(f"the graph went in circles ({type(error).__name__})", error, endless=True)
    where = "the graph" if errors.node is None else f"node {errors.node!r}"
    return _Stop(f"{where} failed on symbolic text with {type(error).__name__}: {error}", error)


async def _invoke(graph: AnyGraph, graph_input: Any) -> Any:
    return await graph.ainvoke(graph_input)


def _interrupted(result: object) -> _Stop | None:
    if isinstance(result, Mapping) and result.get("__interrupt__"):
        return _Stop("the graph was interrupted, to go on with an answer from outside")
    return None


# -- the flow ---------------------------------------------------------------------------------


class _Builder:
    """Makes a flow of recorded calls."""

    def __init__(self, name: str, symbols: Sequence[str], calls: Sequence[RecordedCall]) -> None:
        self._name = name
        self._calls = calls
        self._taken = set[str]()
        # Variable names by the number of a marker. Names of inputs must stay as they are, for
        # a run's inputs are found by them.
        self._names = {number: self._unique(symbol) for number, symbol in enumerate(symbols)}
        self._inputs = dict.fromkeys(self._names.values())
        for call in calls:
            self._names[call.value] = self._unique(f"{identifier(call.task)}_text")
        self._opaque: dict[str, str] = {}

    def build(self) -> TaskFlow:
        """The flow, validated: tasks by depth, then by name, since branches run in any order."""
        prompts = {call.value: self._prompt(call) for call in self._calls}
        read = {name for prompt in prompts.values() for name in prompt.variables}
        flow = TaskFlow(name=self._name)
        for name in self._inputs:
            if name in read:
                flow.add_variable(InputVar(name))
        for name, why in self._opaque.items():
            flow.add_variable(InputVar(name, description=why))
        depths = self._depths(prompts)
        calls = sorted(self._calls, key=lambda call: (depths[call.value], call.task))
        for call in calls:
            name = self._names[call.value]
            flow.add_variable(IntermediateVar(name) if name in read else OutputVar(name))
        for call in calls:
            flow.add_task(
                prompts[call.value],
                self._names[call.value],
                name=call.task,
                sampling=call.request.sampling,
            )
        flow.validate_flow()
        return flow

    def _depths(self, prompts: Mapping[int, PromptTemplate]) -> dict[int, int]:
        """Hops of each call from a root of the flow, by the number of its answer's marker."""
        by_name: dict[str, int] = {}
        depths: dict[int, int] = {}
        # Every call arrived after those whose answers it was given.
        for call in self._calls:
            above = [by_name[name] for name in prompts[call.value].variables if name in by_name]
            depths[call.value] = by_name[self._names[call.value]] = 1 + max(above, default=-1)
        return depths

    def _prompt(self, call: RecordedCall) -> PromptTemplate:
        messages: list[MessageTemplate] = []
        for message in call.request.messages or ():
            if "tool_calls" in message or "tool_call_id" in message:
                # A template has no place for these. The slot keeps the prompt from ending here.
                content = self._opaque_slot(call.task, "a message about tools")
                messages.append(MessageTemplate(message["role"], content))
                break
            content = "".join(self._segments(_text(message["content"]), call.task))
            messages.append(MessageTemplate(message["role"], content))
        if not any(message.content for message in messages):
            messages = [MessageTemplate(messages[0].role, self._opaque_slot(call.task, "no text"))]
        return PromptTemplate(messages=tuple(messages))

    def _segments(self, text: str, task: str) -> Iterator[str]:
        for part in split(text):
            match part:
                case str():
                    yield literal_to_template(part)
                case Found(number, edges) if number in self._names:
                    transducer = "" if edges == "identity" else f"|{edges}"
                    yield f"{{{self._names[number]}{transducer}}}"
                case Found():
                    yield self._opaque_slot(task, "the answer of a call that was left out")
                case Damaged():
                    yield self._opaque_slot(task, "a text that the program changed")

    def _opaque_slot(self, task: str, why: str) -> str:
        name = self._unique(f"opaque_{len(self._opaque) + 1}")
        self._opaque[name] = f"not known before the call of {task!r}: {why}"
        return f"{{{name}}}"

    def _unique(self, wanted: str) -> str:
        name, number = identifier(wanted), 1
        while name in self._taken:
            number += 1
            name = f"{identifier(wanted)}_{number}"
        self._taken.add(name)
        return name


def _text(content: str | list[dict[str, str]]) -> str:
    """Text blocks as a chat template that takes text only is given them: a line each."""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content)
