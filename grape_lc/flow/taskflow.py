r"""TaskFlow: tasks that call a model, and the variables that tie them together.

    flow = TaskFlow(name="code")
    problem = flow.add_variable(InputVar("problem"))
    plan = flow.add_variable(IntermediateVar("plan"))
    code = flow.add_variable(OutputVar("code"))
    flow.add_task("Plan for: {problem}", plan, max_tokens=200)
    flow.add_task([("user", "Write the code.\n{plan}\n{problem}")], code)

Who waits for whom follows from the variables: a task is downstream of the writers of the
variables that its prompt reads. ``add_variable`` and ``add_task`` refuse at once what can
never become right; ``validate_flow`` checks what only the whole flow shows.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from pydantic import ConfigDict, ValidationError, field_validator, model_validator

from grape_lc.errors import (
    DuplicateNameError,
    EngineError,
    FlowError,
    FlowFormatError,
    FlowInputError,
    NeverReadError,
    NeverWrittenError,
    UnknownVariableError,
    WrittenTwiceError,
)
from grape_lc.flow._graph import TaskGraph
from grape_lc.flow._model import FlowModel, as_flow_error
from grape_lc.flow.events import FlowEvent, FlowResult, ProgramFinished, TaskFinished, TokenUsage
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.targets import Targets
from grape_lc.flow.template import PromptLike, PromptTemplate
from grape_lc.flow.variables import (
    AnyVariable,
    InputVar,
    IntermediateVar,
    NewestVar,
    OutputVar,
    Variable,
)
from grape_lc.limits import FLOW_READS, FLOW_TASKS, FLOW_VARIABLES, NAME_CHARS, TEXT_CHARS
from grape_lc.strict_json import StrictJSONError, read_json

if TYPE_CHECKING:
    from grape_lc.flow.explain import Explanation

_VERSION: Literal[1] = 1

_SHOWN, _SHOWN_CHARS = 50, 100
"""Items that an error lists, and characters of each."""

_V = TypeVar("_V", bound=Variable)


class FlowRunner(Protocol):
    """What an engine offers to run a flow.

    Both methods get a valid flow and complete inputs, yield the events of one run in the
    order in which they happen, and end with ProgramFinished. Closing the iterator early
    cancels the run. They raise EngineError or RequestError. ``tenant``: see ``TaskFlow.stream``.
    """

    def run_flow_events(
        self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = ""
    ) -> AsyncIterator[FlowEvent]:
        """Run on the running event loop."""
        ...

    def run_flow_events_sync(
        self, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = ""
    ) -> Iterator[FlowEvent]:
        """Run without an event loop."""
        ...


class Task(FlowModel):
    """One call of the model.

    name: unique in the flow, not blank.
    prompt: what is sent; its slots name the variables that the task reads.
    output: name of the variable that the answer is written to.
    targets: how soon its answer is wanted, where that differs from its flow's targets.
    """

    name: str
    prompt: PromptTemplate
    output: str
    sampling: Sampling = Sampling()
    targets: Targets = Targets()

    @classmethod
    def _subject(cls, data: dict[str, Any]) -> str:
        return f"task {data.get('name')!r}: "

    @field_validator("name")
    @classmethod
    def _name_is_not_blank(cls, name: str) -> str:
        if not name.strip():
            raise FlowFormatError("the name is blank")
        NAME_CHARS.check(len(name), "the name", FlowFormatError)
        return name


class TaskFlow(FlowModel):
    """A graph of tasks; see the text of this module for how to build one.

    ``targets`` says how soon answers are wanted, of every task that has no targets of its own.

    Raises, like ``add_variable`` and ``add_task``, FlowFormatError, PromptSyntaxError,
    DuplicateNameError, UnknownVariableError, WrittenTwiceError and CycleError. Methods that
    take a task take it or its name, and raise FlowError for one that is not here.
    """

    model_config = ConfigDict(frozen=False)

    version: Literal[1] = _VERSION
    name: str = "flow"
    variables: tuple[AnyVariable, ...] = ()
    tasks: tuple[Task, ...] = ()
    targets: Targets = Targets()

    @model_validator(mode="after")
    def _parts_fit(self) -> TaskFlow:
        self._check_parts()
        return self

    # -- building ---------------------------------------------------------------------------

    def add_variable(self, var: _V) -> _V:
        """Declare a variable and return it."""
        if not isinstance(var, (InputVar, IntermediateVar, OutputVar, NewestVar)):
            raise FlowFormatError(
                "add_variable takes an InputVar, IntermediateVar, OutputVar or NewestVar, not "
                f"{var!r}"
            )
        FLOW_VARIABLES.check(len(self.variables) + 1, self._what, FlowFormatError)
        _check_variable(var, {v.name: v for v in self.variables})
        self.variables = (*self.variables, var)
        return var

    def add_task(
        self,
        prompt: PromptLike,
        task_output: Variable | str,
        *,
        name: str | None = None,
        sampling: Sampling | None = None,
        targets: Targets | None = None,
        **sampling_fields: Any,
    ) -> Task:
        """Declare a task that writes ``task_output``, and return it.

        prompt: a text to complete, chat messages as (role, content) pairs, mappings or
            MessageTemplates, or a PromptTemplate. Its variables are declared before.
        name: the name of the output variable when not given.
        sampling: a Sampling, or its fields as keywords, such as ``max_tokens=200``.
        targets: of this task; those it leaves open are the flow's.
        """
        output = self._declared(task_output)
        name = output if name is None else name
        try:
            template = PromptTemplate.of(prompt)
        except FlowError as error:
            raise type(error)(f"task {name!r}: {error}") from None
        task = Task(
            name=name,
            prompt=template,
            output=output,
            sampling=_sampling(name, sampling, sampling_fields),
            targets=Targets() if targets is None else targets,
        )
        _check_task(
            task,
            {v.name: v for v in self.variables},
            {t.output: t for t in self.tasks},
            {t.name for t in self.tasks},
        )
        tasks = (*self.tasks, task)
        self._check_sizes(tasks)
        read = {name for other in tasks for name in self.read_by(other)}
        if output in read:
            _ = TaskGraph(tasks, self.choices).order  # raises when the new task closes a cycle
        self.tasks = tasks
        return task

    def _declared(self, variable: Variable | str) -> str:
        """The name of a declared variable, given it or its name."""
        if isinstance(variable, str):
            return variable
        if not isinstance(variable, Variable):
            raise FlowFormatError(
                f"task_output is {variable!r}: pass a variable of this flow, or its name"
            )
        declared = {v.name: v for v in self.variables}.get(variable.name)
        if declared is not None and declared != variable:
            raise UnknownVariableError(
                f"{variable!r} is not the variable of that name in flow {self.name!r}, which "
                f"is {declared!r}"
            )
        return variable.name

    # -- checking ---------------------------------------------------------------------------

    def validate_flow(self) -> None:
        """Check the whole flow.

        Raises what the constructor raises, and FlowError (no task), CycleError,
        NeverWrittenError and NeverReadError.
        """
        self._check_parts()
        if not self.tasks:
            raise FlowError(f"flow {self.name!r} has no task: declare one with add_task")
        self.order()
        written = {task.output for task in self.tasks}
        read = {name for task in self.tasks for name in self.read_by(task)}
        for var in self.variables:
            if var.kind not in ("input", "newest") and var.name not in written:
                raise NeverWrittenError(
                    f"no task writes {_describe(var)}; the tasks write: "
                    + _list(f"{t.output!r} ({t.name!r})" for t in self.tasks)
                )
            if var.kind != "output" and var.name not in read:
                raise NeverReadError(
                    f"no prompt reads {_describe(var)}: read it as {{{var.name}}}, or remove it; "
                    "the prompts read: " + _list(sorted(map(repr, read)))
                )

    def check_inputs(self, inputs: Mapping[str, str], *, partial: bool = False) -> None:
        """Check the inputs of a run: each input variable has a string, and nothing else.

        ``partial`` allows missing ones. Raises FlowInputError, which names every fault.
        """
        if not isinstance(inputs, Mapping):
            raise FlowInputError(
                f"the inputs of flow {self.name!r} are {type(inputs).__name__}: give a mapping "
                "from names to texts"
            )
        known = [var.name for var in self.variables if var.kind == "input"]
        faults = []
        missing = [name for name in known if name not in inputs]
        if missing and not partial:
            faults.append(f"missing: {_list(map(repr, missing))}")
        unknown = [name for name in inputs if name not in known]
        if unknown:
            faults.append(f"unknown: {_list(map(repr, unknown))}")
        faults += [
            f"{name!r} is {type(inputs[name]).__name__}, not a string"
            for name in known
            if name in inputs and not isinstance(inputs[name], str)
        ]
        faults += [
            f"{name!r}: {TEXT_CHARS.excess(len(inputs[name]))}"
            for name in known
            if name in inputs and _is_long(inputs[name])
        ]
        if faults:
            raise FlowInputError(
                f"inputs do not fit flow {self.name!r}: {'; '.join(faults)}; its inputs are "
                + _list(map(repr, known))
            )

    @property
    def _what(self) -> str:
        return f"flow {self.name:.60}"

    def _check_sizes(self, tasks: tuple[Task, ...]) -> None:
        NAME_CHARS.check(len(self.name), "the name of a flow", FlowFormatError)
        FLOW_VARIABLES.check(len(self.variables), self._what, FlowFormatError)
        FLOW_TASKS.check(len(tasks), self._what, FlowFormatError)
        behind = {var.name: len(var.of) for var in self.variables if isinstance(var, NewestVar)}
        reads = sum(behind.get(name, 1) for task in tasks for name in task.prompt.variables)
        FLOW_READS.check(reads, self._what, FlowFormatError)

    def _check_parts(self) -> None:
        self._check_sizes(self.tasks)
        variables: dict[str, Variable] = {}
        for var in self.variables:
            _check_variable(var, variables)
            variables[var.name] = var
        writers: dict[str, Task] = {}
        names: set[str] = set()
        for task in self.tasks:
            _check_task(task, variables, writers, names)
            writers[task.output] = task
            names.add(task.name)

    # -- asking -----------------------------------------------------------------------------

    @property
    def choices(self) -> Mapping[str, tuple[str, ...]]:
        """The variables of which each NewestVar is the newest, by its name."""
        return self._graph.choices

    def written_by(self, task: Task) -> tuple[str, ...]:
        """The variables that a task's answer is from its first token on: its output, and each
        NewestVar that this is one of.
        """
        newest = (name for name, of in self.choices.items() if task.output in of)
        return (task.output, *newest)

    def read_by(self, task: Task) -> tuple[str, ...]:
        """Variables that a prompt reads, and those behind each NewestVar of it."""
        choices = self.choices
        return tuple(n for v in task.prompt.variables for n in (v, *choices.get(v, ())))

    def variable(self, name: str) -> Variable:
        """The variable of this name. Raises UnknownVariableError."""
        for var in self.variables:
            if var.name == name:
                return var
        raise UnknownVariableError(
            f"flow {self.name!r} has no variable {name!r}; "
            f"declared: {_list(repr(v.name) for v in self.variables)}"
        )

    def task(self, name: str) -> Task:
        """The task of this name. Raises FlowError."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise FlowError(
            f"flow {self.name!r} has no task {name!r}; "
            f"tasks: {_list(repr(t.name) for t in self.tasks)}"
        )

    def order(self) -> tuple[Task, ...]:
        """The tasks, each after its upstreams; ties go to the one that was declared first.

        Raises CycleError.
        """
        return self._graph.order

    def upstream(self, task: Task | str) -> tuple[str, ...]:
        """Names of the tasks whose outputs this one reads, as its prompt reads them first."""
        return self._graph.upstreams[self._name(task)]

    def needs(self, task: Task | str) -> tuple[tuple[str, ...], ...]:
        """The upstreams in groups, one for each text of the prompt; of a group one is enough."""
        return self._graph.needs[self._name(task)]

    def downstream(self, task: Task | str) -> tuple[str, ...]:
        """Names of the tasks that read this one's output, in the order of declaration."""
        return self._graph.downstreams[self._name(task)]

    def depth(self, task: Task | str) -> int:
        """Hops on the longest path from a task without upstream (0) to this one.

        Raises CycleError.
        """
        return self._graph.depths[self._name(task)]

    def ancestors(self, task: Task | str) -> frozenset[str]:
        """Names of the tasks that end before this one can start. Raises CycleError."""
        return self._graph.ancestors[self._name(task)]

    @property
    def _graph(self) -> TaskGraph:
        """The graph of the tasks, kept until ``tasks`` or ``variables`` is another tuple.

        It lies where functools.cached_property would put it, so that pydantic leaves it out of
        dumps and comparisons.
        """
        memo: tuple[object, object, TaskGraph] | None = self.__dict__.get("_graph_memo")
        if memo is None or memo[0] is not self.tasks or memo[1] is not self.variables:
            choices = {var.name: var.of for var in self.variables if isinstance(var, NewestVar)}
            memo = (self.tasks, self.variables, TaskGraph(self.tasks, choices))
            self.__dict__["_graph_memo"] = memo
        return memo[2]

    def _name(self, task: Task | str) -> str:
        name = task if isinstance(task, str) else task.name
        return name if name in self._graph.upstreams else self.task(name).name

    def explain(
        self,
        inputs: Mapping[str, str] | None = None,
        count_tokens: Callable[[str], int] | None = None,
    ) -> Explanation:
        """What of each prompt can be prefilled when; see ``grape_lc.flow.explain``."""
        from grape_lc.flow.explain import explain  # it imports this module

        return explain(self, inputs, count_tokens)

    # -- storing ----------------------------------------------------------------------------

    def to_json(self) -> str:
        """The flow as JSON text, which ``from_json`` reads.

        Raises FlowFormatError when a sampling field holds what JSON cannot express, or a text what
        UTF-8 cannot: half of a surrogate pair.
        """
        try:
            text = json.dumps(
                self.model_dump(mode="json"), ensure_ascii=False, allow_nan=False, indent=2
            )
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise FlowFormatError(self._not_utf_8(error)) from error
        except ValueError as error:
            raise FlowFormatError(f"flow {self.name!r} cannot be JSON: {error}") from error
        # Sampling.extra holds anything: numbers as keys, say, would come back as strings.
        again = TaskFlow.from_json(text)
        changed = [a.name for a, b in zip(self.tasks, again.tasks, strict=True) if a != b]
        if changed:
            raise FlowFormatError(
                f"flow {self.name!r} cannot be JSON: sampling.extra would come back changed in "
                f"task {_list(map(repr, changed))}"
            )
        return text

    def _not_utf_8(self, error: UnicodeEncodeError) -> str:
        lone = error.object[error.start]
        data = {task.name: task.model_dump(mode="json") for task in self.tasks}
        tasks = [name for name in data if lone in json.dumps(data[name], ensure_ascii=False)]
        where = f" (task {_list(map(repr, tasks))})" if tasks else ""
        return (
            f"flow {self.name!r} cannot be written as JSON: it has the half of a surrogate pair "
            f"{lone!r}{where}; write the whole character"
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskFlow:
        """The flow that ``to_json`` wrote.

        Raises FlowFormatError on text that is not JSON or leaves open what it says
        (``strict_json``), an unknown version, and unknown or missing fields, and otherwise what
        the constructor raises.
        """
        try:
            data = read_json(text)
        except StrictJSONError as error:
            raise FlowFormatError(f"a flow is read from JSON: {error}") from error
        if not isinstance(data, dict):
            raise FlowFormatError(f"a flow is a JSON object, not {type(data).__name__}")
        version = data.get("version")
        if version != _VERSION or isinstance(version, bool):
            found = repr(version) if "version" in data else "none"
            raise FlowFormatError(
                f"unknown version of the flow format: found {found}, can read {_VERSION}"
            )
        return cls.from_data(data)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> TaskFlow:
        """The flow that ``model_dump(mode="json")`` made. Raises what the constructor raises."""
        for name, limit in (("tasks", FLOW_TASKS), ("variables", FLOW_VARIABLES)):
            # Before each of them is looked at.
            if isinstance(given := data.get(name), list | tuple):
                limit.check(len(given), "a flow", FlowFormatError)
        return cls(**data)

    # -- running ----------------------------------------------------------------------------

    def stream(
        self, engine: FlowRunner, inputs: Mapping[str, str], *, tenant: str = ""
    ) -> AsyncIterator[FlowEvent]:
        """Run the flow and yield its events.

        tenant: on whose behalf. Nothing that is computed for one tenant is used for another.

        Raises at once FlowInputError and what ``validate_flow`` raises; while it runs,
        EngineError, RequestError, or TransducerError when an answer does not fit a slot.
        """
        self.validate_flow()
        self.check_inputs(inputs)
        return engine.run_flow_events(self, inputs, tenant)

    def stream_sync(
        self, engine: FlowRunner, inputs: Mapping[str, str], *, tenant: str = ""
    ) -> Iterator[FlowEvent]:
        """Like ``stream``, without an event loop."""
        self.validate_flow()
        self.check_inputs(inputs)
        return engine.run_flow_events_sync(self, inputs, tenant)

    async def run(
        self, engine: FlowRunner, inputs: Mapping[str, str], *, tenant: str = ""
    ) -> FlowResult:
        """Run the flow and wait for its result; errors as for ``stream``."""
        collected = _Collector(self.name)
        async for event in self.stream(engine, inputs, tenant=tenant):
            collected.add(event)
        return collected.result()

    def run_sync(
        self, engine: FlowRunner, inputs: Mapping[str, str], *, tenant: str = ""
    ) -> FlowResult:
        """Like ``run``, without an event loop."""
        collected = _Collector(self.name)
        for event in self.stream_sync(engine, inputs, tenant=tenant):
            collected.add(event)
        return collected.result()


class _Collector:
    """Gathers the events of one run into its result."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._usage: dict[str, TokenUsage] = {}
        self._end: ProgramFinished | None = None

    def add(self, event: FlowEvent) -> None:
        if isinstance(event, TaskFinished):
            self._usage[event.task] = event.usage
        elif isinstance(event, ProgramFinished):
            self._end = event

    def result(self) -> FlowResult:
        if self._end is None:
            raise EngineError(
                f"the engine ended the run of flow {self._flow!r} without a result; finished "
                f"tasks: {_list(map(repr, self._usage))}"
            )
        return FlowResult(self._end.program, self._end.outputs, self._end.values, self._usage)


def _check_variable(var: Variable, declared: Mapping[str, Variable]) -> None:
    if var.name in declared:
        raise DuplicateNameError(
            f"variable {var.name!r} is declared twice: {_describe(declared[var.name])} exists; "
            f"names in use: {_list(map(repr, declared))}"
        )
    if isinstance(var, NewestVar):
        for name in var.of:
            if name not in declared or declared[name].kind == "newest":
                raise UnknownVariableError(
                    f"{_describe(var)} names {name!r}, which is no input, intermediate or output "
                    "declared before it; those are: "
                    + _list(map(_describe, (v for v in declared.values() if v.kind != "newest")))
                )


def _check_task(
    task: Task,
    variables: Mapping[str, Variable],
    writers: Mapping[str, Task],
    names: Iterable[str],
) -> None:
    """What of a task can be checked against the variables and the tasks before it."""
    if task.name in names:
        raise DuplicateNameError(
            f"task {task.name!r} is declared twice; names in use: "
            + _list(repr(t.name) for t in writers.values())
        )
    for verb, name in [("writes", task.output), *(("reads", v) for v in task.prompt.variables)]:
        if name not in variables:
            raise UnknownVariableError(
                f"task {task.name!r} {verb} {name!r}, which is not declared; variables: "
                + _list(map(_describe, variables.values()))
            )
    if variables[task.output].kind in ("input", "newest") or task.output in writers:
        writer = writers.get(task.output)
        raise WrittenTwiceError(
            f"task {task.name!r} writes {_describe(variables[task.output])}, which "
            + (
                f"task {writer.name!r} writes"
                if writer is not None
                else "every run gives"
                if variables[task.output].kind == "input"
                else "is one of several others"
            )
            + "; variables without a writer: "
            + _list(
                repr(var.name)
                for var in variables.values()
                if var.kind not in ("input", "newest") and var.name not in writers
            )
        )
    if task.output in task.prompt.variables:
        _ = TaskGraph((task,)).order  # raises: the task waits for itself


def _sampling(task: str, sampling: Sampling | None, fields: dict[str, Any]) -> Sampling:
    if sampling is not None:
        if fields:
            raise FlowFormatError(
                f"task {task!r}: give sampling= or its fields as keywords, not both "
                f"(keywords: {_list(map(repr, fields))})"
            )
        return sampling
    try:
        return Sampling(**fields)
    except ValidationError as error:
        raise FlowFormatError(
            f"task {task!r}: {as_flow_error('sampling', error)}; "
            f"fields: {_list(map(repr, Sampling.model_fields))}"
        ) from None


def _describe(var: Variable) -> str:
    return f"{var.kind} variable {var.name!r}"


def _is_long(text: object) -> bool:
    return isinstance(text, str) and len(text) > TEXT_CHARS.value


def _list(items: Iterable[str]) -> str:
    found = list(items)
    shown = [item if len(item) <= _SHOWN_CHARS else f"{item[:_SHOWN_CHARS]}..." for item in found]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return ", ".join(shown[:_SHOWN] + more) or "none"
