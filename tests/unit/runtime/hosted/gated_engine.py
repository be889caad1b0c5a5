"""A word engine that starts only when a file is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.unit.runtime.hosted.word_engine import WordEngine


class GatedEngine(WordEngine):
    """gate: the file. begun: another one, made when the start waits for it."""

    def __init__(self, model: str, scheduler: str, args: dict[str, Any]) -> None:
        Path(args["begun"]).touch()
        end = time.monotonic() + 120
        while not Path(args["gate"]).exists() and time.monotonic() < end:
            time.sleep(0.01)
        super().__init__(model, scheduler, args)
