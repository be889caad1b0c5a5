"""Answers that turn out to be read as JSON."""

from __future__ import annotations

import json

from langchain_core.exceptions import OutputParserException

from grape_lc.adapters.markers import marker
from grape_lc.adapters.trace_documents import Documents

CALLS = {4: "plan 0"}


def error_of(text: str) -> json.JSONDecodeError:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error
    raise AssertionError("this is JSON")


def test_a_text_becomes_an_object_with_the_keys_that_were_missed() -> None:
    documents = Documents()
    assert documents.answer("plan 0", 4) is None
    assert documents.learn(error_of(f"{marker(4)}"), CALLS)
    found = documents.answer("plan 0", 4)
    assert found is not None
    assert json.loads(found.text) == {}
    assert documents.learn(KeyError("goal"), CALLS)
    found = documents.answer("plan 0", 4)
    assert found is not None
    assert json.loads(found.text) == {"goal": marker(4, ("goal",))}
    assert documents.answer("other", 5) is None


def test_what_teaches_nothing() -> None:
    documents = Documents()
    assert not documents.learn(KeyError("goal"), CALLS)  # no answer is known to be an object
    assert not documents.learn(error_of("no marker in it"), CALLS)
    assert not documents.learn(error_of(marker(5)), CALLS)  # not the answer of a call
    assert not documents.learn(None, CALLS)
    assert documents.learn(error_of(marker(4)), CALLS)
    assert not documents.learn(error_of(marker(4)), CALLS)
    assert documents.learn(KeyError("goal"), CALLS)
    assert not documents.learn(KeyError("goal"), CALLS)
    assert not documents.learn(KeyError(3), CALLS)


def test_the_cause_of_another_error() -> None:
    documents = Documents()
    wrapped = OutputParserException("no JSON", llm_output=marker(4).strip())
    outer = RuntimeError("the node failed")
    outer.__cause__ = wrapped
    assert documents.learn(outer, CALLS)
