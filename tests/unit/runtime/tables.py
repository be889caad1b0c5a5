"""A table of open prompts without an engine: a character tokenizer, a flow, a run of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.commands import AppendPrompt, Command, OpenPrompt, ReleasePrompt
from grape_lc.runtime.programs import PromptTable
from grape_lc.scheduler.types import Hint


class CharacterText:
    """One id a character; chat messages become ``<role>content</>`` and an answer marker."""

    markers = ("<user>",)
    trims = False

    def render(
        self, prompt: list[dict[str, Any]] | str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        if isinstance(prompt, str):
            return prompt
        return (
            "".join(f"[{tool['function']['name']}]" for tool in tools)
            + "".join(
                f"<{m['role']}>{m['content'].strip() if self.trims else m['content']}</>"
                for m in prompt
            )
            + "<ai>"
        )

    def encode(self, text: str, *, chat: bool) -> tuple[Sequence[int], Sequence[int] | None]:
        del chat
        return [ord(c) for c in text], list(range(1, len(text) + 1))


class Engine:
    """Applies commands and checks that the table keeps its word."""

    def __init__(self) -> None:
        self.open: dict[str, list[int]] = {}
        self.hops: dict[str, int] = {}
        self.hints: dict[str, Hint] = {}
        self.sources: dict[str, str | None] = {}
        self.used: set[str] = set()
        self.final: set[str] = set()

    def apply(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case OpenPrompt(key, ids, hint):
                    assert key not in self.used
                    assert ids
                    self.used.add(key)
                    self.open[key] = list(ids)
                    self.hints[key] = hint
                    self.hops[key] = hint.hops
                case AppendPrompt(key, ids, hops, final, source):
                    assert key not in self.final
                    assert not (final and source)
                    self.open[key] += ids
                    self.hops[key] = hops
                    self.sources[key] = source
                    if final:
                        self.final.add(key)
                case ReleasePrompt(key):
                    del self.open[key]

    def text(self, task: str) -> str:
        keys = [key for key in self.open if key.split("/")[2] == task]
        assert len(keys) <= 1
        return "".join(chr(i) for i in self.open[keys[0]]) if keys else ""


def chain() -> TaskFlow:
    flow = TaskFlow(name="chain")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(IntermediateVar("draft"))
    flow.add_variable(OutputVar("review"))
    flow.add_task([("user", "Plan {topic}")], "plan")
    flow.add_task([("system", "Write."), ("user", "About {topic}: {plan} Go!")], "draft")
    flow.add_task([("user", "Plan was {plan|strip}. Draft was {draft}")], "review")
    return flow


def finish(
    table: PromptTable, engine: Engine, task: str, text: str, piece: int = 3, program: str = "p"
) -> None:
    """Run the call of a task from start to end."""
    engine.apply(table.call_started(program, task))
    for at in range(0, len(text), piece):
        engine.apply(table.call_text(program, task, text[at : at + piece], piece))
        table.validate()
    engine.apply(table.call_finished(program, task, complete=True))
    table.validate()
