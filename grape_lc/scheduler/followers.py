"""Calls that are about to arrive, because the call that feeds them has just ended.

Between two calls of one program lie the user's own code and the way back into the engine. How
long that takes is learned, so that the policy can tell a wait of a few milliseconds, which costs
less than the step it saves, from one that has no end in sight.
"""

from __future__ import annotations

_WEIGHT = 0.25  # of the newest observation in the running mean


class Followers:
    """Programs whose next call is due. Times are seconds on any one clock.

    patience: after this long a follower is no longer expected, and counts as late: as ``late``
        seconds.
    """

    def __init__(self, patience: float, late: float) -> None:
        self._patience = patience
        self._late = late
        self._due: dict[str, float] = {}
        self.expected = 0.0
        """Running mean of the time from a feeding call's end to the next call's arrival."""

    def __len__(self) -> int:
        return len(self._due)

    def ended(self, program: str, now: float) -> None:
        """A call of ``program`` that feeds another one ended."""
        self._due[program] = now

    def arrived(self, program: str, now: float) -> None:
        """A call of ``program`` came in at ``now``, even if it was noticed only later."""
        since = self._due.pop(program, None)
        if since is not None:
            self._learn(max(now - since, 0.0))

    def waiting_since(self, now: float) -> float | None:
        """Seconds for which the oldest due follower has been awaited; None if none is due."""
        for program, since in list(self._due.items()):
            if now - since >= self._patience:
                del self._due[program]
                self._learn(self._late)
        return now - min(self._due.values()) if self._due else None

    def _learn(self, delay: float) -> None:
        self.expected += _WEIGHT * (delay - self.expected)
