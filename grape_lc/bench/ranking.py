"""The order of calls on a tuned vLLM: what Parrot does beyond stock vLLM that priorities can carry.

vLLM serves waiting calls by an integer, lower first, and calls of one integer as they arrived; when
KV runs short it preempts the highest integer. Parrot (Lin et al., "Parrot: Efficient Serving of
LLM-based Applications with Semantic Variable", OSDI 2024) serves the calls of programs by what it
knows of their graphs. Of that, and of the order "deepest first", the integer holds from its highest
digit on::

    objective   calls that the program's final answer needs are wanted soon; others (a log, a side
                note) are only wanted some time, and come behind all of those. Parrot deduces the
                same, from the outputs that an application asks for, back through its graph
    stage       of those the later stage first, so that programs that have begun come to an end
    program     then by the arrival of their programs, as Parrot's FIFO of applications. So calls of
                one stage of one program stand beside each other and are admitted one behind the
                other: those that feed the same call Parrot schedules as a group, since it is the
                last of them that counts

With ``order="program"`` the last two digits change places, which is closer to Parrot's FIFO: first
all calls of the program that came first.

A stage is the number of calls between this one and the start of its program, on the longest path.
The final answer is that of the last stage.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncGenerator, Generator
from typing import Literal, NamedTuple

from grape_lc.bench.collect import MeasuredEngine, current_program
from grape_lc.engine.base import CallDelta, CallRequest, EngineClient
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.variables import InputVar

Order = Literal["stage", "program"]
"""The digit behind the objective."""

PROGRAMS = 1 << 32
"""Programs of one run that have priorities of their own."""

STAGES = 1 << 16
"""Stages that are told apart; with the digit above them a priority fits into 64 bits."""


class Standing(NamedTuple):
    """Where a task stands in its program.

    stage: calls before it, on the longest path. awaited: whether the final answer needs it.
    """

    stage: int
    awaited: bool


FIRST = Standing(0, awaited=True)
"""That of a call of which nothing is known."""


def priority(standing: Standing, program: int, order: Order = "stage") -> int:
    """vLLM's priority of a call; lower goes first.

    program: number of its program in the order of arrival, from 0.
    """
    late, program = STAGES - 1 - min(standing.stage, STAGES - 1), min(program, PROGRAMS - 1)
    objective = 0 if standing.awaited else 1
    if order == "program":
        return (objective * PROGRAMS + program) * STAGES + late
    return (objective * STAGES + late) * PROGRAMS + program


def standings(flow: TaskFlow) -> dict[str, Standing]:
    """The standing of every task of a flow, by name.

    What a tool makes of answers is an opaque input, and which answers those are no flow says. A
    task that reads one is taken to need all tasks before it whose answers no other task reads.
    """
    needs: dict[str, set[str]] = {}
    stages: dict[str, int] = {}
    for task in flow.order():
        needs[task.name] = set(flow.upstream(task))
        if _reads_opaque(flow, task):
            read = set().union(*needs.values())
            needs[task.name] |= set(stages) - read
        stages[task.name] = max((stages[name] + 1 for name in needs[task.name]), default=0)
    last = max(stages.values(), default=0)
    awaited = {name for name, stage in stages.items() if stage == last}
    for task in reversed(flow.order()):
        if task.name in awaited:
            awaited |= needs[task.name]
    return {name: Standing(stage, name in awaited) for name, stage in stages.items()}


class RankedEngine(MeasuredEngine):
    """Gives each call its priority, by the flow that its program is taken to be a run of.

    Programs are told apart by ``current_program``. A call of a bare graph names its node and no
    task: the n-th call of a node is taken for its n-th task, ``node#n`` or ``node[n-1]``.
    """

    def __init__(self, engine: EngineClient, flow: TaskFlow, order: Order = "stage") -> None:
        super().__init__(engine)
        self._order = order
        self._standings = standings(flow)
        self._arrived: dict[str | None, int] = {}
        self._made: Counter[tuple[str | None, str]] = Counter()
        self._ranking = threading.Lock()

    def stream(self, request: CallRequest) -> Generator[CallDelta, None, None]:
        """Run a call, recorded, with its priority."""
        return super().stream(self._ranked(request))

    def astream(self, request: CallRequest) -> AsyncGenerator[CallDelta, None]:
        """Like ``stream``, for the running event loop."""
        return super().astream(self._ranked(request))

    def _ranked(self, request: CallRequest) -> CallRequest:
        program = current_program.get()
        with self._ranking:
            number = self._arrived.setdefault(program, len(self._arrived))
            if request.task is not None:
                standing = self._standings.get(request.task, FIRST)
            else:
                node = request.label or ""
                self._made[program, node] += 1
                standing = self._of_node(node, self._made[program, node])
        return request.model_copy(update={"priority": priority(standing, number, self._order)})

    def _of_node(self, node: str, call: int) -> Standing:
        """The standing of a node's n-th call in a program, counted from 1."""
        known = self._standings
        if f"{node}[0]" in known:  # side by side, however many there are
            return known.get(f"{node}[{call - 1}]", known[f"{node}[0]"])
        for seen in range(call, 1, -1):
            if f"{node}#{seen}" in known:
                return _behind(known[f"{node}#{seen}"], call - seen)
        return _behind(known[node], call - 1) if node in known else FIRST


def _behind(standing: Standing, calls: int) -> Standing:
    """The standing of a loop's call that comes so many rounds after the last one foreseen."""
    return standing._replace(stage=standing.stage + calls)


def _reads_opaque(flow: TaskFlow, task: Task) -> bool:
    return any(
        isinstance(variable, InputVar) and variable.opaque
        for variable in map(flow.variable, task.prompt.variables)
    )
