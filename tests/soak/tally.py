"""How the programs of a soak ended, and whether equal ones were answered alike."""

from __future__ import annotations

import threading
from collections import Counter

from grape_lc.engine.base import CallDelta, CallRequest
from tests.soak.moments import Outputs
from tests.soak.plan import Fault, Job, Shape
from tests.soak.running import Outcome, why_wrong

_SHOWN = 20


class Tally:
    """Counts of programs, and the first things that were wrong."""

    def __init__(self) -> None:
        self.programs = 0
        self.answered = 0
        self.errors = 0
        self.left = 0
        self.lost = 0
        self.faults: Counter[Fault] = Counter()
        self.compared = 0
        self.unequal = 0
        self.wrong = 0
        self.shown: list[str] = []
        self._answers: dict[tuple[Shape, str], Outputs] = {}

    def ended(self, job: Job, outcome: Outcome | None) -> None:
        """A program ended; None: it neither answered nor got an error in all its time."""
        self.programs += 1
        if job.fault is not None:
            self.faults[job.fault] += 1
        if outcome is None:
            self.lost += 1
            self._show(f"program {job.number} ({job}) is lost")
            return
        self.answered += outcome.outputs is not None
        self.errors += outcome.error is not None
        self.left += outcome.left
        if (wrong := why_wrong(job, outcome)) is not None:
            self.wrong += 1
            self._show(wrong)
        elif outcome.outputs is not None and not job.sampled:
            self._compare(job, outcome.outputs)

    def _compare(self, job: Job, outputs: Outputs) -> None:
        """Greedy programs of one shape with one input say the same, whatever runs them."""
        first = self._answers.get((job.shape, job.topic))
        if first is None:
            # An input that no other program has is not kept.
            if "number" not in job.topic:
                self._answers[job.shape, job.topic] = outputs
            return
        self.compared += 1
        if first != outputs:
            self.unequal += 1
            self._show(f"program {job.number} ({job}): {outputs}, another one said {first}")

    def _show(self, text: str) -> None:
        if len(self.shown) < _SHOWN:
            self.shown.append(text)

    @property
    def problems(self) -> list[str]:
        """What is wrong with the counts."""
        counts = {
            "lost: neither an answer nor an error": self.lost,
            "ended otherwise than they should": self.wrong,
            "answered otherwise than equal ones": self.unequal,
        }
        return [f"{count} programs {what}" for what, count in counts.items() if count]


class Traffic:
    """Calls and tokens that came out of the engine; an observer of it."""

    def __init__(self) -> None:
        self.calls = 0
        self.tokens = 0
        self._lock = threading.Lock()

    def __call__(self, call_id: int, request: CallRequest, delta: CallDelta) -> None:
        del call_id, request
        with self._lock:
            self.calls += delta.finish_reason is not None
            self.tokens += len(delta.token_ids)
