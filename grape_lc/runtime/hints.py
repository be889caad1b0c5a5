"""What a flow tells the scheduler about its calls: place in the graph, names, targets."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b

from grape_lc.engine.base import CallRequest
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.scheduler.types import NO_HINT, Hint

_MOST_AFTER = 64


@dataclass(frozen=True, slots=True)
class FlowShape:
    """The graph of a flow as hints need it, computed once for each run.

    name: the same for flows of the same name, tasks and edges, and for no others.
    hints: for each task what every call of it says: names, ``depth`` and ``after``.
    """

    name: str
    hints: dict[str, Hint]

    @classmethod
    def of(cls, flow: TaskFlow) -> FlowShape:
        """The shape of a flow. Raises CycleError."""
        edges = [(task.name, flow.upstream(task.name)) for task in flow.order()]
        digest = blake2b(json.dumps(edges).encode(), digest_size=8).hexdigest()
        name = f"{flow.name}/{digest}"
        after: dict[str, tuple[str, ...]] = {}
        for task, _ in reversed(edges):
            # The longest way to the end; of equally long ones, the first that was declared.
            ways = ((reader, *after[reader]) for reader in flow.downstream(task))
            after[task] = max(ways, key=len, default=())[:_MOST_AFTER]
        return cls(
            name,
            {
                task: Hint(flow=name, task=task, depth=flow.depth(task), after=after[task])
                for task, _ in edges
            },
        )

    def hint(self, task: str | None) -> Hint:
        """What a call of ``task`` says; of an unknown one, the flow's name."""
        known = self.hints.get(task) if task is not None else None
        return known if known is not None else Hint(flow=self.name, task=task)


def with_targets(hint: Hint, request: CallRequest) -> Hint:
    """``hint`` with what the call's own request says: its names, its tenant and its targets."""
    said = replace(
        hint,
        program=request.program,
        task=request.task,
        tenant=request.tenant,
        ttft_s=request.ttft_s,
        tbt_s=request.tbt_s,
        deadline_s=request.deadline_s,
    )
    return NO_HINT if said == NO_HINT else said
