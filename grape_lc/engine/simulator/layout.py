"""A shape in the prompt order that a prefix cache serves best.

    as written      role | problem | plan | ...          every role begins its prompt differently
    history first   head | problem | plan | ... | role   each prompt begins with the one before it

All of a program that is there when a call is made stands first, in the order in which it came to
be: what the first call read, its answer, what the next one read, and so on. The role's own text
comes last. So plain vLLM finds the shared history in its cache, and computes the newest answer and
the role's text.
"""

from __future__ import annotations

from grape_lc.engine.simulator.programs import Answer, Input, Shape, Static, TaskShape

HEAD = Static("head of every prompt", 64)
"""What every prompt begins with, of whatever role. The size is an assumption."""


def history_first(shape: Shape) -> Shape:
    """The same tasks, dependencies and draws; prompts in another order, with more in them.

    A prompt gets all that the calls before it read and answered, not only what it reads itself.
    Of calls that run beside it nothing: what waits for what stays as it is.
    """
    variants = tuple(_reordered(tasks) for tasks in shape.variants)
    return Shape(shape.name, variants, shape.targets)


def _reordered(tasks: tuple[TaskShape, ...]) -> tuple[TaskShape, ...]:
    before: dict[str, set[str]] = {}
    found = []
    for task in tasks:
        reads = {part.task for part in task.parts if isinstance(part, Answer)}
        before[task.name] = reads.union(*(before[name] for name in reads))
        history: dict[str, Input | Answer] = {}
        for other in tasks:
            if other.name in before[task.name]:
                _add(history, other)
                history[f"answer {other.name}"] = Answer(other.name)
        _add(history, task)
        role = (part for part in task.parts if isinstance(part, Static))
        found.append(task._replace(parts=(HEAD, *history.values(), *role)))
    return tuple(found)


def _add(history: dict[str, Input | Answer], task: TaskShape) -> None:
    """What a task reads and no task before it has read."""
    for part in task.parts:
        if isinstance(part, Input):
            history.setdefault(f"input {part.name}", part)
