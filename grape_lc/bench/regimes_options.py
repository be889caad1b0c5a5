"""The points of the regime map, and the programs at each of them."""

from __future__ import annotations

import os
from itertools import product
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from grape_lc.engine.simulator.programs import (
    Answer,
    Input,
    Length,
    Shape,
    Static,
    Targets,
    TaskShape,
)

Place = Literal["end", "head"]
"""Where the answer of the task before stands in a prompt: behind all other text, or before it."""

INPUT_TOKENS = 200
CLOSING_TOKENS = 16
TARGETS = Targets(ttft_s=1.5, tbt_s=0.06)
_SPREAD = 0.5
_MOST = 4  # a limit, relative to the mean length of an answer
_LONG, _MOST_MORE = 1000, 4  # answered tokens of a long program; times as many of short ones
_LIGHT, _FEWER = 0.25, 0.5


class Kind(NamedTuple):
    """Programs of one kind: a chain of ``depth`` calls.

    output: mean tokens of an answer. static: tokens of each role's own text, the same in all
    programs. place: of the answer before.
    """

    depth: int
    output: int
    static: int
    place: Place = "end"

    def shape(self) -> Shape:
        """Its programs: role, the program's input, the answer before, closing words.

        At the head the answer comes first, so that nothing behind it is known before it ends, and
        no two programs share a prefix.
        """
        name = f"chain {self.depth} {self.output} {self.static} {self.place}"
        given = Input("input", Length(INPUT_TOKENS, _SPREAD, _MOST * INPUT_TOKENS))
        answer = Length(self.output, _SPREAD, _MOST * self.output)
        tasks = []
        for number in range(self.depth):
            known: list[Static | Input | Answer] = [Static(f"role {number}", self.static), given]
            before = [Answer(f"task_{number - 1}")] if number else []
            parts = [*before, *known] if self.place == "head" else [*known, *before]
            closing = Static("closing", CLOSING_TOKENS)
            tasks.append(TaskShape(f"task_{number}", (*parts, closing), answer))
        return Shape(name, (tuple(tasks),), TARGETS)


class Point(NamedTuple):
    """A kind of programs at a load, relative to the saturated rate of the tuned vllm-opt."""

    kind: Kind
    rho: float

    def programs(self, least: int) -> int:
        """How many programs to simulate: more of short ones, which are over sooner.

        Fewer at a light load, where hardly any two meet.
        """
        longer = _LONG / (self.kind.depth * self.kind.output)
        light = _FEWER if self.rho <= _LIGHT else 1.0
        return max(1, round(least * min(_MOST_MORE, max(1.0, longer)) * light))


class RegimeSettings(BaseModel):
    """Sizes of the map; checked when made.

    depths, outputs, statics: calls of a chain, mean tokens of an answer, tokens of a role's text;
        every combination at every load of ``loads``.
    saturated: a load beyond saturation, for chains of the middle depth.
    head_loads: those at which the answer before stands at the head, chains of the middle depth,
        shortest and longest outputs and statics.
    programs: of each seed and point, of long programs; more of short ones. seeds: how many.
    sweep: token budgets that vllm-opt is tuned with. hardware, model: the machine.
    jobs: simulations at a time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    depths: tuple[int, ...] = (2, 5, 10)
    outputs: tuple[int, ...] = (32, 128, 256)
    statics: tuple[int, ...] = (256, 1024, 4096)
    loads: tuple[float, ...] = (0.1, 0.5, 0.85)
    saturated: float = Field(default=1.2, gt=1)
    head_loads: tuple[float, ...] = (0.5, 0.85)
    programs: int = Field(default=60, ge=1)
    seeds: int = Field(default=3, ge=1)
    sweep: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    hardware: str = "a100-40gb"
    model: str = "llama3-8b"
    jobs: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in ("depths", "outputs", "statics", "loads", "sweep"):
            values = getattr(self, name)
            if not values or min(values) <= 0:
                raise ValueError(f"{name} must be positive, and one at least, not {values}")
        if any(load <= 0 for load in self.head_loads):
            raise ValueError(f"head_loads must be positive, not {self.head_loads}")
        return self

    @classmethod
    def quick(cls) -> RegimeSettings:
        """The corners of the map in little: too few programs to lean on."""
        return cls(
            depths=(2, 5),
            outputs=(32, 256),
            statics=(256, 4096),
            loads=(0.5,),
            head_loads=(0.5,),
            programs=16,
            sweep=(128, 512, 2048),
        )

    def points(self) -> tuple[Point, ...]:
        """All points, in the order in which they are told."""
        middle = sorted(self.depths)[len(self.depths) // 2]
        kinds = [Kind(*found) for found in product(self.depths, self.outputs, self.statics)]
        points = [Point(kind, rho) for kind in kinds for rho in self.loads]
        points += [Point(kind, self.saturated) for kind in kinds if kind.depth == middle]
        ends = product(
            sorted({min(self.outputs), max(self.outputs)}),
            sorted({min(self.statics), max(self.statics)}),
        )
        points += [
            Point(Kind(middle, output, static, "head"), rho)
            for output, static in ends
            for rho in self.head_loads
        ]
        return tuple(points)
