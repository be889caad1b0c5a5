"""Progress of several runs: a live table on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table

from grape_lc.bench.collect import Live
from grape_lc.bench.display import Shown

_LINE_EVERY_S = 5.0


class _Run:
    def __init__(self, title: str) -> None:
        self.title = title
        self.state = "waiting"
        self.done = 0
        self.live = Live(0, None)
        self.began = 0.0
        self.seconds = 0.0

    def figures(self) -> tuple[str, str, str]:
        itl = "-" if self.live.itl_ms is None else f"{self.live.itl_ms:.1f} ms"
        return f"{self.live.tokens} tokens", f"agentic ITL {itl}", f"{self.seconds:.0f} s"


class RunProgress(Shown):
    """Shows runs that are carried out one after another; use as a context manager.

    titles: one a run, in their order. total: programs of each run.
    clock: seconds, never backwards.
    """

    def __init__(
        self,
        console: Console,
        titles: Sequence[str],
        total: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(console)
        self._total = total
        self._clock = clock
        self._runs = [_Run(title) for title in titles]
        self._printed = 0.0

    def begin(self, index: int) -> None:
        """Run ``index`` starts now."""
        run = self._runs[index]
        run.state, run.began = "running", self._clock()
        self._printed = run.began
        self._show(run, line=True)

    def tick(self, index: int, done: int, live: Live) -> None:
        """Run ``index`` has ``done`` finished programs; called often."""
        run, now = self._runs[index], self._clock()
        run.done, run.live, run.seconds = done, live, now - run.began
        due = now - self._printed >= _LINE_EVERY_S
        if due:
            self._printed = now
        self._show(run, line=due)

    def end(self, index: int) -> None:
        """Run ``index`` is over."""
        run = self._runs[index]
        run.state, run.done, run.seconds = "done", self._total, self._clock() - run.began
        self._show(run, line=True)

    def _show(self, run: _Run, *, line: bool) -> None:
        if self._display is not None:
            self._display.update(self._view(), refresh=True)
        elif line:
            counts = f"{run.done}/{self._total} programs"
            text = ", ".join([counts, *run.figures()])
            self._console.print(f"{run.title} ({run.state}): {text}", highlight=False)

    def _view(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for run in self._runs:
            bar = ProgressBar(total=self._total, completed=run.done, width=24)
            counts = f"{run.done}/{self._total} programs"
            cells = run.figures() if run.state != "waiting" else ("", "", "")
            style = {"waiting": "dim", "running": "bold"}.get(run.state, "")
            table.add_row(run.title, bar, counts, *cells, style=style)
        return table
