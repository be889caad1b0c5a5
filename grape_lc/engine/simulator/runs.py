"""Programs that run: their calls, their open prompts, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from grape_lc.engine.simulator.messages import Message
from grape_lc.engine.simulator.programs import Program, Task
from grape_lc.engine.simulator.requests import Request
from grape_lc.scheduler.types import NO_HINT, Hint


class Engine(Protocol):
    """Where messages go."""

    number: int
    block_size: int

    def send(self, at: float, message: Message) -> None:
        """Deliver a message at a time that is not past."""
        ...


@dataclass(slots=True, eq=False)
class Call:
    """A call in flight.

    before: when the call that ended last before this one was made ended; None for a root.
    count, late: tokens so far; gaps that were longer than the target.
    """

    run: Run
    place: int
    made: float
    before: float | None
    request: Request
    count: int = 0
    last: float = 0.0
    first: float = 0.0
    late: int = 0
    times: list[float] | None = None


@dataclass(slots=True, eq=False)
class Prompt:
    """An open prompt of a run: which part of its task's prompt it fills, and how far."""

    place: int
    request: Request
    part: int = 0
    filled: int = 0
    fresh: int = 0
    sent_at: float | None = None
    complete: bool = False
    hint: Hint = NO_HINT
    hinted: tuple[int, int | None] | None = None  # what the hint was made from


@dataclass(slots=True, eq=False)
class Run:
    """A program that runs: on which engine, and what is known of its tasks by place."""

    program: Program
    arrived: float
    engine: Engine
    name: str
    hints: list[Hint]
    left: int
    done: list[bool]
    calls: dict[int, Call] = field(default_factory=dict)
    prompts: dict[int, Prompt] = field(default_factory=dict)
    fed: dict[int, list[Prompt]] = field(default_factory=dict)
    last: float | None = None
    ended: float | None = None
    met: bool = True
    moves: int = 0  # calls made and ended: what hops depend on
    history: list[Call] | None = None


def hints_of(program: Program, name: str) -> list[Hint]:
    """What the client says about each task of a program."""
    tasks, graph, targets = program.tasks, program.graph, program.targets
    flow = f"{program.shape}/{len(tasks)}"

    def hint(place: int, task: Task) -> Hint:
        return Hint(
            program=name,
            flow=flow,
            task=task.name,
            depth=graph.depth[place],
            after=tuple(tasks[next_].name for next_ in graph.after[place]),
            feeds=bool(graph.read_by[place]),
            ttft_s=targets.ttft_s,
            tbt_s=targets.tbt_s,
            deadline_s=targets.deadline_s,
        )

    return [hint(place, task) for place, task in enumerate(tasks)]
