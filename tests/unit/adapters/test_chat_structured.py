"""Answers of a given form."""

from __future__ import annotations

import json
from typing import Any, TypedDict

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage
from pydantic import BaseModel, ValidationError

from grape_lc import ChatGrape, ScriptedEngine
from grape_lc.errors import RequestError


class Plan(BaseModel):
    """A plan."""

    title: str
    steps: list[str] = []


class PlanDict(TypedDict):
    """A plan."""

    title: str


TEXT = '{"title": "read it", "steps": ["open", "read"]}'
PLAN = Plan(title="read it", steps=["open", "read"])
CALL = '{"name": "Plan", "arguments": ' + TEXT + "}"


def look_up(word: str) -> str:
    """Look a word up."""
    return word


def llm_of(script: Any, **settings: Any) -> ChatGrape:
    return ChatGrape(engine=ScriptedEngine(script), **settings)


def rules(llm: ChatGrape) -> dict[str, Any]:
    assert isinstance(llm.engine, ScriptedEngine)
    found = llm.engine.calls[-1].request.sampling.structured_outputs
    assert found is not None
    return found


async def test_a_pydantic_class_gives_its_objects() -> None:
    llm = llm_of(TEXT)
    chain = llm.with_structured_output(Plan)
    assert chain.invoke("hi") == await chain.ainvoke("hi") == PLAN
    assert rules(llm) == {"json": Plan.model_json_schema()}
    *_, last = chain.stream("hi")
    assert last == PLAN


@pytest.mark.parametrize(
    "schema",
    [
        PlanDict,
        Plan.model_json_schema(),
        {"type": "object", "properties": {"title": {"type": "string"}}},
        {"name": "plan", "description": "d", "parameters": {"type": "object", "properties": {}}},
    ],
)
def test_other_schemas_give_dictionaries(schema: Any) -> None:
    llm = llm_of(TEXT)
    chain = llm.with_structured_output(schema)
    assert chain.invoke("hi") == json.loads(TEXT)
    assert rules(llm)["json"]["type"] == "object"
    parts = list(chain.stream("hi"))
    assert parts[-1] == json.loads(TEXT)
    assert len(parts) > 1


def test_function_calling_forces_a_call() -> None:
    llm = llm_of(CALL)
    assert llm.with_structured_output(Plan, method="function_calling").invoke("hi") == PLAN
    assert rules(llm)["json"]["properties"]["name"] == {"const": "Plan"}
    assert isinstance(llm.engine, ScriptedEngine)
    assert [t["function"]["name"] for t in llm.engine.calls[0].request.tools] == ["Plan"]
    schema = Plan.model_json_schema()
    chain = llm.with_structured_output(schema, method="function_calling", strict=True)
    assert chain.invoke("hi") == json.loads(TEXT)


def test_json_mode_goes_without_a_schema() -> None:
    llm = llm_of(TEXT)
    assert llm.with_structured_output(method="json_mode").invoke("hi") == json.loads(TEXT)
    assert rules(llm) == {"json": {"type": "object"}}
    assert llm.with_structured_output(Plan, method="json_mode").invoke("hi") == PLAN
    assert rules(llm) == {"json": Plan.model_json_schema()}


def test_the_raw_message_can_be_had_too() -> None:
    good = llm_of(TEXT).with_structured_output(Plan, include_raw=True).invoke("hi")
    assert (good["raw"].content, good["parsed"], good["parsing_error"]) == (TEXT, PLAN, None)
    bad = llm_of('{"steps": 3}').with_structured_output(Plan, include_raw=True).invoke("hi")
    assert (bad["raw"].content, bad["parsed"]) == ('{"steps": 3}', None)
    assert isinstance(bad["parsing_error"], OutputParserException)


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
@pytest.mark.parametrize("schema", [Plan, Plan.model_json_schema()])
def test_an_answer_that_was_cut_short_is_no_object(method: Any, schema: Any) -> None:
    text = CALL if method == "function_calling" else TEXT
    chain = llm_of(text, max_tokens=3).with_structured_output(schema, method=method)
    with pytest.raises(OutputParserException, match=r"ends at max_tokens.*3 tokens"):
        chain.invoke("hi")
    with pytest.raises(OutputParserException, match="ends at max_tokens"):
        list(chain.stream("hi"))


def test_tools_beside_a_schema() -> None:
    call = '<tool_call>\n{"name": "look_up", "arguments": {"word": "cat"}}\n</tool_call>'
    llm = llm_of([call, TEXT, call])
    chain = llm.with_structured_output(Plan, tools=[look_up], include_raw=True)
    called = chain.invoke("hi")
    assert (called["parsed"], called["parsing_error"]) == (None, None)
    assert called["raw"].tool_calls[0]["args"] == {"word": "cat"}
    form = json.loads(rules(llm)["structural_tag"])["format"]
    answer, tag = form["elements"]
    assert answer == {"type": "json_schema", "json_schema": Plan.model_json_schema()}
    assert (tag["begin"], tag["end"]) == ("<tool_call>\n", "\n</tool_call>")
    assert chain.invoke("hi")["parsed"] == PLAN
    assert llm.with_structured_output(Plan, tools=[look_up]).invoke("hi") is None


def test_a_forced_tool_comes_before_the_schema() -> None:
    llm = llm_of('{"name": "look_up", "arguments": {"word": "cat"}}')
    bound = llm.bind_tools([look_up], tool_choice="any", response_format=Plan)
    assert bound.invoke("hi").tool_calls
    assert rules(llm)["json"]["properties"]["name"] == {"const": "look_up"}


@pytest.mark.parametrize(
    ("response_format", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"json": {"type": "object"}}),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "array"}}},
            {"json": {"type": "array"}},
        ),
        (Plan, {"json": Plan.model_json_schema()}),
    ],
)
def test_response_formats(response_format: Any, expected: Any) -> None:
    llm = llm_of(TEXT)
    assert isinstance(llm.invoke("hi", response_format=response_format), AIMessage)
    assert isinstance(llm.engine, ScriptedEngine)
    assert llm.engine.calls[0].request.sampling.structured_outputs == expected


def test_vllms_other_constraints_are_an_option() -> None:
    llm = llm_of("yes", structured_outputs={"choice": ["yes", "no"]})
    llm.invoke("hi")
    assert rules(llm) == {"choice": ["yes", "no"]}
    with pytest.raises(RequestError, match=r"response_format and structured_outputs=.*choice"):
        llm.invoke("hi", response_format={"type": "json_object"})
    with pytest.raises(RequestError, match="tool_choice and structured_outputs"):
        llm.bind_tools([look_up], tool_choice="any").invoke("hi")


def test_what_is_no_schema_is_refused() -> None:
    llm = llm_of(TEXT)
    with pytest.raises(RequestError, match=r"method='xml'; known: 'json_schema'"):
        llm.with_structured_output(Plan, method="xml")  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="needs a schema"):
        llm.with_structured_output(None)
    with pytest.raises(RequestError, match="3 is no schema"):
        llm.with_structured_output(3)
    with pytest.raises(RequestError, match="need method='json_schema', got 'json_mode'"):
        llm.with_structured_output(Plan, method="json_mode", tools=[look_up])
    with pytest.raises(RequestError, match="has no schema; the form is"):
        llm.invoke("hi", response_format={"type": "json_schema"})
    with pytest.raises(ValidationError, match="structured_outputs"):
        ChatGrape(structured_outputs=3)


class Options(BaseCallbackHandler):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.seen.append(kwargs["options"]["ls_structured_output_format"])


def test_traces_show_the_schema() -> None:
    options = Options()
    chain = llm_of(TEXT).with_structured_output(Plan)
    chain.invoke("hi", {"callbacks": [options]})
    (seen,) = options.seen
    assert seen["kwargs"] == {"method": "json_schema", "strict": None}
    assert seen["schema"]["title"] == "Plan"
