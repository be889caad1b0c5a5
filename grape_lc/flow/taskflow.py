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

import heapq
import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar

from pydantic import ConfigDict, ValidationError, model_validator

from grape_lc.errors import (
    CycleError,
    DuplicateNameError,
    EngineError,
    FlowError,
    FlowInputError,
    NeverReadError,
    NeverWrittenError,
    UnknownVariableError,
    WrittenTwiceError,
)
from grape_lc.flow._model import FlowFormatError, FlowModel, as_flow_error
from grape_lc.flow.events import FlowEvent, FlowResult, ProgramFinished, TaskFinished, TokenUsage
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.template import PromptLike, PromptTemplate
from grape_lc.flow.variables import AnyVariable, InputVar, IntermediateVar, OutputVar, Variable

_VERSION: Literal[1] = 1

_V = TypeVar("_V", bound=Variable)


class UnknownTaskError(FlowError):
    """A flow was asked for a task that it does not have."""


class FlowRunner(Protocol):
    """What an engine offers to run a flow.

    Both methods get a valid flow and complete inputs, yield the events of one run in the
    order in which they happen, and end with ProgramFinished. Closing the iterator early
    cancels the run. They raise EngineError or RequestError.
    """

    def run_flow_events(
        self, flow: TaskFlow, inputs: Mapping[str, str]
    ) -> AsyncIterator[FlowEvent]:
        """Run on the running event loop."""
        ...

    def run_flow_events_sync(
        self, flow: TaskFlow, inputs: Mapping[str, str]
    ) -> Iterator[FlowEvent]:
        """Run without an event loop."""
        ...


class Task(FlowModel):
    """One call of the model.

    name: unique in the flow, not blank.
    prompt: what is sent; its slots name the variables that the task reads.
    output: name of the variable that the answer is written to.
    """

    name: str
    prompt: PromptTemplate
    output: str
    sampling: Sampling = Sampling()

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except FlowError as error:
            raise type(error)(f"task {data.get('name')!r}: {error}") from None
        if not self.name.strip():
            raise FlowFormatError(f"task name {self.name!r} is blank")


class TaskFlow(FlowModel):
    """A graph of tasks; see the text of this module for how to build one.

    Raises, like ``add_variable`` and ``add_task``, FlowFormatError, PromptSyntaxError,
    DuplicateNameError, UnknownVariableError, WrittenTwiceError and CycleError. Methods that
    take a task take it or its name, and raise UnknownTaskError for one that is not here.
    """

    model_config = ConfigDict(frozen=False)

    version: Literal[1] = _VERSION
    name: str = "flow"
    variables: tuple[AnyVariable, ...] = ()
    tasks: tuple[Task, ...] = ()

    @model_validator(mode="after")
    def _parts_fit(self) -> TaskFlow:
        self._check_parts()
        return self

    # -- building ---------------------------------------------------------------------------

    def add_variable(self, var: _V) -> _V:
        """Declare a variable and return it."""
        if not isinstance(var, (InputVar, IntermediateVar, OutputVar)):
            raise FlowFormatError(
                f"add_variable takes an InputVar, IntermediateVar or OutputVar, not {var!r}"
            )
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
        **sampling_fields: Any,
    ) -> Task:
        """Declare a task that writes ``task_output``, and return it.

        prompt: a text to complete, chat messages as (role, content) pairs, mappings or
            MessageTemplates, or a PromptTemplate. Its variables are declared before.
        name: the name of the output variable when not given.
        sampling: a Sampling, or its fields as keywords, such as ``max_tokens=200``.
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
        )
        _check_task(
            task,
            {v.name: v for v in self.variables},
            {t.output: t for t in self.tasks},
            {t.name for t in self.tasks},
        )
        tasks = (*self.tasks, task)
        if any(output in other.prompt.variables for other in self.tasks):
            _sorted_tasks(tasks)  # raises when the new task closes a cycle
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
        read = {name for task in self.tasks for name in task.prompt.variables}
        for var in self.variables:
            if var.kind != "input" and var.name not in written:
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
        if faults:
            raise FlowInputError(
                f"inputs do not fit flow {self.name!r}: {'; '.join(faults)}; its inputs are "
                + _list(map(repr, known))
            )

    def _check_parts(self) -> None:
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
        """The task of this name. Raises UnknownTaskError."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise UnknownTaskError(
            f"flow {self.name!r} has no task {name!r}; "
            f"tasks: {_list(repr(t.name) for t in self.tasks)}"
        )

    def order(self) -> tuple[Task, ...]:
        """The tasks, each after its upstreams; ties go to the one that was declared first.

        Raises CycleError.
        """
        return _sorted_tasks(self.tasks)

    def upstream(self, task: Task | str) -> tuple[str, ...]:
        """Names of the tasks whose outputs this one reads, as its prompt reads them first."""
        return _upstreams(self.tasks)[self._name(task)]

    def downstream(self, task: Task | str) -> tuple[str, ...]:
        """Names of the tasks that read this one's output, in the order of declaration."""
        output = self.task(self._name(task)).output
        return tuple(t.name for t in self.tasks if output in t.prompt.variables)

    def depth(self, task: Task | str) -> int:
        """Hops on the longest path from a task without upstream (0) to this one."""
        name = self._name(task)
        upstreams = _upstreams(self.tasks)
        depths: dict[str, int] = {}
        for each in self.order():
            depths[each.name] = 1 + max((depths[up] for up in upstreams[each.name]), default=-1)
        return depths[name]

    def _name(self, task: Task | str) -> str:
        return self.task(task if isinstance(task, str) else task.name).name

    # -- storing ----------------------------------------------------------------------------

    def to_json(self) -> str:
        """The flow as JSON text, which ``from_json`` reads.

        Raises FlowFormatError when a sampling field holds what JSON cannot express.
        """
        try:
            return json.dumps(
                self.model_dump(mode="json"), ensure_ascii=False, allow_nan=False, indent=2
            )
        except ValueError as error:
            raise FlowFormatError(f"flow {self.name!r} cannot be JSON: {error}") from error

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskFlow:
        """The flow that ``to_json`` wrote.

        Raises FlowFormatError on text that is not JSON, an unknown version, and unknown or
        missing fields, and otherwise what the constructor raises.
        """
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FlowFormatError(f"a flow is read from JSON: {error}") from error
        if not isinstance(data, dict):
            raise FlowFormatError(f"a flow is a JSON object, not {type(data).__name__}")
        version = data.get("version")
        if version != _VERSION or isinstance(version, bool):
            found = repr(version) if "version" in data else "none"
            raise FlowFormatError(
                f"unknown version of the flow format: found {found}, can read {_VERSION}"
            )
        return cls(**data)

    # -- running ----------------------------------------------------------------------------

    def stream(self, engine: FlowRunner, inputs: Mapping[str, str]) -> AsyncIterator[FlowEvent]:
        """Run the flow and yield its events.

        Raises at once FlowInputError and what ``validate_flow`` raises; while it runs,
        EngineError or RequestError.
        """
        self.validate_flow()
        self.check_inputs(inputs)
        return engine.run_flow_events(self, inputs)

    def stream_sync(self, engine: FlowRunner, inputs: Mapping[str, str]) -> Iterator[FlowEvent]:
        """Like ``stream``, without an event loop."""
        self.validate_flow()
        self.check_inputs(inputs)
        return engine.run_flow_events_sync(self, inputs)

    async def run(self, engine: FlowRunner, inputs: Mapping[str, str]) -> FlowResult:
        """Run the flow and wait for its result; errors as for ``stream``."""
        usage: dict[str, TokenUsage] = {}
        async for event in self.stream(engine, inputs):
            if (result := _collect(event, usage)) is not None:
                return result
        raise _unfinished(self.name, usage)

    def run_sync(self, engine: FlowRunner, inputs: Mapping[str, str]) -> FlowResult:
        """Like ``run``, without an event loop."""
        usage: dict[str, TokenUsage] = {}
        for event in self.stream_sync(engine, inputs):
            if (result := _collect(event, usage)) is not None:
                return result
        raise _unfinished(self.name, usage)


def _check_variable(var: Variable, declared: Mapping[str, Variable]) -> None:
    if var.name in declared:
        raise DuplicateNameError(
            f"variable {var.name!r} is declared twice: {_describe(declared[var.name])} exists; "
            f"names in use: {_list(map(repr, declared))}"
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
    known = _list(_describe(var) for var in variables.values())
    if task.output not in variables:
        raise UnknownVariableError(
            f"task {task.name!r} writes {task.output!r}, which is not declared; variables: {known}"
        )
    for name in task.prompt.variables:
        if name not in variables:
            raise UnknownVariableError(
                f"task {task.name!r} reads {name!r}, which is not declared; variables: {known}"
            )
    free = _list(
        repr(var.name)
        for var in variables.values()
        if var.kind != "input" and var.name not in writers
    )
    if variables[task.output].kind == "input":
        raise WrittenTwiceError(
            f"task {task.name!r} writes the input variable {task.output!r}, which every run "
            f"gives; variables without a writer: {free}"
        )
    if task.output in writers:
        raise WrittenTwiceError(
            f"task {task.name!r} writes {task.output!r}, which task "
            f"{writers[task.output].name!r} writes; variables without a writer: {free}"
        )
    if task.output in task.prompt.variables:
        _sorted_tasks((task,))  # raises: the task waits for itself


def _upstreams(tasks: tuple[Task, ...]) -> dict[str, tuple[str, ...]]:
    writers = {task.output: task.name for task in tasks}
    return {
        task.name: tuple(writers[name] for name in task.prompt.variables if name in writers)
        for task in tasks
    }


def _sorted_tasks(tasks: tuple[Task, ...]) -> tuple[Task, ...]:
    """Topological order; a heap of declaration indices breaks every tie."""
    index = {task.name: i for i, task in enumerate(tasks)}
    upstreams = _upstreams(tasks)
    readers: dict[str, list[int]] = {task.name: [] for task in tasks}
    for name, ups in upstreams.items():
        for up in ups:
            readers[up].append(index[name])
    waiting = [len(upstreams[task.name]) for task in tasks]
    ready = [i for i, count in enumerate(waiting) if count == 0]
    done: list[Task] = []
    while ready:
        task = tasks[heapq.heappop(ready)]
        done.append(task)
        for reader in readers[task.name]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if len(done) < len(tasks):
        raise _cycle_error([t for i, t in enumerate(tasks) if waiting[i]], upstreams)
    return tuple(done)


def _cycle_error(stuck: list[Task], upstreams: Mapping[str, tuple[str, ...]]) -> CycleError:
    """Name one cycle among tasks of which each has an upstream among them.

    Walking from the first one up, always to the first upstream that is stuck too, must
    come back to a task that was seen: from there on the walk is the cycle, backwards.
    """
    tasks = {task.name: task for task in stuck}
    walk: list[str] = []
    name = stuck[0].name
    while name not in walk:
        walk.append(name)
        name = next(up for up in upstreams[name] if up in tasks)
    cycle = walk[walk.index(name) :][::-1]
    first = min(cycle, key=list(tasks).index)  # start at the one that was declared first
    at = cycle.index(first)
    cycle = [*cycle[at:], *cycle[:at]]
    steps = " -> ".join(f"{name!r} writes {tasks[name].output!r}" for name in cycle)
    return CycleError(f"tasks wait for each other's output: {steps} -> {cycle[0]!r} reads it")


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


def _collect(event: FlowEvent, usage: dict[str, TokenUsage]) -> FlowResult | None:
    """Note an event; the result when it was the last one."""
    if isinstance(event, TaskFinished):
        usage[event.task] = event.usage
    if isinstance(event, ProgramFinished):
        return FlowResult(event.program, event.outputs, event.values, usage)
    return None


def _unfinished(flow: str, usage: Mapping[str, TokenUsage]) -> EngineError:
    return EngineError(
        f"the engine ended the run of flow {flow!r} without a result; finished tasks: "
        + _list(map(repr, usage))
    )


def _describe(var: Variable) -> str:
    return f"{var.kind} variable {var.name!r}"


def _list(items: Iterable[str]) -> str:
    return ", ".join(items) or "none"
