"""Lowering: a flow's tasks cut into micro-tasks, and what each must wait for.

    task 'code', prompt "Plan: {plan} Goal: {goal} Go."          plan: from task 'plan'
                                                                 goal: an input
        static    dynamic     static               dynamic
      [Plan: ] --> [{plan}] --> [Goal: {goal} Go.] --> [decode]        --> strong edge
                      ^
    [decode of 'plan']┘ partial edge, `chunk` tokens at a time

The markers that a chat template puts around messages belong to the micro-tasks beside them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from grape_lc.errors import ConfigError, CycleError, FlowError
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.template import Segment, Slot


@dataclass(frozen=True, slots=True)
class MicroTask:
    """A part of a task that the engine can run by itself.

    id: unique in the graph; ``TASK/prefill:0``, ``TASK/prefill:1``, ... and ``TASK/decode``.
    segment: the part of the prompt, in order; empty for a decode.
    nature: ``static`` when the text is known before the run (literals, inputs), ``dynamic``
        when it is known only while the run goes on: text of an upstream task, every decode.
    """

    id: str
    task: str
    kind: Literal["prefill", "decode"]
    segment: tuple[Segment, ...]
    nature: Literal["static", "dynamic"]


@dataclass(frozen=True, slots=True)
class Edge:
    """``dst`` waits for ``src``.

    kind: ``strong`` is the order inside a task; ``partial`` streams tokens of an upstream
        decode into a prefill of another task, which can start before the decode has ended.
    weight: tokens that a partial edge hands over at a time; None for a strong edge.
    """

    src: str
    dst: str
    kind: Literal["strong", "partial"]
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class MicroTaskGraph:
    """Micro-tasks, tasks in the flow's order and each task's own in prompt order; and edges."""

    nodes: tuple[MicroTask, ...]
    edges: tuple[Edge, ...]

    def hops(self) -> dict[str, int]:
        """Edges from each micro-task to the nearest one downstream that emits tokens.

        Decodes emit tokens and have 0. This is the distance by which a micro-task inherits
        the priority of the critical path: the lower, the sooner it is needed.
        """
        sources: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for edge in self.edges:
            sources[edge.dst].append(edge.src)
        hops = {node.id: 0 for node in self.nodes if node.kind == "decode"}
        reached = deque(hops)
        while reached:
            dst = reached.popleft()
            for src in sources[dst]:
                if src not in hops:
                    hops[src] = hops[dst] + 1
                    reached.append(src)
        return {node.id: hops[node.id] for node in self.nodes}

    def validate(self) -> None:
        """Check what every lowered graph keeps to; raises FlowError or CycleError.

        Ids are unique; edges join known micro-tasks; nothing waits for itself; a partial edge
        goes from a decode to a dynamic prefill of another task; each dynamic prefill has a
        source, that of a NewestVar one for each task that may write it, and none twice; a task is
        one strong chain that ends in its only decode.
        """
        nodes = {node.id: node for node in self.nodes}
        if len(nodes) < len(self.nodes):
            counts = Counter(node.id for node in self.nodes)
            twice = ", ".join(node_id for node_id, count in counts.items() if count > 1)
            raise FlowError(f"micro-task ids are used more than once: {twice}")
        for edge in self.edges:
            for end in (edge.src, edge.dst):
                if end not in nodes:
                    raise FlowError(
                        f"{edge} joins {end!r}, which is not one of {', '.join(nodes) or 'none'}"
                    )
            _check_edge(edge, nodes[edge.src], nodes[edge.dst])
        self._check_acyclic()
        self._check_sources()
        own: dict[str, list[MicroTask]] = {}
        strong: dict[str, list[Edge]] = {}
        for node in self.nodes:
            own.setdefault(node.task, []).append(node)
        for edge in self.edges:
            if edge.kind == "strong":
                strong.setdefault(nodes[edge.src].task, []).append(edge)
        for task, chain in own.items():
            _check_chain(task, chain, strong.get(task, ()))

    def _check_acyclic(self) -> None:
        waiting = Counter(edge.dst for edge in self.edges)
        targets: dict[str, list[str]] = {node.id: [] for node in self.nodes}
        for edge in self.edges:
            targets[edge.src].append(edge.dst)
        ready = deque(node.id for node in self.nodes if not waiting[node.id])
        while ready:
            for target in targets[ready.popleft()]:
                waiting[target] -= 1
                if not waiting[target]:
                    ready.append(target)
        stuck = [node.id for node in self.nodes if waiting[node.id]]
        if stuck:
            raise CycleError(f"micro-tasks wait for each other: {', '.join(stuck)}")

    def _check_sources(self) -> None:
        partial = Counter((edge.src, edge.dst) for edge in self.edges if edge.kind == "partial")
        for (src, dst), count in partial.items():
            if count > 1:
                raise FlowError(
                    f"dynamic prefill {dst!r} is fed by {count} partial edges from {src!r}, not 1"
                )
        fed = {dst for _, dst in partial}
        for node in self.nodes:
            if node.kind == "prefill" and node.nature == "dynamic" and node.id not in fed:
                raise FlowError(
                    f"dynamic prefill {node.id!r} is fed by 0 partial edges, not 1 or more"
                )


def _check_edge(edge: Edge, src: MicroTask, dst: MicroTask) -> None:
    if edge.kind == "strong":
        if src.task != dst.task:
            raise FlowError(f"strong {edge} joins the tasks {src.task!r} and {dst.task!r}")
        if edge.weight is not None:
            raise FlowError(f"strong {edge} has a weight")
        return
    if src.kind != "decode" or dst.kind != "prefill" or dst.nature != "dynamic":
        raise FlowError(
            f"partial {edge} goes from a {src.nature} {src.kind} to a {dst.nature} {dst.kind}, "
            "not from a decode to a dynamic prefill"
        )
    if src.task == dst.task:
        raise FlowError(f"partial {edge} stays inside task {src.task!r}")
    if edge.weight is None or edge.weight < 1:
        raise FlowError(f"partial {edge} has no weight of at least 1 token")


def _check_chain(task: str, own: Sequence[MicroTask], strong: Sequence[Edge]) -> None:
    """In a graph without cycles, n nodes and n - 1 edges that never fork are one chain."""
    decodes = [node.id for node in own if node.kind == "decode"]
    if len(decodes) != 1:
        raise FlowError(f"task {task!r} has {len(decodes)} decodes, not 1")
    sources, targets = {edge.src for edge in strong}, {edge.dst for edge in strong}
    if not len(sources) == len(targets) == len(strong) == len(own) - 1 or decodes[0] in sources:
        edges = ", ".join(f"{edge.src} -> {edge.dst}" for edge in strong) or "none"
        raise FlowError(
            f"task {task!r} is not one chain of strong edges that ends in {decodes[0]!r}; "
            f"its strong edges: {edges}"
        )


def lower(flow: TaskFlow, *, chunk: int = 16) -> MicroTaskGraph:
    """The micro-tasks of a flow; the same flow gives the same graph.

    chunk: weight of the partial edges, in tokens, at least 1.

    Raises ConfigError on a bad ``chunk`` and what ``TaskFlow.validate_flow`` raises.
    """
    if chunk < 1:
        raise ConfigError(f"chunk is {chunk}; a partial edge hands over at least 1 token")
    flow.validate_flow()
    decode_of = {task.output: f"{task.name}/decode" for task in flow.tasks}
    written = {name for name, of in flow.choices.items() if not decode_of.keys().isdisjoint(of)}
    nodes: list[MicroTask] = []
    edges: list[Edge] = []
    for task in flow.order():
        chain: list[MicroTask] = []
        for piece in task.prompt.cut_at({*decode_of, *written}):
            node_id = f"{task.name}/prefill:{len(chain)}"
            if isinstance(piece, Slot):
                chain.append(MicroTask(node_id, task.name, "prefill", (piece,), "dynamic"))
                edges += [
                    Edge(decode_of[source], node_id, "partial", chunk)
                    for source in flow.choices.get(piece.variable, (piece.variable,))
                    if source in decode_of
                ]
            else:
                chain.append(MicroTask(node_id, task.name, "prefill", piece.segments, "static"))
        chain.append(MicroTask(decode_of[task.output], task.name, "decode", (), "dynamic"))
        edges += [Edge(src.id, dst.id, "strong") for src, dst in pairwise(chain)]
        nodes += chain
    return MicroTaskGraph(tuple(nodes), tuple(edges))
