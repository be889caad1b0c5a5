"""How long calls decode: learned from the calls of the same task that ended.

Of each task the last few lengths are kept. A call that ended by its limit tells only that it
would have been longer, so lengths are read off the Kaplan-Meier estimate ("Nonparametric
Estimation from Incomplete Observations", 1958) of S(t), the share of calls longer than t tokens:
a call that ended by its limit counts as one that may still end up to there, and no further.

    S |‾‾‾‾‾|__                 a call with ``output`` tokens, limited to ``limit``:
      |        |_____           mean of what is left = area between the two / S(output)
      |      area    |____
      +---|------------|---- t
        output       limit
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict, deque
from itertools import pairwise

LEAST = 4
"""Calls behind a quantile, and behind the claim that a task always runs to its limit."""

_MEMOS = 16_384  # lookups that are kept, of all tasks, while their curves stay the same
_SURE = 0.9  # of calls reach the length that counts as sure
_ROUNDING = 1e-9

Key = tuple[str | None, str | None]


class Lengths:
    """Decode lengths by task, in tokens.

    window: calls of a task that count, its latest. most_tasks: tasks that are kept; the one that
    saw no call for the longest is forgotten.
    """

    def __init__(self, window: int = 64, most_tasks: int = 4096) -> None:
        if window < 1 or most_tasks < 1:
            raise ValueError(f"window and most_tasks are at least 1: {window=}, {most_tasks=}")
        self._window = window
        self._most_tasks = most_tasks
        self._tasks: OrderedDict[Key, _Task] = OrderedDict()
        self._memo: dict[tuple[object, int, int], tuple[float | None, float | None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def memos(self) -> int:
        """Lookups that are kept now."""
        return len(self._memo)

    def observe(
        self, flow: str | None, task: str | None, tokens: int, limited: bool = False
    ) -> None:
        """A call ended after ``tokens`` output tokens; ``limited``: its limit ended it.

        Calls without a flow are kept under the task's name, calls without either not at all.
        Raises ValueError if ``tokens`` is negative.
        """
        if tokens < 0:
            raise ValueError(
                f"a call of task {task!r} in flow {flow!r} ended after {tokens} tokens"
            )
        if flow is None and task is None:
            return
        key = (flow, task)
        known = self._tasks.get(key)
        if known is None:
            known = self._tasks[key] = _Task(self._window)
            if len(self._tasks) > self._most_tasks:
                self._tasks.popitem(last=False)
        else:
            self._tasks.move_to_end(key)
        known.add(tokens, limited)

    def remaining(
        self, flow: str | None, task: str | None, output: int, limit: int
    ) -> tuple[float | None, float | None]:
        """Tokens that a call with ``output`` tokens will still decode, at most to its ``limit``.

        First their mean over calls that got further than ``output``; then how many of them at
        least nine out of ten such calls decode. Both None if no call got further; the second also
        if fewer than ``LEAST`` did.

        Beyond the longest call nothing is known: calls count as ended there. But if the last
        ``LEAST`` or more all ended by their limits, calls that get there run to any limit.
        """
        known = self._tasks.get((flow, task))
        if known is None:
            return None, None
        if output >= limit:
            return 0.0, 0.0
        # Many calls of a task decode at once, and open prompts ask at every step.
        place = (known.curve, output, limit)
        found = self._memo.get(place)
        if found is None:
            if len(self._memo) >= _MEMOS:
                self._memo.clear()
            found = self._memo[place] = known.remaining(output, limit)
        return found

    def expected(self, flow: str | None, task: str | None) -> float | None:
        """Mean length of a call that has not begun; None if nothing is known.

        Calls are taken to end at the longest length seen, whatever ended that one.
        """
        known = self._tasks.get((flow, task))
        return None if known is None else known.mean

    def validate(self) -> None:
        """Raise AssertionError if what is kept contradicts itself."""
        assert len(self._tasks) <= self._most_tasks, f"{len(self._tasks)} tasks are kept"
        for key, known in self._tasks.items():
            assert key != (None, None), "lengths of no task at all"
            known.validate(key)


class _Task:
    """The window of one task, and its curve S as steps."""

    __slots__ = (
        *("_area", "_ends", "_falling", "_seen", "_share", "_sorted", "_to_limit", "_tokens"),
        "curve",
        "mean",
    )

    def __init__(self, window: int) -> None:
        self._seen: deque[tuple[int, bool]] = deque(maxlen=window)
        # Sorted by length; among equal ones those that ended by themselves come first, since
        # the others got at least as far.
        self._sorted: list[tuple[int, bool]] = []
        self._tokens: list[int] = []  # the same without what ended them
        # S is _share[i] from _ends[i] to _ends[i + 1], the area up to _ends[i] is _area[i].
        self._ends: list[int] = [0]
        self._share: list[float] = [1.0]
        self._area: list[float] = [0.0]
        self._falling: list[float] = [-1.0]  # -S, which rises, as bisection wants it
        self._to_limit = False
        self.curve = object()  # another one each time the curve is drawn
        self.mean = 0.0

    def add(self, tokens: int, limited: bool) -> None:
        """Take in one more call; O(window)."""
        if len(self._seen) == self._seen.maxlen:
            del self._sorted[bisect_left(self._sorted, self._seen[0])]
        self._seen.append((tokens, limited))
        insort(self._sorted, (tokens, limited))
        self._draw()

    def _draw(self) -> None:
        ends, share, area = [0], [1.0], [0.0]
        left = len(self._sorted)
        trailing = 0
        for tokens, limited in self._sorted:
            if limited:
                trailing += 1
            else:
                trailing = 0
                if tokens != ends[-1]:
                    area.append(area[-1] + share[-1] * (tokens - ends[-1]))
                    share.append(share[-1])
                    ends.append(tokens)
                share[-1] *= (left - 1) / left
            left -= 1
        longest = self._sorted[-1][0]
        self.mean = area[-1] + share[-1] * (longest - ends[-1])
        self._to_limit = trailing >= LEAST
        if trailing and not self._to_limit:
            ends.append(longest)
            share.append(0.0)
            area.append(self.mean)
        self.curve = object()
        self._ends, self._share, self._area = ends, share, area
        self._falling = [-part for part in share]
        self._tokens = [tokens for tokens, _ in self._sorted]

    def remaining(self, output: int, limit: int) -> tuple[float | None, float | None]:
        """As ``Lengths.remaining``, for ``output < limit``; O(log window)."""
        ends, share, area = self._ends, self._share, self._area
        here = bisect_right(ends, output) - 1
        longer = share[here]
        if longer <= 0.0:
            return None, None
        last = bisect_right(ends, limit) - 1
        whole = area[last] + share[last] * (limit - ends[last])
        mean = (whole - area[here] - longer * (output - ends[here])) / longer

        further = len(self._tokens) - bisect_right(self._tokens, output)
        if further < LEAST and not self._to_limit:
            return mean, None
        # The first length at which no more than nine out of ten go on.
        bound = longer * _SURE + _ROUNDING
        fallen = bisect_left(self._falling, -bound, here)
        sure = limit if fallen == len(ends) else min(limit, ends[fallen])
        return mean, float(sure - output)

    def validate(self, key: Key) -> None:
        """Raise AssertionError if the curve is not one, or not that of the window."""
        assert sorted(self._seen) == self._sorted, f"lengths of {key} are not those seen"
        assert self._seen, f"no length of {key}"
        shares = self._share
        assert all(a >= b for a, b in pairwise(shares)), f"{key}: S rises"
        assert 0.0 <= shares[-1] <= shares[0] <= 1.0, f"{key}: S is not a share: {shares}"
        assert self._ends == sorted(self._ends), f"{key}: {self._ends} is not sorted"
