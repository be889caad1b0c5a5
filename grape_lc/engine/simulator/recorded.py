"""Programs that really ran, as ``grape demo --json`` or ``grape bench --json`` wrote them down.

A record tells when programs arrived, how long each prompt and each answer was, but not what the
prompts consisted of. That is taken from a shape with the same task names. Of a prompt's tokens,

    static text of the task | input | answers | rest

the answers are known. Where the static text of the first task ends is read off the prefix cache,
which in the best case held all of it; what of a first prompt is left is the program's input. The
static text of every other task is the least that any program leaves for it, and what a program has
beyond that is its rest. So totals are exact, and what is shared is an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from grape_lc.engine.simulator.arrivals import Given
from grape_lc.engine.simulator.programs import (
    NO_TARGETS,
    Answer,
    Head,
    Input,
    Part,
    Program,
    Shape,
    Task,
    answer_source,
    graph_of,
    own_source,
)
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.errors import ConfigError
from grape_lc.limits import RESULT_BYTES
from grape_lc.strict_json import StrictJSONError, read_json_file

_HALF_BLOCK = 16  # the cache holds whole blocks: what it misses is half a block on the average


class Recorded(NamedTuple):
    """A recorded run: its arm, its programs in the order of arrival, and when they arrived."""

    arm: str
    programs: tuple[Program, ...]
    arrivals: Given

    def program(self, number: int) -> Program:
        """The program of a number."""
        return self.programs[number]

    def heads(self) -> tuple[Head, ...]:
        """The static text that each prompt begins with; those of all programs are equal."""
        found: dict[Head, None] = {}
        for place, task in enumerate(self.programs[0].tasks):
            first = task.parts[0]
            if first.source == 1 + place:
                found[((first.source, first.tokens),)] = None
        return tuple(found)


def from_record(path: Path, *, run: int = 0, shape: Shape | None = None) -> Recorded:
    """Read the run of this place in a file.

    shape: where prompts get their structure from; None takes the first known one with the same
    task names. The programs get no targets: the recorded ones had none.
    Raises ConfigError if the file is no such record, or no shape fits it.
    """
    recorded = read_run(path, run)
    try:
        programs = sorted(recorded["programs"], key=lambda program: program["arrived"])
        calls = [
            {call["task"]: _Call.of(call) for call in program["calls"]} for program in programs
        ]
        arrived = tuple(float(program["arrived"]) for program in programs)
        arm = str(recorded["arm"])
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise ConfigError(f"{path}: run {run} is not a recorded run: {error!r:.300}") from error
    if not calls:
        raise ConfigError(f"{path}: run {run} has no programs")
    if not all(isfinite(at) for at in arrived):
        raise ConfigError(f"{path}: run {run} has programs that arrive at {arrived}")
    found = shape if shape is not None else _fitting(calls[0], path)
    made = _programs(found, calls, path)
    return Recorded(
        arm, tuple(program._replace(targets=NO_TARGETS) for program in made), Given(arrived)
    )


def read_run(path: Path, place: int) -> dict[str, Any]:
    """The raw run at a place in a file. Raises ConfigError if there is none."""
    runs = read_runs(path)
    if not 0 <= place < len(runs):
        raise ConfigError(f"{path} has {len(runs)} runs, and none at place {place}")
    return runs[place]


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The raw runs of a file. Raises ConfigError if it has none."""
    try:
        document = read_json_file(path, size=RESULT_BYTES, values=False)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except StrictJSONError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error
    inner = document.get("raw", document) if isinstance(document, dict) else {}
    runs = inner.get("runs") if isinstance(inner, dict) else None
    if not isinstance(runs, list) or not runs:
        raise ConfigError(f"{path} has no raw runs; write it with grape demo or bench --json")
    return [run if isinstance(run, dict) else {} for run in runs]


_MOST = 1 << 24  # tokens of a call


class _Call(NamedTuple):
    prompt: int
    cached: int
    output: int

    @classmethod
    def of(cls, call: Mapping[str, Any]) -> _Call:
        counts = [int(count) for _, count in call["tokens"]]
        prompt, cached = int(call["prompt_tokens"]), int(call["cached_tokens"])
        if min(counts, default=0) < 0 or not 0 <= cached <= prompt < _MOST or sum(counts) > _MOST:
            raise ValueError(f"a call of {prompt} tokens, {cached} cached, {sum(counts)} answered")
        # One that was cut short before its first token takes a step all the same.
        return cls(prompt, cached, max(1, sum(counts)))


_Calls = Mapping[str, _Call]


def _fitting(calls: _Calls, path: Path) -> Shape:
    for shape in SHAPES.values():
        if any({task.name for task in tasks} == set(calls) for tasks in shape.variants):
            return shape
    raise ConfigError(
        f"{path}: no known shape has the tasks {', '.join(sorted(calls))}; known: "
        f"{', '.join(SHAPES)}"
    )


def _programs(shape: Shape, programs: Sequence[_Calls], path: Path) -> list[Program]:
    names = set(programs[0])
    tasks = next((v for v in shape.variants if {task.name for task in v} == names), None)
    if tasks is None or any(set(calls) != names for calls in programs):
        raise ConfigError(f"{path}: its programs do not all have the tasks of {shape.name!r}")
    place = {task.name: index for index, task in enumerate(tasks)}
    root = tasks[0].name
    cached = max(calls[root].cached for calls in programs)
    least = min(calls[root].prompt for calls in programs)
    shared = min(cached + _HALF_BLOCK if cached else least // 2, least - 1)
    inputs = [calls[root].prompt - shared for calls in programs]

    def left(task: Any, calls: _Calls, given: int) -> int:
        """Tokens of a prompt that are neither answers nor input."""
        tokens = calls[task.name].prompt
        for part in task.parts:
            if isinstance(part, Answer):
                tokens -= calls[part.task].output
            elif isinstance(part, Input):
                tokens -= given
        return tokens

    static = {
        task.name: max(
            0, min(left(task, calls, given) for calls, given in zip(programs, inputs, strict=True))
        )
        for task in tasks
    }
    made = []
    for number, (calls, given) in enumerate(zip(programs, inputs, strict=True)):
        drawn = []
        for index, task in enumerate(tasks):
            parts = [Part(1 + index, static[task.name])]
            for part in task.parts:
                if isinstance(part, Answer):
                    reads = place[part.task]
                    parts.append(
                        Part(answer_source(number, reads), calls[part.task].output, answer=reads)
                    )
                elif isinstance(part, Input):
                    parts.append(Part(own_source(number, 0), given, late=part.late))
            rest = calls[task.name].prompt - sum(part.tokens for part in parts)
            parts.append(Part(own_source(number, 1 + index), rest))
            output = calls[task.name].output
            known = tuple(part for part in parts if part.tokens > 0)
            drawn.append(Task(task.name, known, output, output))
        made.append(Program(number, shape.name, tuple(drawn), graph_of(drawn)))
    return made
