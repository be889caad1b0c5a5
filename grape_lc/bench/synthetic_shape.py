"""The synthetic workload as the simulator takes it: ``synthetic:depth=8,fan_out=2``.

The axes are those of the workflow. What its model would write is not known here: every answer has
exactly ``output`` tokens.
"""

from __future__ import annotations

from math import log
from typing import Any

from grape_lc.engine.simulator.programs import (
    Answer,
    Input,
    Length,
    Shape,
    Static,
    Targets,
    TaskShape,
)
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.errors import ConfigError
from grape_lc.workflow_package import load_workflow

NAME = "synthetic"

# Assumed, in tokens: answers without a limit, tasks, what a tool finds, what a message ends with.
_ANSWER = 128
_TASK = Length(60, 0.3, 200)
_FOUND = Length(60, 0.3, 200)
_CLOSING = Static("closing", 12)
_TARGETS = Targets(ttft_s=1.5, tbt_s=0.06)


def workload_shape(text: str) -> Shape:
    """The shape of this name, or the synthetic one with these axes.

    Raises ConfigError for other names, with the known ones, and for axes that are not simulated.
    """
    if text in SHAPES:
        return SHAPES[text]
    name, _, axes = text.partition(":")
    if name != NAME:
        known = ", ".join([*SHAPES, f"{NAME}:axis=value"])
        raise ConfigError(f"unknown workload {text!r}; known: {known}")
    from grape_lc.bench.synthetic import parse_axes

    try:
        setting = load_workflow(NAME).Axes.of(parse_axes(axes))
    except ValueError as error:
        raise ConfigError(f"workload {text!r}: {error}") from error
    if setting.branch:
        raise ConfigError(f"workload {text!r}: programs that go past stages are not simulated")
    return Shape(text, (_tasks(setting),), _TARGETS)


def _tasks(setting: Any) -> tuple[TaskShape, ...]:
    shared = round(setting.static * setting.shared)
    answer = Length(_ANSWER if setting.output is None else setting.output)
    tasks: list[TaskShape] = []
    before: list[Answer] = []
    for stage in range(1, setting.depth + 1):
        calls = setting.calls(stage)
        for call in calls:
            texts = (Static("shared", shared), Static(call, setting.static - shared))
            role = [text for text in texts if text.tokens]
            parts: list[Static | Input | Answer] = [*role, Input("task", _TASK), *before]
            if setting.variable == "first":
                parts = [*before, *role, Input("task", _TASK)]
            tools = setting.tools and stage > 1
            tool_s = _tool_s(setting) if tools else 0.0
            if tools:
                parts.append(Input(f"found {stage}", _FOUND, late=True))
            tasks.append(TaskShape(call, (*parts, _CLOSING), answer, tool_s))
        before = [Answer(call) for call in calls]
    return tuple(tasks)


def _tool_s(setting: Any) -> float:
    """Mean seconds of a tool, tries that failed included; of one try the median is ``tool_ms``."""
    return float(setting.tool_ms / 1e3 / log(2) / (1 - setting.tool_failure))
