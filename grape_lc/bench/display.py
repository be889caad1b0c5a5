"""Something that changes, shown in place on a terminal for the length of a ``with``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live as LiveDisplay


class Shown(ABC):
    """Shown while it is entered, if the console is a terminal; ``_display`` is None otherwise."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._display: LiveDisplay | None = None

    @abstractmethod
    def _view(self) -> RenderableType:
        """What it looks like now."""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._display = LiveDisplay(self._view(), console=self._console, auto_refresh=False)
            self._display.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._display is not None:
            self._display.stop()
            self._display = None
