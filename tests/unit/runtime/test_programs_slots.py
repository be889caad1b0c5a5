"""Open prompts whose slots go through transducers, whatever the answer turns out to be."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grape_lc.flow import IntermediateVar, Literal_, OutputVar, PromptTemplate, TaskFlow
from grape_lc.runtime.programs import PromptTable
from grape_lc.runtime.splicer import HOLD_BACK, settled
from tests.unit.runtime.tables import CharacterText, Engine

steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

SPECS = (
    *("identity", "strip", "repr", "json_escape_ascii", "after_think|strip"),
    *("json:plan", "json:plan|strip", "json:steps.1", "after_think|json:plan|repr"),
)
words = st.text(st.sampled_from("ab \n'\"\\é"), max_size=8)
documents = st.builds(
    lambda plan, steps, more: json.dumps({"plan": plan, "steps": steps, "more": more}),
    words,
    st.lists(words, max_size=3),
    words,
)
answers = st.builds(
    lambda head, body, tail: head + body + tail,
    st.sampled_from(["", " ", "<think>so</think>\n", "```json\n"]),
    st.one_of(documents, words, documents.map(lambda text: text[: len(text) // 2])),
    st.sampled_from(["", "\n", "\n```"]),
)


def flow_of(specs: list[str]) -> TaskFlow:
    """One call reads the answer of another one, several times."""
    flow = TaskFlow(name="slots")
    flow.add_variable(IntermediateVar("one"))
    flow.add_variable(OutputVar("two"))
    flow.add_task([("user", "One")], "one")
    slots = "".join(f"<{{one|{spec}}}>" for spec in specs)
    flow.add_task([("system", "Go."), ("user", f"S{slots}E")], "two")
    return flow


def known_of(prompt: PromptTemplate, answer: str) -> tuple[str, bool]:
    """The text that the prompt must have in the end, and whether it is all of it."""
    rendered = ""
    for role, segments in prompt.sections:
        rendered += f"<{role}>"
        for segment in segments:
            if isinstance(segment, Literal_):
                rendered += segment.text
                continue
            stream = segment.transducer.stream()
            rendered += stream.feed(answer) + stream.finish()
            if stream.stopped:
                return rendered, False
        rendered += "</>"
    return f"{rendered}<ai>", True


@steady
@given(st.data(), st.lists(st.sampled_from(SPECS), min_size=1, max_size=4), answers)
def test_what_is_prepared_is_right_and_as_much_as_can_be(
    data: st.DataObject, specs: list[str], answer: str
) -> None:
    flow = flow_of(specs)
    expected, whole = known_of(flow.task("two").prompt, answer)
    table, engine = PromptTable(CharacterText(), chunk=1), Engine()
    engine.apply(table.open_program("p", flow, {}))
    engine.apply(table.call_started("p", "one"))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=8)))
    for start, end in pairwise([0, *cuts, len(answer)]):
        engine.apply(table.call_text("p", "one", answer[start:end], 1))
        table.validate()
        assert expected.startswith(engine.text("two")), "what was prepared stands"
    engine.apply(table.call_finished("p", "one", complete=True))
    engine.apply(table.catch_up("p"))
    table.validate()
    text = engine.text("two")
    assert expected.startswith(text)
    assert bool(engine.final) == whole
    # What is not certain to be the end is held back: white space and the like, and a few tokens.
    least = settled(expected, CharacterText.markers) - HOLD_BACK
    assert text == expected if whole else len(text) >= least
    assert table.counts["slot_stopped"] == (not whole)
    assert table.take("p", "two") is not None


@steady
@given(documents, st.sampled_from(["json:plan", "json:plan|strip"]))
def test_a_field_is_followed_by_the_next_while_the_answer_goes_on(answer: str, spec: str) -> None:
    flow = flow_of([spec, "json:more"])
    table, engine = PromptTable(CharacterText(), chunk=1), Engine()
    engine.apply(table.open_program("p", flow, {}))
    engine.apply(table.call_started("p", "one"))
    engine.apply(table.call_text("p", "one", answer.removesuffix("}"), 1))
    expected, whole = known_of(flow.task("two").prompt, answer)
    assert whole
    assert engine.text("two") == expected, "the answer has not ended"
    assert engine.final
