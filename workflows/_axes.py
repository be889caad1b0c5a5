"""The axes of the synthetic agent: what is set of its structure, texts and tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, Literal, Self, get_args

Variable = Literal["first", "last"]

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "depth": (1, 32),
    "fan_out": (1, 16),
    "shared": (0, 1),
    "static": (0, 16384),
    "output": (1, 4096),
    "tool_ms": (0, 60000),
    "tool_failure": (0, 0.9),
    "branch": (0, 1),
}
_WHOLE = ("depth", "fan_out", "static", "output")


@dataclass(frozen=True)
class Axes:
    """The axes of a synthetic agent.

    depth: stages, one after the other. fan_out: calls side by side in every second stage that
        another one follows, which reads all their answers.
    static: tokens of each role's instructions, about. shared: the share of them, from the head
        on, that is the same text for all roles.
    variable: where the answers of the stage before stand in a prompt: ``last``, behind the
        instructions, or ``first``, before them.
    output: limit of each answer in tokens; None leaves it to ``max_tokens``.
    tool_ms: how long a tool call before each stage but the first takes, median (ms).
    tool_failure: how likely it is that one fails, and is made again.
    branch: how likely it is that a program goes past a stage. Every second stage can be gone
        past, unless it is the last.

    Tools are called if ``tool_ms`` or ``tool_failure`` is more than 0. Raises ValueError for
    values out of their bounds, and for a fan-out that no stage has.
    """

    depth: int = 4
    fan_out: int = 1
    shared: float = 0.0
    static: int = 400
    variable: Variable = "last"
    output: int | None = None
    tool_ms: float = 0.0
    tool_failure: float = 0.0
    branch: float = 0.0

    def __post_init__(self) -> None:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if not (value is None and name == "output"):
                _check(name, value, least, most)
        if self.variable not in get_args(Variable):
            raise ValueError(f"variable={self.variable}: first or last")
        for name in ("fan_out", "branch"):
            if self.depth < 3 and getattr(self, name) > getattr(Axes, name):
                raise ValueError(
                    f"{name}={getattr(self, name)} needs depth=3 at least, not {self.depth}: it "
                    "is about stages that have one before and one behind them"
                )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The axes with these values, others as by default; ValueError for unknown ones too."""
        known = [field.name for field in fields(cls)]
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"no axis {unknown[0]!r}; there are: {', '.join(known)}")
        return cls(**values)

    @property
    def tools(self) -> bool:
        """Whether a tool is called between stages."""
        return self.tool_ms > 0 or self.tool_failure > 0

    def inner(self, stage: int) -> bool:
        """Whether a stage, counted from 1, is one that may fan out or be gone past."""
        return stage % 2 == 0 and stage < self.depth

    def calls(self, stage: int) -> list[str]:
        """Names of a stage's calls."""
        if self.fan_out == 1 or not self.inner(stage):
            return [f"stage_{stage}"]
        return [f"stage_{stage}_{number}" for number in range(1, self.fan_out + 1)]


def parse_axes(text: str) -> dict[str, Any]:
    """Values of axes written as ``depth=8,fan_out=2``, for ``Axes.of``, which checks them.

    Raises ValueError for a piece that sets nothing, and for an axis that is set twice.
    """
    values: dict[str, Any] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, value = (part.strip() for part in piece.partition("="))
        if not (name and equals and value):
            raise ValueError(f"{piece!r} sets no axis; write name=value")
        if name in values:
            raise ValueError(f"axis {name} is set twice")
        values[name] = _value(value)
    return values


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # thousands of digits or levels, too
        return text


def _check(name: str, value: Any, least: float, most: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    whole = name in _WHOLE
    if not number or not least <= value <= most or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name}={value}: {kind} from {least} to {most}")
    if whole and not isinstance(value, int):
        raise ValueError(f"{name}={value}: written without a fraction")
