"""Calls that name no program are found by their content, and no others are taken for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.engine.base import CallRequest
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, Sampling, TaskFlow
from grape_lc.runtime.content import Known, choose
from grape_lc.runtime.programs import PromptTable
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock
from tests.unit.runtime.tables import CharacterText, Engine, chain, finish

PLAN = "1. find a flower 2. fly"


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def table(engine: Engine) -> PromptTable:
    table = PromptTable(CharacterText(), chunk=4)
    engine.apply(table.open_program("p", chain(), {"topic": "bees"}))
    return table


def call(*messages: tuple[str, str], **fields: Any) -> CallRequest:
    return CallRequest(
        messages=tuple({"role": role, "content": text} for role, text in messages), **fields
    )


def plan(topic: str = "bees", **fields: Any) -> CallRequest:
    return call(("user", f"Plan {topic}"), **fields)


def draft(plan: str, topic: str = "bees", **fields: Any) -> CallRequest:
    return call(("system", "Write."), ("user", f"About {topic}: {plan} Go!"), **fields)


GREEDY = Sampling(temperature=0)


# -- one run ----------------------------------------------------------------------------------


def test_a_whole_run_of_calls_without_names(table: PromptTable, engine: Engine) -> None:
    """Each one is its task, and what it answers makes the next one known."""
    assert table.find(plan()) == ("p", "plan")
    finish(table, engine, "plan", PLAN)
    assert table.find(draft(PLAN)) == ("p", "draft")
    key = table.take("p", "draft")
    assert key is not None
    assert engine.text("draft") == CharacterText().render(
        [dict(m) for m in draft(PLAN).messages or ()]
    )
    finish(table, engine, "draft", " a draft ")
    review = call(("user", f"Plan was {PLAN}. Draft was  a draft "))
    assert table.find(review) == ("p", "review")
    assert table.counts["matched_by_content"] == 3
    assert table.counts["ambiguous"] == 0


def test_a_task_is_found_once(table: PromptTable, engine: Engine) -> None:
    assert table.find(plan()) == ("p", "plan")
    engine.apply(table.call_started("p", "plan"))
    assert table.find(plan()) is None
    engine.apply(table.call_finished("p", "plan", complete=True))
    assert table.find(plan()) is None


def test_a_call_that_failed_may_be_made_again(table: PromptTable, engine: Engine) -> None:
    engine.apply(table.call_started("p", "plan"))
    engine.apply(table.call_text("p", "plan", "half of", 9))
    engine.apply(table.call_finished("p", "plan", complete=False))
    assert table.find(plan()) == ("p", "plan")
    finish(table, engine, "plan", PLAN)
    assert table.find(draft(PLAN)) == ("p", "draft")


@pytest.mark.parametrize(
    "stranger",
    [
        plan("bees and wasps"),
        plan("bee"),
        plan(""),
        draft(PLAN[:-1]),
        draft(PLAN + "."),
        call(("system", "Write."), ("user", "About bees: what do they eat?")),
        call(("system", "Write.")),
        call(("user", f"Plan was {PLAN}, I guess")),
        CallRequest(text=CharacterText().render([{"role": "user", "content": "Plan bees"}])),
        CallRequest(token_ids=tuple(ord(c) for c in "<user>Plan bees</><ai>")),
        call(),
    ],
)
def test_a_stranger_is_nobody(table: PromptTable, engine: Engine, stranger: CallRequest) -> None:
    """Another topic, a common system prompt, a beginning of what is known whole, a text."""
    assert table.find(stranger) is None or stranger == draft(PLAN)
    finish(table, engine, "plan", PLAN)
    assert table.find(stranger) is None


def test_tools_and_constraints_are_not_looked_at(table: PromptTable) -> None:
    request = plan(
        tools=({"type": "function", "function": {"name": "f"}},),
        sampling=Sampling(structured_outputs={"regex": "a*"}),
    )
    assert table.find(request) == ("p", "plan")


def test_no_prompt_is_rendered_while_none_could_fit(engine: Engine) -> None:
    """Not without a program, and not while too little is known of any prompt."""

    class Counting(CharacterText):
        rendered = 0

        def render(
            self, prompt: list[dict[str, Any]] | str, tools: Sequence[Mapping[str, Any]] = ()
        ) -> str:
            self.rendered += 1
            return super().render(prompt, tools)

    text = Counting()
    table = PromptTable(text, chunk=4)
    assert table.find(plan()) is None
    assert text.rendered == 0
    engine.apply(table.open_program("p", chain(), {}))
    table.find(plan())
    rendered = text.rendered  # what is known of each task, once
    for _ in range(5):
        assert table.find(plan()) is None
    assert text.rendered == rendered


# -- beginnings -------------------------------------------------------------------------------


def dated() -> TaskFlow:
    """The second prompt goes on with what no run gives."""
    flow = TaskFlow(name="dated")
    for name in ("topic", "opaque_1"):
        flow.add_variable(InputVar(name))
    for name in ("plan", "other"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("text"))
    flow.add_task([("user", "Plan {topic}")], "plan")
    flow.add_task([("user", "Other {topic}")], "other")
    flow.add_task([("user", "Write {plan|strip}, on {opaque_1}: {other}")], "text")
    return flow


def test_a_beginning_tells_a_call_by_the_answers_in_it(engine: Engine) -> None:
    table = PromptTable(CharacterText(), chunk=4)
    engine.apply(table.open_program("p", dated(), {"topic": "bees"}))
    request = call(("user", f"Write {PLAN}, on Monday: nothing"))
    assert table.find(request) is None
    finish(table, engine, "plan", f" {PLAN} ")
    assert table.find(request) == ("p", "text")


def test_a_short_answer_tells_nothing(engine: Engine) -> None:
    table = PromptTable(CharacterText(), chunk=4)
    engine.apply(table.open_program("p", dated(), {"topic": "bees"}))
    finish(table, engine, "plan", "yes")
    assert table.find(call(("user", "Write yes, on Monday: nothing"))) is None


def test_a_value_that_is_being_written_was_not_sent_yet(engine: Engine) -> None:
    flow = dated()
    table = PromptTable(CharacterText(), chunk=4)
    engine.apply(table.open_program("p", flow, {"topic": "bees", "opaque_1": "Monday"}))
    finish(table, engine, "plan", PLAN)
    request = call(("user", f"Write {PLAN}, on Monday: something"))
    assert table.find(request) == ("p", "text")  # another model may have answered
    engine.apply(table.call_started("p", "other"))
    assert table.find(request) is None
    engine.apply(table.call_finished("p", "other", complete=False))
    assert table.find(request) == ("p", "text")


# -- several runs -----------------------------------------------------------------------------


def test_alike_runs_share_greedy_calls_only(table: PromptTable, engine: Engine) -> None:
    """Greedy answers are the same for all; a sampled one would be fed to the wrong run."""
    engine.apply(table.open_program("q", chain(), {"topic": "bees"}))
    assert table.find(plan()) is None
    assert table.find(plan(sampling=Sampling(temperature=0.7))) is None
    assert table.counts["ambiguous"] == 2
    assert table.find(plan(sampling=GREEDY)) == ("p", "plan")
    finish(table, engine, "plan", PLAN)
    assert table.find(plan(sampling=GREEDY)) == ("q", "plan")
    finish(table, engine, "plan", PLAN, program="q")
    assert table.find(plan(sampling=GREEDY)) is None


def test_alike_runs_part_with_their_answers(table: PromptTable, engine: Engine) -> None:
    engine.apply(table.open_program("q", chain(), {"topic": "bees"}))
    finish(table, engine, "plan", "one way to the flower")
    finish(table, engine, "plan", "another way to the flower", program="q")
    assert table.find(draft("another way to the flower")) == ("q", "draft")
    assert table.find(draft("one way to the flower")) == ("p", "draft")


def test_a_closed_run_finds_nothing(table: PromptTable, engine: Engine) -> None:
    engine.apply(table.close_program("p"))
    assert table.find(plan()) is None


def test_one_run_takes_equal_calls_in_the_order_of_its_flow(engine: Engine) -> None:
    flow = TaskFlow(name="votes")
    flow.add_variable(InputVar("topic"))
    for name in ("one", "two"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("best"))
    flow.add_task([("user", "Vote on {topic}")], "one")
    flow.add_task([("user", "Vote on {topic}")], "two")
    flow.add_task([("user", "Best of {one}, {two}")], "best")
    table = PromptTable(CharacterText(), chunk=4)
    engine.apply(table.open_program("p", flow, {"topic": "bees"}))
    vote = call(("user", "Vote on bees"), sampling=Sampling(temperature=1))
    assert table.find(vote) == ("p", "one")
    engine.apply(table.call_started("p", "one"))
    assert table.find(vote) == ("p", "two")
    engine.apply(table.call_started("p", "two"))
    assert table.find(vote) is None


def test_the_longest_known_text_is_meant() -> None:
    known = [
        Known("p", "short", True, "Write ab", False, 20),
        Known("q", "long", True, "Write abc", False, 20),
        Known("r", "other", True, "Write abd", False, 20),
    ]
    assert choose("Write abcd", known, chat=True, greedy=False) == (known[1], False)
    assert choose("Write abe", known, chat=True, greedy=False) == (known[0], False)
    assert choose("Write", known, chat=True, greedy=False) == (None, False)


# -- any runs, in any order -------------------------------------------------------------------

WORDS = st.text("ab {}<>\n", max_size=12)


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[tuple[str, str, str]], list[int], list[str]]:
    """Topics and answers of some runs; whose turn it is; what strangers ask in between."""
    count = draw(st.integers(1, 4))
    # A mark of its own in each text of a run: no two runs are alike.
    runs = [tuple(f"{n}{name}{draw(WORDS)}" for name in ("t", "p", "d")) for n in range(count)]
    turns = draw(st.permutations([n for n in range(count) for _ in range(3)]))
    return runs, list(turns), draw(st.lists(WORDS, max_size=6))  # type: ignore[return-value]


@settings(max_examples=150, deadline=None)
@given(stories(), st.booleans())
def test_every_call_finds_its_own_run(
    story: tuple[list[tuple[str, str, str]], list[int], list[str]], greedy: bool
) -> None:
    """Whatever the texts and the order: each call is its own run's task, a stranger none's."""
    runs, turns, strangers = story
    sampling = GREEDY if greedy else Sampling(temperature=1)
    table, engine = PromptTable(CharacterText(), chunk=4), Engine()
    for number, (topic, _, _) in enumerate(runs):
        engine.apply(table.open_program(f"r{number}", chain(), {"topic": topic}))
    done = [0] * len(runs)
    for turn, number in enumerate(turns):
        topic, plan_text, draft_text = runs[number]
        step = done[number]
        request = [
            plan(topic, sampling=sampling),
            draft(plan_text, topic, sampling=sampling),
            call(
                ("user", f"Plan was {plan_text.strip()}. Draft was {draft_text}"),
                sampling=sampling,
            ),
        ][step]
        if turn < len(strangers):
            # No run's topic and no run's plan begins so.
            asked = f"x{strangers[turn]}"
            for strange in (plan(asked), draft(asked, topic), draft(plan_text, asked)):
                assert table.find(strange) is None
        task = ("plan", "draft", "review")[step]
        assert table.find(request) == (f"r{number}", task)
        assert step == 0 or table.take(f"r{number}", task) is not None
        finish(table, engine, task, (plan_text, draft_text, "")[step], program=f"r{number}")
        assert table.find(request) is None
        done[number] += 1
    assert table.counts["ambiguous"] == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from(["bees", "ants"]), min_size=1, max_size=3),
    st.lists(
        st.tuples(
            st.sampled_from(["bees", "ants", "a plan of some length", "a plan"]),
            st.sampled_from(["plan", "draft"]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=12,
    ),
)
def test_the_scripted_engine_finds_what_the_table_finds(
    topics: list[str], calls: list[tuple[str, str, bool, bool]]
) -> None:
    """Alike runs, strangers, failures, in any order: both say the same of each call."""
    answers: list[str | Exception] = []
    scripted = ScriptedEngine(lambda _: answers[-1], clock=VirtualClock())
    table, engine = PromptTable(CharacterText(), chunk=4), Engine()
    ids = {}
    for number, topic in enumerate(topics):
        ids[scripted.open_program(chain(), {"topic": topic})] = f"r{number}"
        engine.apply(table.open_program(f"r{number}", chain(), {"topic": topic}))
    for text, kind, greedy, fails in calls:
        sampling = GREEDY if greedy else Sampling(temperature=1)
        topic = text if kind == "plan" else topics[0]
        make = plan(topic, sampling=sampling)
        request = make if kind == "plan" else draft(text, topic, sampling=sampling)
        found = table.find(request)
        answers.append(OSError("gone") if fails else text)
        try:
            list(scripted.stream(request))
        except OSError:
            assert fails
        call = scripted.calls[-1]
        assert found == (None if call.program is None else (ids[call.program], call.task))
        if found is not None:
            engine.apply(table.call_started(*found))
            if not fails:
                engine.apply(table.call_text(*found, text, len(text)))
            engine.apply(table.call_finished(*found, complete=not fails))
            engine.apply(table.catch_up(found[0]))
