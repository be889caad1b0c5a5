"""Templates of one graph from several sources, put together to one TaskFlow.

    declared   code                reads the answer of plan
    traced     plan, code, check   check reads the answer of code
    learned    plan, check

    merged     code (declared), plan and check (traced)

Each task is taken from the first source that has it. What ties templates of different flows
together are names of tasks: a slot that held the answer of ``plan`` in its own flow holds it in
the merged one, whoever describes ``plan`` there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from grape_lc.adapters.flow_builder import unique
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.targets import Targets
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import (
    Literal_,
    MessageTemplate,
    PromptTemplate,
    Segment,
    Slot,
    literal_to_template,
)
from grape_lc.flow.variables import (
    AnyVariable,
    InputVar,
    IntermediateVar,
    NewestVar,
    OutputVar,
)

Source = Literal["declared", "traced", "learned"]
"""Those that win first."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the text of a slot comes from.

    kind, name: ``input`` and the input's name, ``answer`` and the task's, ``unknown`` and why,
    ``newest`` and the name of a variable that is the newest of ``several``.
    """

    kind: Literal["input", "answer", "unknown", "newest"]
    name: str
    description: str = ""
    several: tuple[Origin, ...] = ()

    def all(self) -> Iterator[Origin]:
        """Itself, or those that it may be."""
        yield from self.several or (self,)


@dataclass(frozen=True, slots=True)
class Template:
    """What one source says of a task, apart from the flow that it was said in.

    origins: where the text of each of the prompt's variables comes from. output: the wanted name
    of the variable that the task writes; result: it is part of the flow's result.
    """

    task: str
    prompt: PromptTemplate
    origins: Mapping[str, Origin]
    output: str
    result: bool = False
    sampling: Sampling = field(default_factory=Sampling)
    targets: Targets = field(default_factory=Targets)


@dataclass(frozen=True, slots=True)
class Layer:
    """The templates of one source. flow: the flow that they are, if they are one."""

    source: Source
    templates: Sequence[Template]
    flow: TaskFlow | None = None

    @classmethod
    def of(cls, source: Source, flow: TaskFlow) -> Layer:
        """The tasks of a flow that is well formed."""
        return cls(source, templates_of(flow), flow)

    def without(self, tasks: set[str]) -> Layer:
        """The layer with some tasks left out."""
        if not any(template.task in tasks for template in self.templates):
            return self
        return Layer(self.source, [t for t in self.templates if t.task not in tasks])


@dataclass(frozen=True, slots=True)
class Merged:
    """flow: None if no source has a task. sources: of each task of the flow."""

    flow: TaskFlow | None
    sources: Mapping[str, Source]


def templates_of(flow: TaskFlow) -> list[Template]:
    """The tasks of a flow that is well formed, in the order of declaration."""
    writers = {task.output: task.name for task in flow.tasks}
    variables = {var.name: var for var in flow.variables}

    def origin(name: str) -> Origin:
        if name in writers:
            return Origin("answer", writers[name])
        var = variables[name]
        if isinstance(var, NewestVar):
            return Origin("newest", name, several=tuple(map(origin, var.of)))
        if isinstance(var, InputVar) and var.opaque:
            return Origin("unknown", var.description)
        return Origin("input", name, var.description)

    return [
        Template(
            task.name,
            task.prompt,
            {name: origin(name) for name in task.prompt.variables},
            task.output,
            variables[task.output].kind == "output",
            task.sampling,
            task.targets.over(flow.targets),
        )
        for task in flow.tasks
    ]


def merge(name: str, layers: Sequence[Layer]) -> Merged:
    """One flow of all layers, the first of which wins.

    A template that would close a circle of tasks that wait for each other is left out, and so the
    next source's template of that task may come in. A slot that holds the answer of a task which no
    layer describes becomes an input variable that no run gives.
    """
    chosen: dict[str, Template] = {}
    sources: dict[str, Source] = {}
    for layer in layers:
        for template in layer.templates:
            if template.task not in chosen and not _closes_circle(template, chosen):
                chosen[template.task] = template
                sources[template.task] = layer.source
    if not chosen:
        return Merged(None, {})
    for layer in layers:
        if (
            layer.flow is not None
            and len(layer.templates) == len(chosen)
            and all(chosen.get(template.task) is template for template in layer.templates)
        ):
            return Merged(layer.flow, sources)
    return Merged(_Merger(chosen).flow(name), sources)


def _closes_circle(template: Template, chosen: Mapping[str, Template]) -> bool:
    """Whether the task waits for itself, by its own slots or by those of chosen tasks."""
    waiting = list(_answers(template))
    seen: set[str] = set()
    while waiting:
        task = waiting.pop()
        if task == template.task:
            return True
        if task not in seen and task in chosen:
            waiting += _answers(chosen[task])
        seen.add(task)
    return False


def _answers(template: Template) -> list[str]:
    return [
        one.name
        for origin in template.origins.values()
        for one in origin.all()
        if one.kind == "answer"
    ]


class _Merger:
    """Gives the variables of templates from different flows names that fit together."""

    def __init__(self, chosen: Mapping[str, Template]) -> None:
        self._chosen = chosen
        origins = [
            o for t in chosen.values() for origin in t.origins.values() for o in origin.all()
        ]
        # Runs find their inputs by these names: they must stay as they are.
        self._inputs = {o.name: o.description for o in reversed(origins) if o.kind == "input"}
        self._taken = set(self._inputs)
        self._outputs = {task: unique(t.output, self._taken) for task, t in chosen.items()}
        self._unknown: dict[str, str] = {}
        self._newest: dict[tuple[str, ...], str] = {}

    def flow(self, name: str) -> TaskFlow:
        prompts = {task: self._prompt(template) for task, template in self._chosen.items()}
        read = {name for prompt in prompts.values() for name in prompt.variables}
        read |= {name for of in self._newest for name in of}
        variables: list[AnyVariable] = [
            InputVar(name, description=text) for name, text in sorted(self._inputs.items())
        ]
        variables += [
            InputVar(name, description=why, opaque=True) for name, why in self._unknown.items()
        ]
        for task, template in self._chosen.items():
            output = self._outputs[task]
            kept = template.result or output not in read
            variables.append(OutputVar(output) if kept else IntermediateVar(output))
        variables += [NewestVar(newest, of=of) for of, newest in self._newest.items()]
        flow = TaskFlow(
            name=name,
            variables=tuple(variables),
            tasks=tuple(
                Task(
                    name=task,
                    prompt=prompts[task],
                    output=self._outputs[task],
                    sampling=template.sampling,
                    targets=template.targets,
                )
                for task, template in self._chosen.items()
            ),
        )
        flow.validate_flow()
        return flow

    def _prompt(self, template: Template) -> PromptTemplate:
        names = {
            variable: self._name(template, origin) for variable, origin in template.origins.items()
        }
        if all(old == new for old, new in names.items()):
            return template.prompt
        sections = [
            (role, "".join(_written(segment, names) for segment in segments))
            for role, segments in template.prompt.sections
        ]
        if template.prompt.messages is None:
            return PromptTemplate(text=sections[0][1])
        return PromptTemplate(
            messages=tuple(MessageTemplate(str(role), text) for role, text in sections),
            tools=template.prompt.tools,
        )

    def _name(self, template: Template, origin: Origin) -> str:
        if origin.kind == "input":
            return origin.name
        if origin.kind == "answer" and origin.name in self._outputs:
            return self._outputs[origin.name]
        if origin.kind == "newest":
            known = (o for o in origin.several if o.kind == "input" or o.name in self._outputs)
            of = tuple(dict.fromkeys(self._name(template, one) for one in known))
            if len(of) > 1:
                if of not in self._newest:
                    self._newest[of] = unique(origin.name, self._taken)
                return self._newest[of]
            if of:
                return of[0]
        why = (
            f"not known before the call of {template.task!r}: no template of {origin.name!r}"
            if origin.kind == "answer"
            else origin.name
        )
        name = unique(f"opaque_{len(self._unknown) + 1}", self._taken)
        self._unknown[name] = why
        return name


def _written(segment: Segment, names: Mapping[str, str]) -> str:
    if isinstance(segment, Literal_):
        return literal_to_template(segment.text)
    return str(Slot(names[segment.variable], segment.transducer))
