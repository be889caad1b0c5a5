"""The order in which the calls of a graph are shown: as they are made, as far as that is known."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence

from grape_lc.flow.taskflow import TaskFlow

_NUMBER = re.compile(r"\[(\d+)\]")


def in_order(flow: TaskFlow | None, others: Iterable[str], seen: Sequence[str]) -> list[str]:
    """Names of a flow's tasks and of other calls, each task behind those whose answers it reads.

    seen: calls in the order in which they ended first. What is free to come next comes as it did
    there, then as the flow has it. Calls that differ by a number in brackets stand together, by
    that number: ``section[2]`` before ``section[10]``.
    """
    tasks = [] if flow is None else [task.name for task in flow.order()]
    names = [*tasks, *others]
    ranks: dict[str, int] = {}
    for name in (*seen, *names):
        ranks.setdefault(_group(name), len(ranks))
    keys = {
        name: (ranks[_group(name)], [int(n) for n in _NUMBER.findall(name)], place)
        for place, name in enumerate(names)
    }
    inside = set(tasks)
    waiting = {
        name: set(flow.upstream(name)) if flow is not None and name in inside else set()
        for name in names
    }
    ready = [(keys[name], name) for name in names if not waiting[name]]
    heapq.heapify(ready)
    ordered: list[str] = []
    while ready:
        _, name = heapq.heappop(ready)
        ordered.append(name)
        for reader in flow.downstream(name) if flow is not None and name in inside else ():
            waiting[reader].discard(name)
            if not waiting[reader]:
                heapq.heappush(ready, (keys[reader], reader))
    return ordered


def _group(name: str) -> str:
    return _NUMBER.sub("[]", name)
