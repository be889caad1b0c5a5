"""Prompts whose unknown values were told apart, as the tasks of a TaskFlow.

Two sources find such prompts: a trace (``tracing``), and runs that were watched (``learning``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grape_lc.adapters.inputs import identifier
from grape_lc.adapters.markers import Damaged, Found, Newest, Part
from grape_lc.flow._graph import TaskGraph
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import MessageTemplate, PromptTemplate, literal_to_template
from grape_lc.flow.variables import AnyVariable, InputVar, IntermediateVar, NewestVar, OutputVar

Messages = tuple[tuple[str, tuple[Part, ...]], ...]
"""The messages of a prompt: role, and literal texts and values in order."""

TEXT = ""
"""Stands in the place of a role where the prompt is one text, without messages."""

ABOUT_TOOLS = "a message about tools"


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """A call of a flow that is to be built.

    task: its name. value: the number that its answer has in the prompts of others.
    tools: that the model is shown.
    """

    task: str
    value: int
    messages: Messages
    sampling: Sampling = field(default_factory=Sampling)
    tools: tuple[dict[str, Any], ...] = ()


def texts_of(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str | None]]:
    """Role and text of messages in OpenAI's form, up to the first that a template cannot hold.

    Calls of tools and their results have no place in one: such a message has the text None.
    Text blocks are given as a chat template that takes text only is given them: a line each.
    """
    for message in messages:
        role = str(message["role"])
        if "tool_calls" in message or "tool_call_id" in message:
            yield role, None
            return
        content = message["content"]
        yield role, content if isinstance(content, str) else "\n".join(b["text"] for b in content)


def in_order(calls: Iterable[PlannedCall]) -> list[PlannedCall]:
    """Each call behind those that it reads.

    Paths may disagree about who reads whom, and so may runs; a call of such a circle, or one that
    reads itself, is left out.
    """
    left = {call.value: call for call in calls}
    ordered: list[PlannedCall] = []
    while free := [call for call in left.values() if reads(call.messages).isdisjoint(left)]:
        ordered += free
        for call in free:
            del left[call.value]
    return ordered


def reads(messages: Messages) -> set[int]:
    """The numbers of the values in a prompt."""
    found: set[int] = set()
    for _, parts in messages:
        for part in parts:
            if isinstance(part, Found):
                found.add(part.number)
            elif isinstance(part, Newest):
                found.update(part.numbers)
    return found


def unique(wanted: str, taken: set[str]) -> str:
    """A name that is not taken yet, and is now: the one that is wanted, or with a number."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    taken.add(name)
    return name


class FlowBuilder:
    """Makes a flow of calls.

    symbols: names of the inputs by their numbers. calls: each behind those whose answers it has.
    """

    def __init__(self, name: str, symbols: Mapping[int, str], calls: Sequence[PlannedCall]) -> None:
        self._name = name
        self._calls = calls
        self._taken = set[str]()
        # Names of inputs must stay as they are, for a run's inputs are found by them.
        self._names = {number: self._unique(symbol) for number, symbol in symbols.items()}
        self._inputs = dict.fromkeys(self._names.values())
        for call in calls:
            self._names[call.value] = self._unique(f"{identifier(call.task)}_text")
        self._opaque: dict[str, str] = {}
        self._newest: dict[tuple[int, ...], str] = {}

    def build(self) -> TaskFlow:
        """The flow, validated: tasks by depth, then by name, since branches run in any order."""
        prompts = {call.value: self._prompt(call) for call in self._calls}
        newest = {
            name: tuple(self._names[number] for number in numbers)
            for numbers, name in self._newest.items()
        }
        read = {name for prompt in prompts.values() for name in prompt.variables}
        read |= {name for of in newest.values() for name in of}
        variables: list[AnyVariable] = [InputVar(name) for name in self._inputs if name in read]
        variables += [
            InputVar(name, description=why, opaque=True) for name, why in self._opaque.items()
        ]
        tasks = self._tasks(prompts, newest)
        for task in tasks:
            name = task.output
            variables.append(IntermediateVar(name) if name in read else OutputVar(name))
        variables += [NewestVar(name, of=of) for name, of in newest.items()]
        # All at once: each task that is added looks at all of those before it.
        flow = TaskFlow(name=self._name, variables=tuple(variables), tasks=tasks)
        flow.validate_flow()
        return flow

    def _tasks(
        self, prompts: Mapping[int, PromptTemplate], newest: Mapping[str, tuple[str, ...]]
    ) -> tuple[Task, ...]:
        """A task for each call, those nearest to a root of the flow first, then by name."""
        tasks = tuple(
            Task(
                name=call.task,
                prompt=prompts[call.value],
                output=self._names[call.value],
                sampling=call.sampling,
            )
            for call in self._calls
        )
        depths = TaskGraph(tasks, newest).depths
        return tuple(sorted(tasks, key=lambda task: (depths[task.name], task.name)))

    def _prompt(self, call: PlannedCall) -> PromptTemplate:
        if [role for role, _ in call.messages] == [TEXT]:
            text = "".join(self._segments(call.messages[0][1], call.task))
            return PromptTemplate(text=text or self._opaque_slot(call.task, "no text"))
        messages: list[MessageTemplate] = []
        for role, parts in call.messages:
            content = "".join(self._segments(parts, call.task))
            messages.append(MessageTemplate(role, content))
        if not any(message.content for message in messages):
            messages = [MessageTemplate(messages[0].role, self._opaque_slot(call.task, "no text"))]
        return PromptTemplate(messages=tuple(messages), tools=call.tools)

    def _segments(self, parts: Iterable[Part], task: str) -> Iterator[str]:
        for part in parts:
            match part:
                case str():
                    yield literal_to_template(part)
                case Found(number, transducer) if number in self._names:
                    yield _slot(self._names[number], transducer)
                case Newest(numbers, transducer) if self._names.keys() >= {*numbers}:
                    yield _slot(self._newest_of(numbers), transducer)
                case Found() | Newest():
                    yield self._opaque_slot(task, "the answer of a call that was left out")
                case Damaged(why):
                    yield self._opaque_slot(task, why)

    def _newest_of(self, numbers: tuple[int, ...]) -> str:
        if numbers not in self._newest:
            names = [self._names[number] for number in numbers]
            self._newest[numbers] = self._unique("_or_".join([names[0], *names[-1:]]))
        return self._newest[numbers]

    def _opaque_slot(self, task: str, why: str) -> str:
        name = self._unique(f"opaque_{len(self._opaque) + 1}")
        self._opaque[name] = f"not known before the call of {task!r}: {why}"
        return f"{{{name}}}"

    def _unique(self, wanted: str) -> str:
        return unique(identifier(wanted), self._taken)


def _slot(name: str, transducer: str) -> str:
    return f"{{{name}}}" if transducer == "identity" else f"{{{name}|{transducer}}}"
