"""Numbers of the values in a trace: the same value has the same marker in every path."""

from __future__ import annotations

import threading
from typing import Literal

Kind = Literal["input", "call", "answer", "unknown"]


class Numbers:
    """Numbers for inputs and answers by name, and for unknown texts by what they are.

    An answer has a number by its task in all runs, and one by the place of its call, which is that
    of its marker in a run: what the task will be called is known when the run has ended.

    Usable from any thread.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[Kind, str], int] = {}
        self._lock = threading.Lock()

    def of(self, kind: Kind, name: str) -> int:
        """The number of a value, a new one the first time."""
        with self._lock:
            return self._numbers.setdefault((kind, name), len(self._numbers))

    def named(self, kind: Kind) -> dict[int, str]:
        """All values of a kind by their numbers."""
        with self._lock:
            return {n: name for (of, name), n in self._numbers.items() if of == kind}
