"""What each step computed, and how long it took, measured inside the engine core.

    synchronous    schedule(1)   update(1)   schedule(2)   update(2)
                         |--------|                |--------|
    asynchronous   schedule(1) schedule(2)   update(1) schedule(3)   update(2)
                         |--------------------|------------------------|

A step lasts from the end of its ``schedule`` to the start of its ``update_from_output``; where
steps overlap, it begins at the completion of the one before.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from grape_lc.scheduler.cost import StepLoad


class StepLog:
    """Measures steps that begin and end in the same order.

    keep: how many of the latest steps ``drain`` can give; 0 measures without keeping.
    Times are seconds on any one clock.
    """

    def __init__(self, keep: int = 0) -> None:
        self._begun: deque[tuple[StepLoad, float]] = deque()
        self._kept: deque[tuple[StepLoad, float]] = deque(maxlen=keep)
        self._completed = float("-inf")

    def begin(self, load: StepLoad, now: float) -> None:
        """A step was scheduled; one that computes nothing must not be given."""
        self._begun.append((load, now))

    def end(self, now: float) -> tuple[StepLoad, float] | None:
        """The oldest step came back; its load and seconds, or None if none was begun."""
        if not self._begun:
            return None
        load, scheduled = self._begun.popleft()
        step = load, now - max(scheduled, self._completed)
        self._completed = now
        self._kept.append(step)
        return step

    def drain(self) -> list[list[float]]:
        """The steps that were kept, oldest first: the load's four fields, then the seconds."""
        rows = [[*load, seconds] for load, seconds in self._kept]
        self._kept.clear()
        return rows


def load_of(output: Any, requests: dict[str, Any]) -> StepLoad:
    """Load of a step that vLLM just scheduled, before anything of it is known.

    output: vLLM's SchedulerOutput. requests: by id, with this step's tokens counted as computed.
    """
    return StepLoad.of(
        (tokens, requests[key].num_computed_tokens - tokens)
        for key, tokens in output.num_scheduled_tokens.items()
    )
