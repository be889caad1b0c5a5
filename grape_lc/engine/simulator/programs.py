"""Programs to be simulated: tasks, what their prompts consist of, how long their answers are.

A ``Shape`` says what programs of one kind have in common and what is drawn for each of them; a
``Program`` is one drawing. Tokens of a static text are the same in every program, those of an
input or an answer in none, so the prefix cache and open prompts find exactly what they would find
in real prompts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from grape_lc.errors import ConfigError

_OWN = 1_000_000  # sources below this are static texts
_PER_PROGRAM = 4096  # sources of one program
_ANSWERS = 1024  # of these, for its answers; the rest is for its inputs


class Length(NamedTuple):
    """A number of tokens: always ``mean``, or log-normal with that mean.

    spread: standard deviation of the logarithm; 0 is a fixed length. most: a longer one is cut.
    """

    mean: float
    spread: float = 0.0
    most: int = 1 << 30

    def draw(self, dice: random.Random) -> int:
        """At least 1."""
        if not self.spread:
            return max(1, min(round(self.mean), self.most))
        mu = math.log(self.mean) - self.spread**2 / 2
        return max(1, min(round(dice.lognormvariate(mu, self.spread)), self.most))


class Static(NamedTuple):
    """A text that all programs share; equal names are equal texts."""

    name: str
    tokens: int


class Input(NamedTuple):
    """A text of the program's own, the same wherever its name stands.

    late: known only when the call is made, such as the result of a tool.
    """

    name: str
    length: Length
    late: bool = False


class Answer(NamedTuple):
    """The answer of another task."""

    task: str


class TaskShape(NamedTuple):
    """One task of a shape.

    output: length of its answer; its ``most`` is also the limit that the call sets.
    tool_s: mean seconds that a tool runs between the last answer it needs and its call
        (exponential); 0 for none.
    """

    name: str
    parts: tuple[Static | Input | Answer, ...]
    output: Length
    tool_s: float = 0.0


class Targets(NamedTuple):
    """Seconds to a call's first token, between its tokens, and for a whole program; or None."""

    ttft_s: float | None = None
    tbt_s: float | None = None
    deadline_s: float | None = None


NO_TARGETS = Targets()

Head = tuple[tuple[int, int], ...]
"""A static text that prompts begin with: pairs of source and tokens."""


@dataclass(frozen=True)
class Shape:
    """Programs of one kind; tasks stand behind those whose answers they read.

    variants: the tasks of each form that a program may take; one is drawn, evenly.
    """

    name: str
    variants: tuple[tuple[TaskShape, ...], ...]
    targets: Targets = NO_TARGETS

    def __post_init__(self) -> None:
        for tasks in self.variants:
            seen: set[str] = set()
            for task in tasks:
                read = {part.task for part in task.parts if isinstance(part, Answer)}
                if not task.parts or task.name in seen or not read <= seen:
                    raise ConfigError(
                        f"shape {self.name!r}: task {task.name!r} needs a name of its own and "
                        f"parts that read earlier tasks only; it reads {sorted(read)}, known are "
                        f"{sorted(seen)}"
                    )
                seen.add(task.name)


class Part(NamedTuple):
    """A piece of a prompt: ``tokens`` tokens of ``source``.

    answer: place of the task whose answer it is; None for a text. late: see ``Input``.
    """

    source: int
    tokens: int
    answer: int | None = None
    late: bool = False


class Task(NamedTuple):
    """One call to be made.

    output, limit: tokens that it answers, and most that it may. tool_s: seconds that its tool
    takes. differs: the call's prompt differs from the prediction where the first answer begins.
    """

    name: str
    parts: tuple[Part, ...]
    output: int
    limit: int
    tool_s: float = 0.0
    differs: bool = False

    @property
    def prompt(self) -> int:
        """Tokens of its prompt."""
        return sum(part.tokens for part in self.parts)


class Graph(NamedTuple):
    """What the tasks of a program mean to each other, by place.

    reads, read_by: direct dependencies. depth: calls before it on the longest path. after: tasks
    that follow it on the longest path to the end, nearest first. awaited: whether the answer of the
    last stage needs it.
    """

    reads: tuple[tuple[int, ...], ...]
    read_by: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    awaited: tuple[bool, ...]

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, reads: tuple[tuple[int, ...], ...]) -> Graph:
        """From the places that each task reads."""
        count = len(reads)
        read_by = tuple(
            tuple(i for i in range(count) if place in reads[i]) for place in range(count)
        )
        depth: list[int] = []
        for places in reads:
            depth.append(1 + max((depth[place] for place in places), default=-1))
        after: list[tuple[int, ...]] = [()] * count
        for place in reversed(range(count)):
            paths = [(next_, *after[next_]) for next_ in read_by[place]]
            # Of equally long paths the one whose tasks stand first.
            after[place] = min(paths, key=lambda path: (-len(path), path), default=())
        awaited = [place_depth == max(depth, default=0) for place_depth in depth]
        for place in reversed(range(count)):
            awaited[place] = awaited[place] or any(awaited[next_] for next_ in read_by[place])
        return cls(reads, read_by, tuple(depth), tuple(after), tuple(awaited))


class Program(NamedTuple):
    """One run: number, kind, tasks, and how they depend on each other."""

    number: int
    shape: str
    tasks: tuple[Task, ...]
    graph: Graph
    targets: Targets = NO_TARGETS


def graph_of(tasks: Sequence[Task]) -> Graph:
    """The graph that the parts of these tasks describe."""
    return Graph.of(
        tuple(
            tuple(sorted({part.answer for part in task.parts if part.answer is not None}))
            for task in tasks
        )
    )


class Workload:
    """Programs of one shape, each drawn when it is asked for, from ``seed`` and its number.

    differ: share of calls whose prompt is not what was predicted.
    """

    def __init__(self, shape: Shape, seed: int, *, differ: float = 0.0) -> None:
        self.shape = shape
        self._seed = seed
        self._differ = differ
        names = {
            part.name
            for tasks in shape.variants
            for task in tasks
            for part in task.parts
            if isinstance(part, Static)
        }
        self._static = {name: 1 + place for place, name in enumerate(sorted(names))}

    def heads(self) -> tuple[Head, ...]:
        """The static text that each prompt begins with, in order and each one once."""
        found: dict[Head, None] = {}
        for tasks in self.shape.variants:
            for task in tasks:
                head: Head = ()
                for part in task.parts:
                    if not isinstance(part, Static):
                        break
                    head += ((self._static[part.name], part.tokens),)
                if head:
                    found[head] = None
        return tuple(found)

    def program(self, number: int) -> Program:
        """The program of this number; the same one each time."""
        dice = random.Random(f"{self.shape.name} {self._seed} {number}")  # noqa: S311 - a workload
        shapes = dice.choice(self.shape.variants)
        place = {task.name: index for index, task in enumerate(shapes)}
        inputs: dict[str, tuple[int, int]] = {}
        outputs = [task.output.draw(dice) for task in shapes]
        tasks = []
        for task in shapes:
            parts = []
            for part in task.parts:
                if isinstance(part, Static):
                    parts.append(Part(self._static[part.name], part.tokens))
                elif isinstance(part, Answer):
                    index = place[part.task]
                    parts.append(Part(answer_source(number, index), outputs[index], answer=index))
                else:
                    if part.name not in inputs:
                        source = own_source(number, len(inputs))
                        inputs[part.name] = source, part.length.draw(dice)
                    parts.append(Part(*inputs[part.name], late=part.late))
            tool_s = dice.expovariate(1 / task.tool_s) if task.tool_s else 0.0
            reads = any(part.answer is not None for part in parts)
            differs = reads and dice.random() < self._differ
            output = outputs[place[task.name]]
            limit = max(output, task.output.most if task.output.spread else output)
            tasks.append(Task(task.name, tuple(parts), output, limit, tool_s, differs))
        return Program(number, self.shape.name, tuple(tasks), graph_of(tasks), self.shape.targets)


def answer_source(number: int, place: int) -> int:
    """The source that stands for the answer of a program's task."""
    return _OWN + number * _PER_PROGRAM + place


def own_source(number: int, place: int) -> int:
    """The source that stands for a text of a program's own."""
    return _OWN + number * _PER_PROGRAM + _ANSWERS + place
