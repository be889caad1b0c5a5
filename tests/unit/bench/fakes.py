"""Scripted engines that a comparison can run on."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from grape_lc.bench.arms import Arm
from grape_lc.engine.base import CallRequest
from grape_lc.errors import EngineDiedError, EngineStartError
from grape_lc.runtime.scripted import ScriptedEngine

# A role in the system prompt decides the answer.
ROLES = {
    "the product planner of": "Goal: as the problem says.",
    "the framework designer of": "Approach: one loop.\nInterface: solve().",
    "the project planner of": "Tasks:\nT1. solve",
    "the code generator of": "```python\ndef solve(): ...\n```",
    "the test validator of": "Verdict: PASS",
    "the query rewriter of": "while break else loop",
    "the searcher of": "FOUND: a loop ends with break.",
    "the answer generator of": "break",
    "the safety checker of": "break",
}
STAGES = (
    *("product_planner", "framework_designer", "project_planner"),
    *("code_generator", "test_validator"),
)


class BenchScript(ScriptedEngine):
    """A scripted engine with a prefix cache to reset; ``preemptions`` counts its programs."""

    def __init__(self, arm: Arm, shared: dict[str, Any], bed: TestBed) -> None:
        super().__init__(bed.answers.get(arm.name, ROLES), delay=0.0005)
        self.arm = arm
        self.shared = shared
        self.bed = bed

    def __enter__(self) -> BenchScript:
        self.bed.log.append(f"open {self.arm.name}")
        if self.bed.starts_fail.get(self.arm.name, 0) > 0:
            self.bed.starts_fail[self.arm.name] -= 1
            raise EngineStartError(f"no engine for {self.arm.name} [yet]")
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.bed.log.append(f"close {self.arm.name}")
        self.close()

    def reset_prefix_cache(self) -> bool:
        self.bed.log.append(f"run {self.arm.name}")
        if (self.arm.name, self.bed.log.count(f"run {self.arm.name}")) in self.bed.dies:
            raise EngineDiedError(f"the engine of {self.arm.name} is gone [dead]")
        self.delay = self.bed.delays.get(self.arm.name, self.delay)
        return True

    def stats(self) -> dict[str, Any]:
        if self.arm.scheduler == "stock":
            return {"programs": 0, "table": {}}
        return {"preemptions": len(self.calls) // 5, "dropped_tokens": 7, "pressed": False}

    def info(self) -> dict[str, Any]:
        return {"block_size": 32, "scheduler": self.arm.scheduler}


class TestBed:
    """Makes the engines of a comparison and remembers what happened to them.

    starts_fail: how often the start of an arm's engine fails. dies: (arm, run) whose engine is
    found dead. answers: of arms that do not answer like the others. delays: seconds between the
    words of arms that are slow once they were warmed up.
    """

    __test__ = False

    def __init__(self) -> None:
        self.log: list[str] = []
        self.engines: list[BenchScript] = []
        self.starts_fail: dict[str, int] = {}
        self.dies: set[tuple[str, int]] = set()
        self.answers: dict[str, dict[str, str]] = {}
        self.delays: dict[str, float] = {}

    def engine_of(self, arm: Arm, shared: dict[str, Any]) -> BenchScript:
        self.engines.append(BenchScript(arm, shared, self))
        return self.engines[-1]

    def of(self, name: str) -> list[BenchScript]:
        """The engines that were made for an arm."""
        return [engine for engine in self.engines if engine.arm.name == name]


def requests(engine: ScriptedEngine) -> list[CallRequest]:
    """All calls that an engine got."""
    return [call.request for call in engine.calls]


def console() -> Console:
    """One whose text ``printed`` returns."""
    return Console(file=io.StringIO(), width=160)


def printed(to: Console) -> str:
    """What was printed."""
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()
