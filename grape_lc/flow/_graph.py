"""The graph of a flow's tasks: who reads whose output, and what follows from that."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from grape_lc.errors import CycleError

if TYPE_CHECKING:
    from grape_lc.flow.taskflow import Task


class TaskGraph:
    """Edges between tasks, all by name; for tasks with distinct names and outputs.

    choices: the variables of which each NewestVar is the newest.
    tasks: in the order of declaration, which breaks every tie.
    upstreams: for each task, the tasks whose outputs its prompt reads, as it reads them first.
    needs: the same in groups, one for each text that it reads: of a group one task is enough. Texts
        that an input may be need none.
    downstreams: for each task, the tasks that read its output, in the order of declaration.
    """

    def __init__(
        self, tasks: tuple[Task, ...], choices: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        self.tasks = tasks
        self.choices = choices or {}
        writers = {task.output: task.name for task in tasks}
        read = {
            task.name: [self.choices.get(name, (name,)) for name in task.prompt.variables]
            for task in tasks
        }
        self.upstreams: Mapping[str, tuple[str, ...]] = {
            task: tuple(dict.fromkeys(writers[n] for of in groups for n in of if n in writers))
            for task, groups in read.items()
        }
        self.needs: Mapping[str, tuple[tuple[str, ...], ...]] = {
            task: tuple(
                tuple(writers[n] for n in of) for of in groups if all(n in writers for n in of)
            )
            for task, groups in read.items()
        }
        downstreams: dict[str, list[str]] = {task.name: [] for task in tasks}
        for name, upstreams in self.upstreams.items():
            for upstream in upstreams:
                downstreams[upstream].append(name)
        self.downstreams: Mapping[str, tuple[str, ...]] = {
            name: tuple(readers) for name, readers in downstreams.items()
        }

    @cached_property
    def order(self) -> tuple[Task, ...]:
        """Topological order; of the tasks that could come next, the one declared first.

        Raises CycleError.
        """
        index = {task.name: i for i, task in enumerate(self.tasks)}
        waiting = {name: len(upstreams) for name, upstreams in self.upstreams.items()}
        ready = [index[name] for name, count in waiting.items() if count == 0]
        done: list[Task] = []
        while ready:
            task = self.tasks[heapq.heappop(ready)]
            done.append(task)
            for reader in self.downstreams[task.name]:
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(ready, index[reader])
        if len(done) < len(self.tasks):
            raise CycleError(self._describe_cycle([name for name in index if waiting[name]]))
        return tuple(done)

    @cached_property
    def depths(self) -> Mapping[str, int]:
        """Hops on the longest path from a task without upstream. Raises CycleError."""
        depths: dict[str, int] = {}
        for task in self.order:
            upstreams = self.upstreams[task.name]
            depths[task.name] = 1 + max((depths[name] for name in upstreams), default=-1)
        return depths

    @cached_property
    def ancestors(self) -> Mapping[str, frozenset[str]]:
        """For each task, those that must end before it can start. Raises CycleError."""
        ancestors: dict[str, frozenset[str]] = {}
        for task in self.order:
            upstreams = self.upstreams[task.name]
            ancestors[task.name] = frozenset(upstreams).union(*(ancestors[n] for n in upstreams))
        return ancestors

    def _describe_cycle(self, stuck: list[str]) -> str:
        """Name one cycle among tasks of which each has an upstream among them.

        Walking from the first one up, always to the first upstream that is stuck too, must
        come back to a task that was seen: from there on the walk is the cycle, backwards.
        """
        walk: list[str] = []
        name = stuck[0]
        while name not in walk:
            walk.append(name)
            name = next(upstream for upstream in self.upstreams[name] if upstream in stuck)
        cycle = walk[walk.index(name) :][::-1]
        start = cycle.index(min(cycle, key=stuck.index))  # the one that was declared first
        cycle = [*cycle[start:], *cycle[:start]]
        outputs = {task.name: task.output for task in self.tasks}
        steps = " -> ".join(f"task {name!r} writes {outputs[name]!r}" for name in cycle)
        return f"tasks wait for each other's output: {steps} -> task {cycle[0]!r} reads it"
