"""How often a task of a flow is really called: a branch not taken is not worth preparing.

Pure bookkeeping over the runs of each flow. A task's own odds are conditional: of the runs in
which everything that it reads was answered, the share that went on to call it. How likely a call
is before anything ran is therefore its own odds times those of the least likely call above it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

from grape_lc.flow.taskflow import TaskFlow

LEAST_ODDS = 0.4
"""Below this a prompt is not prepared. At one half the compute that is wasted and the time that is
saved are equal; a little less, so that each end of a two-way branch is prepared."""

_FADE = 0.9  # weight of each earlier run: about ten runs are remembered
_MOST_FLOWS = 1024


@dataclass(slots=True)
class _Seen:
    """Runs in which a task could have been called, and in which it was; both faded."""

    runs: float = 0.0
    called: float = 0.0

    @property
    def odds(self) -> float:
        # One call is taken for granted: a task that was never seen is certain, one that was left
        # out once is an even bet, and only the second time makes it unlikely.
        return (self.called + 1) / (self.runs + 1)


class Odds:
    """What runs showed, by a key for those that are alike; the oldest are forgotten."""

    def __init__(self) -> None:
        self._flows: OrderedDict[Hashable, dict[str, _Seen]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._flows)

    def ended(
        self, runs: Hashable, flow: TaskFlow, called: Collection[str], answered: Collection[str]
    ) -> None:
        """A run of ``flow`` is over; ``runs``: the key of those that are like it.

        called: the tasks whose calls arrived. answered: those of them that came to their end; a
        task that waits for one that did not says nothing, since the run may have been cancelled.
        """
        seen = self._flows.setdefault(runs, {})
        self._flows.move_to_end(runs)
        while len(self._flows) > _MOST_FLOWS:
            self._flows.popitem(last=False)
        for task in flow.tasks:
            above = flow.needs(task)
            ready = bool(above) and all(any(t in answered for t in some) for some in above)
            if task.name not in called and not ready:
                continue
            entry = seen.setdefault(task.name, _Seen())
            entry.runs = entry.runs * _FADE + 1
            entry.called = entry.called * _FADE + (task.name in called)

    def of(self, runs: Hashable, flow: TaskFlow) -> Mapping[str, float]:
        """How likely each task is to be called, from 0 to 1; 1 where nothing is known."""
        seen = self._flows.get(runs, {})
        odds: dict[str, float] = {}
        for task in flow.order():
            above = min((max(odds[t] for t in some) for some in flow.needs(task)), default=1.0)
            entry = seen.get(task.name)
            odds[task.name] = above * (1.0 if entry is None else entry.odds)
        return odds
