r"""Flows with as many items as the lists of a run's input have.

A traced flow is unrolled: it has tasks and slots for more items than most runs give. What stands
behind the last item is known only once the others are taken out:

    traced      "- {read_0_text}\n- {read_1_text}\n- {read_2_text}\nSum up."
    two given   "- {read_0_text}\n- {read_1_text}\nSum up."

A slot goes with the text in front of it, up to the slot before. That is right where every item is
written in the same way; where it is not, what stands behind the list is foreseen wrongly, which
costs compute and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from grape_lc.adapters.callsite import unnumbered
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import (
    MessageTemplate,
    PromptTemplate,
    Segment,
    Slot,
    literal_to_template,
)
from grape_lc.flow.variables import InputVar, IntermediateVar, OutputVar

_ITEM = re.compile(r"(?P<list>.+)_(?P<index>[1-9]\d*)")

Series = tuple[str, str]
"""What items of one list have in common: whether they are inputs or answers, and a name."""


def fitted(flow: TaskFlow, inputs: Mapping[str, str]) -> TaskFlow:
    """The flow without the items that this run's lists do not have; the flow itself if it has all.

    inputs: the texts of the run's input.
    """
    missing = {var.name for var in flow.variables if _is_missing(var.name, flow, inputs)}
    if not missing:
        return flow
    series = {name: _series_of_input(name) for name in missing | inputs.keys()}
    series |= {task.output: _series_of_task(task.name) for task in flow.tasks}
    if any(missing.intersection(of) for of in flow.choices.values()):
        return flow
    tasks: list[Task] = []
    for task in flow.order():
        gone = missing.intersection(task.prompt.variables)
        left = {series.get(name) for name in task.prompt.variables if name not in missing}
        if all(series[name] in left for name in gone):
            prompt = _without(task.prompt, gone) if gone else task.prompt
            if prompt is not None:
                tasks.append(task.model_copy(update={"prompt": prompt}))
                continue
        # It is the task of an item that is not there.
        missing.add(task.output)
        if any(task.output in of for of in flow.choices.values()):
            return flow
    return _rebuilt(flow, tasks)


def _is_missing(name: str, flow: TaskFlow, inputs: Mapping[str, str]) -> bool:
    """Whether this is an item of a list that the run gives, but not so long."""
    item = _ITEM.fullmatch(name)
    if item is None or name in inputs:
        return False
    var = flow.variable(name)
    return isinstance(var, InputVar) and not var.opaque and f"{item['list']}_0" in inputs


def _series_of_input(name: str) -> Series:
    return "input", re.sub(r"_\d+\Z", "", name)


def _series_of_task(name: str) -> Series:
    return "answer", unnumbered(name)


def _without(prompt: PromptTemplate, gone: set[str]) -> PromptTemplate | None:
    """The prompt without some slots and what stands in front of each; None if nothing is left."""
    messages = []
    for role, segments in prompt.sections:
        kept = [*_kept(segments, gone)]
        if kept or not segments:
            messages.append((role, "".join(map(_written, kept))))
    if not any(text for _, text in messages):
        return None
    if prompt.messages is None:
        return prompt.model_copy(update={"text": messages[0][1]})
    templates = tuple(MessageTemplate(str(role), text) for role, text in messages)
    return prompt.model_copy(update={"messages": templates})


def _kept(segments: Sequence[Segment], gone: set[str]) -> Iterator[Segment]:
    front: list[Segment] = []
    for segment in segments:
        if not isinstance(segment, Slot):
            front.append(segment)
            continue
        if segment.variable not in gone:
            yield from front
            yield segment
        front = []
    # A message that held nothing but such items is gone with them.
    if not any(isinstance(s, Slot) and s.variable in gone for s in segments) or any(
        isinstance(s, Slot) and s.variable not in gone for s in segments
    ):
        yield from front


def _written(segment: Segment) -> str:
    return str(segment) if isinstance(segment, Slot) else literal_to_template(segment.text)


def _rebuilt(flow: TaskFlow, tasks: Sequence[Task]) -> TaskFlow:
    """A flow of these tasks with the variables that they need; the old one if none is left."""
    if not tasks:
        return flow
    read = {name for task in tasks for name in flow.read_by(task)}
    written = {task.output for task in tasks}
    variables = [
        OutputVar(var.name, description=var.description)
        if isinstance(var, IntermediateVar) and var.name not in read
        else var
        for var in flow.variables
        if var.name in (written if isinstance(var, IntermediateVar | OutputVar) else read)
    ]
    fitting = flow.model_copy(update={"variables": tuple(variables), "tasks": tuple(tasks)})
    fitting.validate_flow()
    return fitting
