"""Records of steps: the last few in memory, or all in a file."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import Mapping
from pathlib import Path

from grape_lc.scheduler.cost import StepLoad
from grape_lc.scheduler.record import StepRecord, header
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import Plan, Snapshot

logger = logging.getLogger(__name__)

# Lines that may be lost if the process is killed.
_FLUSH_EVERY = 64


class StepTrace:
    """Takes a record of each step, in the order in which steps began.

    A step is recorded when its time is known, and so is an empty one behind it.

    trace: how many records to keep, or the path of a file, which is written anew. Raises OSError
    if that file cannot be opened. One that cannot be written to any more (a full disk) ends there,
    with a warning: the engine goes on.
    """

    def __init__(self, trace: int | str, config: PolicyConfig) -> None:
        self._config = config
        self._kept: deque[StepRecord] = deque(maxlen=trace if isinstance(trace, int) else 0)
        self._open: deque[tuple[StepRecord, bool]] = deque()
        self._unflushed = 0
        self._file = None
        if isinstance(trace, str):
            path = Path(trace)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("w", buffering=1 << 20)
            self._file.write(header(config) + "\n")

    def planned(self, snapshot: Snapshot, plan: Plan) -> StepRecord:
        """A step was planned; the record must come back through ``began``."""
        return StepRecord.of(snapshot, plan)

    def began(
        self, record: StepRecord, plan: Plan, ran: Mapping[str, int], load: StepLoad | None
    ) -> None:
        """The step was scheduled; ``load`` is None if it computes nothing."""
        record.finish(plan, ran)
        record.load = load
        self._open.append((record, load is not None))
        self._settle()

    def measured(self, seconds: float) -> None:
        """The oldest step that computes something came back."""
        if self._open:
            record, _ = self._open.popleft()
            record.seconds = seconds
            self._write(record)
            self._settle()

    def lines(self) -> list[str]:
        """Settings and kept records, oldest first, as ``record.read`` takes them."""
        return [header(self._config), *(record.to_json() for record in self._kept)]

    def close(self) -> None:
        """Write out what is left, measured or not."""
        while self._open:
            self._write(self._open.popleft()[0])
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            except OSError as error:
                logger.warning("the last records of steps are lost: %s", error)

    def _drop_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # what it still holds cannot be written either
                file.close()

    def _settle(self) -> None:
        while self._open and not self._open[0][1]:
            self._write(self._open.popleft()[0])

    def _write(self, record: StepRecord) -> None:
        self._kept.append(record)
        if self._file is not None:
            try:
                self._file.write(record.to_json() + "\n")
                self._unflushed += 1
                if self._unflushed >= _FLUSH_EVERY:
                    self._file.flush()
                    self._unflushed = 0
            except OSError as error:
                logger.warning("no more records of steps are written: %s", error)
                self._drop_file()
