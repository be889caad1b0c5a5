from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.answers import contains, exact_match, normalised
from grape_lc.bench.quality import answer_scorer


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Loop\n", "loop"),
        ("a man, a plan; the end.", "man plan end"),
        ("__init__()", "init"),
        ("Another theatre", "another theatre"),
        ("U.S.A.", "usa"),
        ("", ""),
    ],
)
def test_texts_are_normalised_as_hotpotqa_does(text: str, normal: str):
    assert normalised(text) == normal


@pytest.mark.parametrize(
    ("answer", "expected", "exact", "within"),
    [
        ("The break statement.", "break statement", True, True),
        ("break", "break statement", False, False),
        ("It is the break-statement, break statement", "break statement", False, True),
        ("13 men", "3", False, False),
        ("3 men", "3", False, True),
        ("yes", "no", False, False),
        ("%", "%", True, True),
        ("the % sign", "%", False, True),
        ("sign", "%", False, False),
        ("", "x", False, False),
    ],
)
def test_answers_are_compared(answer: str, expected: str, exact: bool, within: bool):
    assert exact_match(answer, expected) is exact
    assert contains(answer, expected) is within


@given(st.text(max_size=30), st.text(max_size=30))
def test_an_answer_that_matches_contains(answer: str, expected: str):
    if exact_match(answer, expected):
        assert contains(answer, expected)
    assert exact_match(answer, answer)
    assert normalised(normalised(answer)) == normalised(answer)


def test_scores_add_up():
    score = answer_scorer({"article": "x", "more": "x", "other": "x"}, "answer", str)
    assert score is not None
    states = {
        "article": {"answer": "a x"},
        "more": {"answer": "y x"},
        "other": {"answer": "z"},
    }
    assert score(states) == {
        "answers_checked": 3,
        "answers_exact": 1,
        "answers_containing": 2,
    }
    assert score({}) == {"answers_checked": 0, "answers_exact": 0, "answers_containing": 0}
