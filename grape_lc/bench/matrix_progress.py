"""Progress over all runs of a comparison: a live line on a terminal, else lines of text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from grape_lc.bench.collect import Live
from grape_lc.bench.display import Shown
from grape_lc.bench.engine_pool import EnginePool
from grape_lc.bench.time_left import Kind, Planned, time_left

_LINE_EVERY_S = 30.0
_BAR = 20  # columns


class MatrixProgress(Shown):
    """Shows what runs, how many of how many runs are done, and about how long the rest takes.

    A context manager. plan: the runs that are to be made, in their order. taken: how many more
    were made before and are only read. pool: whose engines they run on. clock: seconds, never
    backwards.
    """

    def __init__(
        self,
        console: Console,
        plan: Sequence[Planned],
        taken: int,
        pool: EnginePool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console)
        self._plan = list(plan)
        self._total = len(plan) + taken
        self._pool = pool
        self._clock = clock
        self._seen: dict[Kind, list[float]] = {}
        self._running: _Run | None = None
        self._printed = 0.0

    def begin(self, title: str, kind: Kind, programs: int) -> None:
        """A run starts now, the next of the plan."""
        self._running = _Run(title, kind, programs, self._clock())
        self._printed = self._running.began
        self._show()

    def tick(self, done: int, live: Live) -> None:
        """The run has ``done`` finished programs; called often."""
        run = self._running
        if run is None:
            return
        run.done, run.live, run.seconds = done, live, self._clock() - run.began
        due = self._clock() - self._printed >= _LINE_EVERY_S
        if due:
            self._printed = self._clock()
        self._show(line=due)

    def end(self) -> None:
        """The run is over."""
        run = self._running
        if run is None:
            return
        run.done, run.seconds, run.over = run.programs, self._clock() - run.began, True
        self._seen.setdefault(run.kind, []).append(run.seconds)
        self._drop()
        self._show(line=True)

    def fail(self, title: str, reason: str) -> None:
        """A run ended with an error, or did not begin for one."""
        self._drop()
        self._running = None
        self._show()
        self.say(f"{title} failed: {reason}")

    def say(self, text: str) -> None:
        """Print a line beside."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _drop(self) -> None:
        if self._plan:
            del self._plan[0]

    def left(self) -> float | None:
        """About how many seconds the rest takes; None before any run is done."""
        seconds, run = self._left_of(self._plan), self._running
        if seconds is None or run is None or run.over:
            return seconds
        # A run that takes longer than others did takes nothing from those that come.
        return max(seconds - run.seconds, self._left_of(self._plan[1:]) or 0.0)

    def _left_of(self, plan: Sequence[Planned]) -> float | None:
        pool = self._pool
        return time_left(plan, self._seen, pool.starts, pool.open_engines, pool.most)

    def _show(self, *, line: bool = False) -> None:
        if self._display is not None:
            self._display.update(self._view(), refresh=True)
        elif line and self._running is not None:
            self.say(f"{self._counts()}: {self._running}")

    def _counts(self) -> str:
        left = self.left()
        rest = "" if left is None else f", {_rough(left)} left"
        return f"{self._total - len(self._plan)} of {self._total} runs{rest}"

    def _view(self) -> Table:
        done = self._total - len(self._plan)
        table = Table.grid(padding=(0, 2))
        for _ in range(3):
            table.add_column(no_wrap=True, overflow="ellipsis")
        bar = ProgressBar(total=max(self._total, 1), completed=done, width=_BAR)
        table.add_row(bar, self._counts(), "" if self._running is None else str(self._running))
        return table


class _Run:
    def __init__(self, title: str, kind: Kind, programs: int, began: float) -> None:
        self.title = title
        self.kind = kind
        self.programs = programs
        self.began = began
        self.done = 0
        self.live = Live(0, None)
        self.seconds = 0.0
        self.over = False

    def __str__(self) -> str:
        itl = "-" if self.live.itl_ms is None else f"{self.live.itl_ms:.1f} ms"
        return (
            f"{self.title}: {self.done}/{self.programs} programs, {self.live.tokens} tokens, "
            f"agentic ITL {itl}, {self.seconds:.0f} s"
        )


def _rough(seconds: float) -> str:
    """A time left: it is an estimate, and is told as one."""
    if seconds < 90:
        return f"about {seconds:.0f} s"
    if seconds < 5400:
        return f"about {seconds / 60:.0f} min"
    return f"about {seconds / 3600:.1f} h"
