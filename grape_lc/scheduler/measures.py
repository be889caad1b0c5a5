"""What is measured from step to step, as running means: the signals of a snapshot."""

from __future__ import annotations

from grape_lc.scheduler.followers import Followers
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import Pool, Signals

_STEP_WEIGHT = 0.1  # of the newest step in the running mean of their duration
_QUEUE_WEIGHT = 0.05  # of the newest step in the mean queue
_RARE_WEIGHT = 0.01  # of the newest step in shares of steps that may be rare
_HIT_WEIGHT = 0.1  # of the newest open prompt in the share of early tokens that were of use
_LOST_HALF = 2e4  # tokens after which what was lost to preemptions counts half


class Measures:
    """The memory behind ``Signals``, whose fields say what each measure means.

    step_s: mean seconds of a step. behind: seconds that the call waits which waits first.
    pressed, thrashing: hold until the pool has recovered. hit_rate: of early tokens.
    switched: the latest step was kept short for a follower. weight: of a partial edge, by F.
    """

    def __init__(self, config: PolicyConfig) -> None:
        self._config = config
        self.step_s = 0.0
        self.behind = 0.0
        self.pressed = False
        self.thrashing = False
        self.hit_rate = 1.0
        self.switched = False
        self.weight = 0
        self._queue = 0.0
        self._tight = 0.0
        # Until it is known how rare prefills are they count as frequent.
        self._spikes = 1.0
        self._misses = 0
        self._lost = 0.0
        self._computed = 0.0

    def step_begins(self, waiting: int, behind: float, *, tight: bool) -> None:
        """So many calls wait, the first one for so many seconds; ``tight``: for KV."""
        self.behind = behind
        self._queue += _QUEUE_WEIGHT * (waiting - self._queue)
        self._tight += _RARE_WEIGHT * (tight - self._tight)
        self._spikes *= 1.0 - _RARE_WEIGHT

    def step_ended(self, seconds: float) -> None:
        """It took so long."""
        self.step_s += _STEP_WEIGHT * (seconds - self.step_s)

    def computed(self, tokens: int) -> None:
        """A step computes so many tokens."""
        fade = 0.5 ** (tokens / _LOST_HALF)
        self._lost *= fade
        self._computed = self._computed * fade + tokens

    def prefill_begins(self) -> None:
        """A call starts whose prompt is more than a short rest."""
        self._spikes += _RARE_WEIGHT

    def preempted(self, tokens: int) -> None:
        """A running call lost the KV of so many tokens."""
        self.thrashing = True
        self._lost += tokens

    def dropped(self) -> None:
        """An open prompt gave up its KV."""
        self.pressed = True

    def adopted(self, tokens: int, computed: int) -> None:
        """A call came to its open prompt, and took over ``tokens`` of those it had computed."""
        self.hit_rate += _HIT_WEIGHT * (min(1.0, tokens / computed) - self.hit_rate)
        self._misses = 0 if tokens > 0 else self._misses + 1

    def unclaimed(self) -> None:
        """An open prompt is gone that no call came to, or that had computed nothing."""
        if self._misses >= self._config.most_misses > 0:
            # Nothing was computed since early work stopped: try again now and then.
            self._misses -= 1

    def recover(self, pool: Pool, *, running: bool) -> None:
        """The pool has recovered once there is ample room; two bounds keep it from fluttering."""
        wide = self._config.wide_margin * pool.total
        if self.pressed and pool.free > pool.growth + pool.waiting + wide:
            self.pressed = False
        if self.thrashing and (not running or pool.free > pool.growth + wide):
            self.thrashing = False

    def signals(self, now: float, error: float | None, followers: Followers) -> Signals:
        """All of it; ``error``: P95 of the cost model's, None if there is none."""
        return Signals(
            step_s=self.step_s,
            error=error,
            pressed=self.pressed,
            thrashing=self.thrashing,
            hit_rate=self.hit_rate,
            misses=self._misses,
            queue=self._queue,
            behind=self.behind,
            tight=self._tight,
            recomputed=self._lost / self._computed if self._computed else 0.0,
            spikes=self._spikes,
            since_feeder=followers.waiting_since(now),
            follower_s=followers.expected,
            switched=self.switched,
            weight=self.weight,
        )

    def validate(self) -> None:
        """Raise AssertionError if a share is none."""
        for name in ("hit_rate", "_tight"):
            assert 0.0 <= getattr(self, name) <= 1.0, f"{name} is {getattr(self, name)}"
        assert self._lost >= 0.0, f"{self._lost} tokens lost"
