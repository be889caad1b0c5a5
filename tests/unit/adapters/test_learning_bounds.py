"""What learning may cost: the caller of a graph waits for it, and its memory is the process's."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters import agreement, learning
from grape_lc.adapters.agreement import symbolic
from grape_lc.adapters.learning import Learner, SeenCall
from grape_lc.adapters.markers import Found


def history_run(
    calls: int, words: int, chance: random.Random
) -> tuple[dict[str, str], list[SeenCall]]:
    """An agent's run whose prompts are all that was said so far."""

    def text() -> str:
        return " ".join(str(chance.randrange(10**6)) for _ in range(words))

    said = [text()]
    seen = []
    for number in range(calls):
        prompt = "Go on.\n" + "\n".join(said)
        answer = text()
        seen.append(SeenCall(f"n{number}", [{"role": "user", "content": prompt}], answer))
        said.append(answer)
    return {"topic": said[0]}, seen


def test_the_search_of_a_run_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []

    def counted(text: str, forms: Any) -> Any:
        searched.append(len(text) * len(forms))
        return symbolic(text, forms)

    monkeypatch.setattr(learning, "symbolic", counted)
    chance, learner = random.Random(1), Learner("agent")
    for _ in range(2):
        searched.clear()
        learner.watch(*history_run(60, 400, chance))
        assert 0 < sum(searched) <= learning._MOST_SEARCHED
    assert learner.flow is not None
    assert 5 < len(learner.flow.tasks) < 60


def test_what_was_too_much_is_learned_when_the_calls_before_it_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "_MOST_SEARCHED", 200_000)
    chance, learner = random.Random(1), Learner("agent")
    known = []
    for _ in range(6):
        learner.watch(*history_run(12, 20, chance))
        known.append(0 if learner.flow is None else len(learner.flow.tasks))
    assert 0 < known[1] < known[-1]


def test_the_flow_is_no_larger_than_can_be_built_soon() -> None:
    chance, learner = random.Random(1), Learner("agent")
    for _ in range(2):
        learner.watch(*history_run(100, 5, chance))
    assert learner.flow is not None
    slots = sum(len(task.prompt.slots) for task in learner.flow.tasks)
    assert 0 < slots <= learning._MOST_PARTS


def test_names_of_inputs_that_nobody_reads_are_forgotten() -> None:
    learner = Learner("graph")
    for run in range(400):
        inputs = {"topic": f"the topic {run}"} | {
            f"docs_{run}_{number}": f"a text {run} {number}" for number in range(20)
        }
        call = SeenCall("n", [{"role": "user", "content": f"On {inputs['topic']}!"}], "an answer")
        learner.watch(inputs, [call])
    assert len(learner._numbers) <= learning._MOST_NAMES + 20
    assert learner.flow is not None
    assert [var.name for var in learner.flow.variables if var.kind == "input"] == ["topic"]


def test_a_number_is_not_given_twice_after_names_were_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "_MOST_NAMES", 2)
    learner = Learner("graph")
    for run in range(3):
        inputs = {f"x{run}_{number}": f"a text {run} {number}" for number in range(4)}
        inputs |= {"topic": f"the topic {run}", "kind": f"the kind {run}"}
        prompt = f"On {inputs['topic']}: {inputs['kind']}"
        learner.watch(inputs, [SeenCall("n", [{"role": "user", "content": prompt}], "an answer")])
    assert len(set(learner._numbers.values())) == len(learner._numbers)
    assert learner.flow is not None
    assert learner.flow.tasks[0].prompt.variables == ("topic", "kind")


@given(
    st.text("ab\U000f0000\U000f0001", max_size=30),
    st.lists(st.text("ab\U000f0000\U000f0001", min_size=1, max_size=4), max_size=5, unique=True),
)
def test_values_are_found_as_by_splitting_part_by_part(text: str, forms: list[str]) -> None:
    found = [(form, Found(number)) for number, form in enumerate(forms)]
    expected = agreement._split(text, found) if text else ()
    assert symbolic(text, found) == expected


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab\U000f0000", min_size=1, max_size=4), max_size=5, unique=True),
)
def test_a_stand_in_is_no_text_of_the_prompt(text: str, forms: list[str]) -> None:
    found = [(form, Found(number)) for number, form in enumerate(forms)]
    expected = agreement._split(text, found) if text else ()
    assert symbolic(text, found) == expected
