"""Variables: names, kinds and what a constructor says of bad data."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from grape_lc.errors import FlowError, FlowFormatError
from grape_lc.flow import InputVar, IntermediateVar, OutputVar
from grape_lc.flow.variables import AnyVariable


@pytest.mark.parametrize(
    ("cls", "kind"),
    [(InputVar, "input"), (IntermediateVar, "intermediate"), (OutputVar, "output")],
)
def test_name_is_positional_or_keyword_and_the_class_gives_the_kind(cls, kind):
    assert cls("prd") == cls(name="prd")
    assert cls("prd").kind == kind
    assert cls("prd", description="the product's requirements").description


def test_kinds_are_never_equal():
    assert len({InputVar("x"), IntermediateVar("x"), OutputVar("x")}) == 3


@pytest.mark.parametrize("name", ["", "a b", "1a", "a-b", "a|b", "{a}", "a.b"])
def test_a_name_that_cannot_be_a_slot_is_refused(name):
    with pytest.raises(FlowFormatError, match="not an identifier") as caught:
        InputVar(name)
    assert repr(name) in str(caught.value)


def test_names_may_be_words_of_any_language():
    assert OutputVar("réponse").name == "réponse"


def test_variables_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        InputVar("x").name = "y"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "name: Field required"),
        ({"name": 3}, "name: Input should be a valid string (got 3)"),
        ({"name": "x", "size": 3}, "size: Extra inputs"),
        ({"name": "x", "kind": "output"}, "kind: Input should be 'input' (got 'output')"),
    ],
)
def test_bad_data_is_a_flow_error_that_names_the_field(data, said):
    with pytest.raises(FlowError) as caught:
        InputVar(**data)
    assert said in str(caught.value)


def test_a_variable_is_read_back_as_its_own_class():
    adapter = TypeAdapter(AnyVariable)
    for var in (InputVar("a"), IntermediateVar("b", description="d"), OutputVar("c")):
        assert adapter.validate_json(var.model_dump_json()) == var
