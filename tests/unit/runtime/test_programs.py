"""The table of open prompts: events in, commands out, against a character tokenizer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.flow import IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.programs import PromptTable
from grape_lc.scheduler.types import NO_HINT
from tests.unit.runtime.tables import CharacterText, Engine, chain, finish


@pytest.fixture
def table() -> PromptTable:
    return PromptTable(CharacterText(), chunk=4)


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_opens_what_is_known_at_the_start(table: PromptTable, engine: Engine) -> None:
    """Roots are left out; others get the text before their first open slot, less the hold-back."""
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    assert engine.text("plan") == ""
    assert engine.text("draft") == "<system>Write.</><user>About bees: "[:-9]
    assert engine.text("review") == "<user>Plan was "[:-9]
    assert sorted(engine.hops.values()) == [1, 2]


def test_grows_while_upstream_decodes_and_ends_complete(table: PromptTable, engine: Engine) -> None:
    """The upstream text flows in chunks; after its end the known rest follows at once."""
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    engine.apply(table.call_started("p", "plan"))
    assert table.hint("p", "plan").feeds
    engine.apply(table.call_text("p", "plan", "one two three", 4))
    assert engine.text("draft") == "<system>Write.</><user>About bees: one two thr"[:-8]
    engine.apply(table.call_text("p", "plan", " four", 1))
    assert engine.text("draft").endswith("bees: one"), "less than a chunk is not worth a step"
    engine.apply(table.call_finished("p", "plan", complete=True))
    assert (
        engine.text("draft") == "<system>Write.</><user>About bees: one two three four Go!</><ai>"
    )
    assert engine.text("review") == "<user>Plan was one two three four. Draft was "[:-9]
    assert not table.hint("p", "plan").feeds
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
        assert not table.hint(program, task).feeds
    assert engine.text("draft") == "<system>Write.</><user>About "[:-9], "topic is not known"
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


def trimmed(answer: str, engine: Engine) -> PromptTable:
    """A prompt that reads this answer, by a chat template that trims."""
    text = CharacterText()
    text.trims = True
    table = PromptTable(text, chunk=4)
    flow = TaskFlow(name="trim")
    flow.add_variable(IntermediateVar("a"))
    flow.add_variable(OutputVar("b"))
    flow.add_task([("user", "Go")], "a")
    flow.add_task([("user", "{a}"), ("user", "next")], "b")
    engine.apply(table.open_program("p", flow, {}))
    finish(table, engine, "a", answer)
    return table


def test_a_chat_template_may_trim_what_is_held_back(engine: Engine) -> None:
    """White space at the end waits for what follows, so the prompt is the real one."""
    table = trimmed("it ends in a blank ", engine)
    assert engine.text("b") == "<user>it ends in a blank</><user>next</><ai>"
    assert not table.counts["template_rewrote_slot"]


def test_a_chat_template_that_changes_what_was_sent_is_noticed(engine: Engine) -> None:
    """The prompt keeps what was sent and stops growing; the call's own prompt decides."""
    table = trimmed("  it begins with a blank", engine)
    assert engine.text("b").startswith("<user>  it")
    assert table.counts["template_rewrote_slot"] == 1
    assert not table.counts["splice_broken"], "one reason is enough"
    assert table.take("p", "b") is not None
    assert not engine.final


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


def test_open_prompts_say_what_they_are_for(table: PromptTable, engine: Engine) -> None:
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    hints = {hint.task: hint for hint in engine.hints.values()}
    assert {hint.program for hint in hints.values()} == {"p"}
    assert len({hint.flow for hint in hints.values()}) == 1
    draft, review = hints["draft"], hints["review"]
    assert (draft.depth, draft.after, draft.hops, draft.source) == (1, ("review",), 1, "plan")
    assert (review.depth, review.after, review.hops, review.source) == (2, (), 2, "plan")


def test_the_source_of_an_open_prompt_moves_on(table: PromptTable, engine: Engine) -> None:
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    (review,) = [key for key in engine.open if key.split("/")[2] == "review"]
    finish(table, engine, "plan", "1. find a flower")
    engine.apply(table.catch_up("p"))
    assert engine.sources[review] == "draft"
    finish(table, engine, "draft", "bees find flowers")
    engine.apply(table.catch_up("p"))
    assert engine.sources[review] is None


def test_a_call_says_what_it_is(table: PromptTable) -> None:
    assert table.hint("p", "plan") == NO_HINT
    table.open_program("p", chain(), {"topic": "bees"})
    plan = table.hint("p", "plan")
    assert (plan.depth, plan.after, plan.feeds) == (0, ("draft", "review"), True)
    unknown = table.hint("p", "nobody")
    assert (unknown.flow, unknown.depth, unknown.feeds) == (plan.flow, None, False)


def fielded() -> TaskFlow:
    flow = TaskFlow(name="fields")
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("text"))
    flow.add_task([("user", "Plan")], "plan")
    flow.add_task([("user", "Write {plan|json:title} now")], "text")
    return flow


def test_a_field_is_known_before_its_answer_ends(table: PromptTable, engine: Engine) -> None:
    engine.apply(table.open_program("p", fielded(), {}))
    engine.apply(table.call_started("p", "plan"))
    engine.apply(table.call_text("p", "plan", '{"title": "Bees", ', 9))
    assert engine.text("text") == "<user>Write Bees now</><ai>"
    engine.apply(table.call_text("p", "plan", '"rest": ""}', 9))
    engine.apply(table.call_finished("p", "plan", complete=True))
    engine.apply(table.catch_up("p"))
    assert engine.text("text") == "<user>Write Bees now</><ai>"
    table.validate()


def test_a_field_that_is_missing_ends_the_prompt(table: PromptTable, engine: Engine) -> None:
    engine.apply(table.open_program("p", fielded(), {}))
    finish(table, engine, "plan", "there is no title")
    for _ in range(2):
        engine.apply(table.catch_up("p"))
        table.validate()
    assert engine.text("text") == "<user>Write "[:-9]
    assert not engine.final


def test_a_call_that_seldom_comes_is_not_prepared(table: PromptTable, engine: Engine) -> None:
    """Two runs that went without ``review``: the third opens only ``draft``, until it is back."""
    for number, calls in enumerate([("plan", "draft")] * 2 + [("plan", "draft", "review")] * 5):
        program = f"p{number}"
        engine.apply(table.open_program(program, chain(), {"topic": "bees"}))
        opened = {key.split("/")[2] for key in engine.open}
        assert "draft" in opened
        if number == 2:
            assert "review" not in opened
        for task in calls:
            engine.open.pop(table.take(program, task) or "", None)
            finish(table, engine, task, "some words of an answer", program=program)
        engine.apply(table.close_program(program))
    assert table.counts["unlikely"] >= 1
    engine.apply(table.open_program("last", chain(), {"topic": "bees"}))
    assert engine.text("review") != ""
