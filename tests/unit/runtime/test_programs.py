"""The table of open prompts: events in, commands out, against a character tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.programs import (
    AppendPrompt,
    Command,
    OpenPrompt,
    PromptTable,
    ReleasePrompt,
)


class CharacterText:
    """One id a character; chat messages become ``<role>content</>`` and an answer marker."""

    markers = ("<user>",)
    trims = False

    def render(self, prompt: list[dict[str, Any]] | str) -> str:
        if isinstance(prompt, str):
            return prompt
        return (
            "".join(
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
        self.used: set[str] = set()
        self.final: set[str] = set()

    def apply(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case OpenPrompt(key, ids, hops):
                    assert key not in self.used
                    assert ids
                    self.used.add(key)
                    self.open[key] = list(ids)
                    self.hops[key] = hops
                case AppendPrompt(key, ids, hops, final):
                    assert key not in self.final
                    self.open[key] += ids
                    self.hops[key] = hops
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


@pytest.fixture
def table() -> PromptTable:
    return PromptTable(CharacterText(), chunk=4)


@pytest.fixture
def engine() -> Engine:
    return Engine()


def finish(table: PromptTable, engine: Engine, task: str, text: str, piece: int = 3) -> None:
    """Run the call of a task from start to end."""
    engine.apply(table.call_started("p", task))
    for at in range(0, len(text), piece):
        engine.apply(table.call_text("p", task, text[at : at + piece], piece))
        table.validate()
    engine.apply(table.call_finished("p", task, complete=True))
    table.validate()


def test_opens_what_is_known_at_the_start(table: PromptTable, engine: Engine) -> None:
    """Roots are left out; others get the text before their first open slot, less the hold-back."""
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    assert engine.text("plan") == ""
    assert engine.text("draft") == "<system>Write.</><user>About bees: "[:-5]
    assert engine.text("review") == "<user>Plan was "[:-5]
    assert sorted(engine.hops.values()) == [1, 2]


def test_grows_while_upstream_decodes_and_ends_complete(table: PromptTable, engine: Engine) -> None:
    """The upstream text flows in chunks; after its end the known rest follows at once."""
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    engine.apply(table.call_started("p", "plan"))
    assert table.feeds("p", "plan")
    engine.apply(table.call_text("p", "plan", "one two three", 4))
    assert engine.text("draft") == "<system>Write.</><user>About bees: one two three"[:-4]
    engine.apply(table.call_text("p", "plan", " four", 1))
    assert engine.text("draft").endswith("one two t"), "less than a chunk is not worth a step"
    engine.apply(table.call_finished("p", "plan", complete=True))
    assert (
        engine.text("draft") == "<system>Write.</><user>About bees: one two three four Go!</><ai>"
    )
    assert engine.text("review") == "<user>Plan was one two three four. Draft was "[:-5]
    assert not table.feeds("p", "plan")
    assert engine.hops[next(k for k in engine.open if "review" in k)] == 1


def test_the_call_takes_its_prompt_once(table: PromptTable, engine: Engine) -> None:
    """A second call of the same task finds nothing; closing releases only what is left."""
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    finish(table, engine, "plan", "x" * 30)
    key = table.take("p", "draft")
    assert key in engine.open
    assert table.take("p", "draft") is None
    del engine.open[key]
    engine.apply(table.close_program("p"))
    assert not engine.open
    assert len(table) == 0


def test_unknown_programs_tasks_and_inputs_are_harmless(table: PromptTable, engine: Engine) -> None:
    """Hints may be wrong; then nothing is prefilled, and nothing is lost."""
    for program, task in (("q", "plan"), ("p", "nope"), (None, None), ("p", None)):
        engine.apply(table.open_program("p", chain(), {}))
        engine.apply(table.call_started(program, task))
        engine.apply(table.call_text(program, task, "text", 9))
        engine.apply(table.call_finished(program, task, complete=True))
        assert table.take(program, task) is None
        assert not table.feeds(program, task)
    assert engine.text("draft") == "<system>Write.</><user>About "[:-5], "topic is not known"
    engine.apply(table.close_program("p"))
    engine.apply(table.close_program("p"))
    assert not engine.open


def test_a_task_that_runs_again_starts_its_readers_again(
    table: PromptTable, engine: Engine
) -> None:
    """A retry writes another text, so what was built on the first one is released."""
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    engine.apply(table.call_started("p", "plan"))
    engine.apply(table.call_text("p", "plan", "a first text that was lost", 9))
    engine.apply(table.call_finished("p", "plan", complete=False))
    assert "first" in engine.text("draft")
    finish(table, engine, "plan", "the second text")
    assert engine.text("draft").endswith(": the second text Go!</><ai>")


def test_a_chat_template_that_trims_is_noticed(engine: Engine) -> None:
    """The prompt keeps what was right and stops growing; the call's own prompt decides."""
    text = CharacterText()
    text.trims = True
    table = PromptTable(text, chunk=4)
    flow = TaskFlow(name="trim")
    flow.add_variable(IntermediateVar("a"))
    flow.add_variable(OutputVar("b"))
    flow.add_task([("user", "Go")], "a")
    flow.add_task([("user", "Text: {a}"), ("user", "next")], "b")
    engine.apply(table.open_program("p", flow, {}))
    finish(table, engine, "a", "ends in a blank ")
    assert "<user>Text: ends in a blank</><user>next</><ai>".startswith(engine.text("b"))
    assert table.counts["template_rewrote_slot"] == 1
    assert table.take("p", "b") is not None


def test_disabled_table_does_nothing(engine: Engine) -> None:
    """The engine cannot keep open prompts: calls go on as ordinary requests."""
    table = PromptTable(CharacterText(), enabled=False)
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    finish(table, engine, "plan", "text")
    assert table.take("p", "draft") is None
    assert not engine.used


@settings(max_examples=200, deadline=None)
@given(
    plan=st.text(max_size=60),
    draft=st.text(max_size=60),
    pieces=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    chunk=st.integers(1, 12),
)
def test_open_prompts_equal_the_real_ones(
    plan: str, draft: str, pieces: tuple[int, int], chunk: int
) -> None:
    """Whatever the answers and however they are cut: the prompt built ahead is the real one."""
    if "\ue1f0" in plan + draft:
        return
    table, engine, flow = PromptTable(CharacterText(), chunk=chunk), Engine(), chain()
    engine.apply(table.open_program("p", flow, {"topic": "bees"}))
    finish(table, engine, "plan", plan, pieces[0])
    values = {"topic": "bees", "plan": plan, "draft": draft}
    real = CharacterText().render(flow.task("draft").prompt.render_messages(values))
    assert engine.text("draft") == real
    assert table.take("p", "draft") is not None
    finish(table, engine, "draft", draft, pieces[1])
    real = CharacterText().render(flow.task("review").prompt.render_messages(values))
    assert engine.text("review") == real
