"""How much of a prompt that was sent its template had foretold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.adapters.flow_builder import TEXT
from grape_lc.adapters.foretold import Foretold, foretold
from grape_lc.flow.template import PromptTemplate, literal_to_template

PROMPT = PromptTemplate.of([("system", "Be brief."), ("user", "Do {plan|strip} and {other}!")])
VALUES = {"plan": " it all\n", "other": "more"}
SENT = (("system", "Be brief."), ("user", "Do it all and more!"))


def test_all_of_it() -> None:
    assert foretold(PROMPT, VALUES, SENT) == Foretold(28, 28)
    assert foretold(PROMPT, VALUES, SENT).share == 1


@pytest.mark.parametrize(
    ("values", "sent", "covered", "differs"),
    [
        # A value that is not known ends what is foretold, and is no mistake.
        ({"plan": " it all\n"}, SENT, 23, None),
        ({}, SENT, 12, None),
        # A value that was not known to the template is a mistake.
        (VALUES, (SENT[0], ("user", "Do it and more!")), 16, (2, 8)),
        (VALUES, (("system", "Be long."), SENT[1]), 3, (1, 4)),
        (VALUES, (("user", "Be brief."), SENT[1]), 0, (1, 1)),
        # Another end.
        (VALUES, (SENT[0], ("user", "Do it all and more!?")), 28, (2, 20)),
        (VALUES, (SENT[0], ("user", "Do it all and more")), 27, (2, 19)),
        (VALUES, SENT[:1], 9, (2, 1)),
        (VALUES, (*SENT, ("user", "Now!")), 28, (3, 1)),
        # What no template can hold is not held against it.
        (VALUES, (SENT[0], ("assistant", None)), 9, (2, 1)),
        (VALUES, (SENT[0], ("user", None)), 9, None),
    ],
)
def test_up_to_the_first_difference(values: Any, sent: Any, covered: int, differs: Any) -> None:
    match = foretold(PROMPT, values, sent)
    assert (match.covered, match.differs) == (covered, differs)
    assert match.total == sum(len(text or "") for _, text in sent)


def test_prompts_that_are_no_chat() -> None:
    prompt = PromptTemplate(text="def {name}")
    assert foretold(prompt, {"name": "f"}, ((TEXT, "def f"),)) == Foretold(5, 5)
    assert foretold(prompt, {"name": "f"}, (("user", "def f"),)).differs == (1, 1)


def test_tools_stand_in_front() -> None:
    tools = ({"type": "function", "function": {"name": "look"}},)
    shown = PROMPT.model_copy(update={"tools": tools})
    assert foretold(shown, VALUES, SENT, tools) == Foretold(28, 28)
    assert foretold(shown, VALUES, SENT) == Foretold(0, 28, (1, 1))
    assert foretold(PROMPT, VALUES, SENT, tools) == Foretold(0, 28, (1, 1))


@given(st.text("ab{} ", min_size=1), st.text("ab{} "))
def test_covered_is_the_common_start(text: str, other: str) -> None:
    prompt = PromptTemplate.of([("user", literal_to_template(text))])
    match = foretold(prompt, {}, (("user", other),))
    assert text[: match.covered] == other[: match.covered]
    assert (match.differs is None) == (text == other)
    if match.differs is not None:
        assert match.differs == (1, match.covered + 1)
        assert text[: match.covered + 1] != other[: match.covered + 1]
