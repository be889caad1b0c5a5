"""Runs that go on where an earlier run of their thread was interrupted.

LangGraph resumes a run without saying what it began with. So the texts of the last run of each
thread are remembered, in this process only:

    first run    plan: answered | code: interrupted           remembered: inputs, answer of plan
    resumed      code, check                                   a program of what is left of the
                                                               flow, with plan's answer as an input
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from grape_lc.adapters.conversations import Histories
from grape_lc.adapters.watching import WatchedCall
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.variables import AnyVariable, InputVar, OutputVar

_MOST_THREADS = 256
_MOST_OF_ONE = 2**20
_MOST_OF_ALL = 2**24


@dataclass(frozen=True, slots=True)
class Past:
    """A run so far.

    inputs: by name. answers: by task, of calls that will not be made again. undone: tasks of nodes
    that did not come to their end, whose calls will be made again. before, after: the conversation
    when it began, and when it ended. tenant: whose run it was.
    """

    inputs: Mapping[str, str]
    answers: Mapping[str, str] = field(default_factory=dict)
    undone: frozenset[str] = frozenset()
    before: Histories = field(default_factory=dict)
    after: Histories = field(default_factory=dict)
    tenant: str = ""

    @property
    def counts(self) -> Counter[str]:
        """How many calls each place in the graph has made for good."""
        return Counter(task.partition("#")[0] for task in self.answers)

    @property
    def size(self) -> int:
        """Characters of all texts."""
        texts = [*self.inputs.values(), *self.answers.values()]
        texts += [
            text
            for histories in (self.before, self.after)
            for history in histories.values()
            for _, text in history
        ]
        return sum(map(len, texts))

    def and_then(
        self, calls: Iterable[WatchedCall], undone: Collection[str], after: Histories
    ) -> Past:
        """What it came to. undone: namespaces of nodes that did not come to their end."""
        answers = dict(self.answers)
        again = set()
        for watched in calls:
            if watched.namespace in undone:
                again.add(watched.call.task)
            else:
                answers[watched.call.task] = watched.call.answer
        return Past(self.inputs, answers, frozenset(again), self.before, after, self.tenant)


class Threads:
    """The last run of each thread, by tenant and id; of the threads those used last.

    most: threads. most_of_one, most_of_all: characters. Usable from any thread.
    """

    def __init__(
        self,
        most: int = _MOST_THREADS,
        most_of_one: int = _MOST_OF_ONE,
        most_of_all: int = _MOST_OF_ALL,
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._most_of_all = most_of_all
        self._pasts: OrderedDict[Hashable, Past] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pasts)

    def remember(self, thread: Hashable, past: Past) -> None:
        """A run of the thread is over, or was interrupted; of a very long one nothing is kept."""
        with self._lock:
            if (old := self._pasts.pop(thread, None)) is not None:
                self._size -= old.size
            if past.size > self._most_of_one:
                return
            self._pasts[thread] = past
            self._size += past.size
            while len(self._pasts) > self._most or self._size > self._most_of_all:
                _, oldest = self._pasts.popitem(last=False)
                self._size -= oldest.size

    def past(self, thread: Hashable) -> Past | None:
        """What the thread's last run came to; None if it is not known."""
        with self._lock:
            if thread in self._pasts:
                self._pasts.move_to_end(thread)
            return self._pasts.get(thread)


def left_of(flow: TaskFlow, answers: Mapping[str, str]) -> tuple[TaskFlow | None, dict[str, str]]:
    """The flow without the tasks that were answered, and the texts that it reads of them.

    None in the place of the flow when no task is left.
    """
    tasks = tuple(task for task in flow.tasks if task.name not in answers)
    if not tasks:
        return None, {}
    known = {task.output: answers[task.name] for task in flow.tasks if task.name in answers}
    read = {name for task in tasks for name in flow.read_by(task)}
    written = {task.output for task in tasks}
    variables: list[AnyVariable] = []
    for var in flow.variables:
        if var.name in written:
            variables.append(var if var.name in read else OutputVar(var.name))
        elif var.name in read:
            variables.append(InputVar(var.name) if var.name in known else var)
    left = TaskFlow(name=flow.name, variables=tuple(variables), tasks=tasks, targets=flow.targets)
    left.validate_flow()
    return left, {name: text for name, text in known.items() if name in read}
