"""Flows that foretell what will not come: made of a right one, or of another app's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from grape_lc.flow import (
    InputVar,
    IntermediateVar,
    Literal_,
    OutputVar,
    PromptTemplate,
    Segment,
    TaskFlow,
)
from grape_lc.flow.template import MessageTemplate, literal_to_template

Sections = Sequence[tuple[str | None, Sequence[Segment]]]
"""Role and segments of each message; the role None stands for a prompt that is a text."""


def shuffled(flow: TaskFlow, other: TaskFlow) -> TaskFlow:
    """Each task has the prompt of the next one."""
    order = flow.order()
    prompts = [task.prompt.sections for task in (*order[1:], order[0])]
    return _with_prompts(flow, dict(zip((task.name for task in order), prompts, strict=True)))


def truncated(flow: TaskFlow, other: TaskFlow) -> TaskFlow:
    """Each prompt ends in its middle, as if it were complete there."""
    return _with_prompts(flow, {task.name: _half(task.prompt.sections) for task in flow.tasks})


def garbled(flow: TaskFlow, other: TaskFlow) -> TaskFlow:
    """Roles are swapped, and every text goes on with something else that is long."""
    roles = {"user": "system", "system": "user"}
    return _with_prompts(
        flow,
        {
            task.name: [
                (role and roles.get(role, role), [*segments, Literal_(" {and} so on" * 2000)])
                for role, segments in task.prompt.sections
            ]
            for task in flow.tasks
        },
    )


def foreign(flow: TaskFlow, other: TaskFlow) -> TaskFlow:
    """The prompts of another app under the names of this one's tasks, in order."""
    order, strangers = flow.order(), other.order()
    return _with_prompts(
        flow,
        {
            task.name: strangers[number % len(strangers)].prompt.sections
            for number, task in enumerate(order)
        },
    )


WRONG: Mapping[str, Callable[[TaskFlow, TaskFlow], TaskFlow]] = {
    wrong.__name__: wrong for wrong in (shuffled, truncated, garbled, foreign)
}


def _half(sections: Sections) -> Sections:
    kept = list(sections[: len(sections) // 2 + 1])
    role, segments = kept[-1]
    left = list(segments[: len(segments) // 2 + 1])
    if left and isinstance(left[-1], Literal_):
        left[-1] = Literal_(left[-1].text[: len(left[-1].text) // 2 + 1])
    kept[-1] = (role, left)
    return kept


def _with_prompts(flow: TaskFlow, prompts: Mapping[str, Sections]) -> TaskFlow:
    """The flow with other prompts. Slots are kept where their values come before the task."""
    order = flow.order()
    known = {variable.name for variable in flow.variables if variable.kind == "input"}
    templates: dict[str, PromptTemplate] = {}
    for task in order:
        templates[task.name] = _template(prompts[task.name], known)
        known.add(task.output)
    read = {name for template in templates.values() for name in template.variables}
    wrong = TaskFlow(name=flow.name)
    for variable in flow.variables:
        if variable.kind == "input" and variable.name in read:
            wrong.add_variable(InputVar(variable.name))
    for task in order:
        kind = IntermediateVar if task.output in read else OutputVar
        wrong.add_variable(kind(task.output))
    for task in order:
        wrong.add_task(templates[task.name], task.output, name=task.name)
    wrong.validate_flow()
    return wrong


def _template(sections: Sections, known: Iterable[str]) -> PromptTemplate:
    allowed = frozenset(known)
    texts = [
        (
            role,
            "".join(
                literal_to_template(segment.text)
                if isinstance(segment, Literal_)
                else str(segment) * (segment.variable in allowed)
                for segment in segments
            ),
        )
        for role, segments in sections
    ]
    if not any(text for _, text in texts):
        texts[0] = (texts[0][0], "nothing is known")
    if texts[0][0] is None:
        return PromptTemplate(text=texts[0][1])
    return PromptTemplate(messages=tuple(MessageTemplate(str(r), text) for r, text in texts))
