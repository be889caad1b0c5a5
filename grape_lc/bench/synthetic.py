"""The synthetic workflow: its axes read from text, its TaskFlow, and what its tools did."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from grape_lc.errors import ConfigError
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow, literal_to_template
from grape_lc.flow.sampling import Sampling
from grape_lc.runtime.driver import ToolStep
from grape_lc.workflow_package import load_workflow

Limits = int | Mapping[str, int] | None
"""Limit of every call's answer in tokens, or limits by call; None: no limit."""


def parse_axes(text: str) -> dict[str, Any]:
    """Values written as ``depth=8,fan_out=2``; ValueError for a piece that sets nothing."""
    axes: dict[str, Any] = load_workflow("synthetic").parse_axes(text)
    return axes


def synthetic_axes(text: str) -> dict[str, Any]:
    """Axes written as ``depth=8,fan_out=2``, checked; those that are not named are left out.

    Raises ValueError for unknown axes, with the known ones, and for values out of their bounds.
    """
    axes = parse_axes(text)
    load_workflow("synthetic").Axes.of(axes)
    return axes


def synthetic_flow(
    *,
    past: Collection[int] = (),
    max_tokens: Limits = None,
    sampling: Sampling | None = None,
    **axes: Any,
) -> TaskFlow:
    """The agent with these axes as a TaskFlow, with the prompts of its graph word for word.

    Its input is ``task``. With tools each stage but the first has an opaque input ``found_2`` and
    so on as well: what the tool found is not known when a program starts, and who runs the flow
    without its graph has to give it. Output: ``answer``.

    past: stages that the program goes past. sampling: of every call, but for ``max_tokens``.
    Raises ConfigError when there is no such stage, or it
    cannot be gone past, and for axes that no agent can have.
    """
    module: Any = load_workflow("synthetic")
    try:
        setting = module.Axes.of(axes)
    except ValueError as error:
        raise ConfigError(f"synthetic: {error}") from error
    wrong = [stage for stage in past if not setting.inner(stage)]
    if wrong:
        raise ConfigError(f"past={wrong[0]}: no program of depth={setting.depth} goes past it")
    stages = [stage for stage in range(1, setting.depth + 1) if stage not in past]
    flow = TaskFlow(name="synthetic")
    flow.add_variable(InputVar("task"))
    before: list[str] = []
    for stage in stages:
        if setting.tools and stage > 1:
            flow.add_variable(InputVar(f"found_{stage}", opaque=True, description="of a tool"))
        outputs = []
        for call in setting.calls(stage):
            last = stage == setting.depth
            output = "answer" if last else f"{call}_note"
            flow.add_variable(OutputVar(output) if last else IntermediateVar(output))
            fixed = literal_to_template(module.instructions(call, setting))
            flow.add_task(
                _prompt(fixed, stage, before, first=setting.variable == "first", setting=setting),
                output,
                name=call,
                sampling=(sampling or Sampling()).model_copy(
                    update={"max_tokens": _limit(call, max_tokens, setting.output)}
                ),
            )
            outputs.append(output)
        before = outputs
    return flow


def synthetic_past(task: str, axes: Mapping[str, Any]) -> tuple[int, ...]:
    """The stages that the program with this task goes past."""
    module: Any = load_workflow("synthetic")
    setting = module.Axes.of(axes)
    inner = (stage for stage in range(1, setting.depth + 1) if setting.inner(stage))
    return tuple(stage for stage in inner if module.skips(task, stage, setting.branch))


def synthetic_tools(flow: TaskFlow, axes: Mapping[str, Any]) -> tuple[ToolStep, ...]:
    """The tool calls between the stages of a program, as steps of its flow.

    Each is made when there is all else that the stage behind it reads.
    """
    module: Any = load_workflow("synthetic")
    setting = module.Axes.of(axes)
    lookup = module.Lookup(setting.tool_ms, setting.tool_failure)

    def step(name: str, reads: tuple[str, ...]) -> ToolStep:
        stage = int(name.removeprefix("found_"))

        def use(values: Mapping[str, str]) -> str:
            return str(lookup.find(module.query_of(values["task"], stage))[0])

        return ToolStep(reads, name, use)

    steps = {}
    for task in flow.tasks:
        reads = task.prompt.variables
        for name in (name for name in reads if name.startswith("found_")):
            steps[name] = step(name, tuple(other for other in reads if other != name))
    return tuple(steps.values())


def count_tool_calls(states: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Tool calls in the final states of programs, by the name of each program.

    ``tool_failures``: those that failed. ``tool_duplicates``: those with the arguments of an
    earlier call of the same program that had succeeded; one that is made again since it
    failed is none. Nothing is counted where no state tells of a call.
    """
    if not any(state.get("tool_calls") for state in states.values()):
        return {}
    calls = failures = duplicates = 0
    for state in states.values():
        done: set[tuple[str, str]] = set()
        for call in state.get("tool_calls", ()):
            key = (call["tool"], call["query"])
            calls += 1
            failures += call["failed"]
            duplicates += key in done
            if not call["failed"]:
                done.add(key)
    return {"tool_calls": calls, "tool_failures": failures, "tool_duplicates": duplicates}


def _prompt(
    fixed: str, stage: int, before: list[str], *, first: bool, setting: Any
) -> list[tuple[str, str]]:
    texts = "\n\n".join(f"{{{name}}}" for name in before)
    notes = f"Notes:\n\n{texts}\n\n" if before else ""
    found = f"Looked up:\n\n{{found_{stage}}}\n\n" if setting.tools and stage > 1 else ""
    task = "Task:\n\n{task}\n\n"
    if first:
        return [("system", notes + fixed), ("user", f"{task}{found}Write your note.")]
    return [("system", fixed), ("user", f"{task}{notes}{found}Write your note.")]


def _limit(call: str, max_tokens: Limits, output: int | None) -> int | None:
    limit = max_tokens.get(call) if isinstance(max_tokens, Mapping) else max_tokens
    return min((each for each in (limit, output) if each is not None), default=None)
