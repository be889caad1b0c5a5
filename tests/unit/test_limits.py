"""Every limit holds at the entrances, and says its value and how to raise it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from grape_lc import ChatGrape, GrapeEngine, ScriptedEngine, limits
from grape_lc.adapters.flow_file import load_flow_file
from grape_lc.adapters.template_store import TemplateStore
from grape_lc.engine.base import CallRequest
from grape_lc.engine.call_limits import check_call
from grape_lc.errors import (
    ConfigError,
    FlowError,
    FlowFormatError,
    FlowInputError,
    GrapeError,
    PromptTooLongError,
    RequestError,
)
from grape_lc.flow import (
    InputVar,
    IntermediateVar,
    NewestVar,
    OutputVar,
    PromptTemplate,
    Sampling,
    TaskFlow,
    template,
    transducers,
)
from grape_lc.limits import Limit
from grape_lc.runtime import wire
from grape_lc.runtime.programs import PromptTable
from grape_lc.strict_json import StrictJSONError, read_json
from tests.unit.runtime.tables import CharacterText

ALL = {name: value for name, value in vars(limits).items() if isinstance(value, Limit)}


def test_a_limit_has_the_name_of_its_constant():
    assert {name: limit.name for name, limit in ALL.items()} == {name: name for name in ALL}
    assert [field.name for field in fields(Limit)] == ["name", "default", "unit"]


def test_the_environment_overrides_a_limit(monkeypatch):
    monkeypatch.setenv("GRAPE_MOST_FLOW_TASKS", "2000")
    assert limits.FLOW_TASKS.value == 2000
    monkeypatch.delenv("GRAPE_MOST_FLOW_TASKS")
    assert limits.FLOW_TASKS.value == limits.FLOW_TASKS.default


@pytest.mark.parametrize("given", ["", "0", "-1", "many", "1e3", "٣", "9" * 30])
def test_an_override_that_is_no_number_is_refused(monkeypatch, given):
    monkeypatch.setenv("GRAPE_MOST_FLOW_TASKS", given)
    with pytest.raises(ConfigError, match="GRAPE_MOST_FLOW_TASKS"):
        _ = limits.FLOW_TASKS.value


def flow_of(tasks: int, reads: int = 1) -> dict[str, Any]:
    """A flow in which every task reads so many inputs."""
    inputs = [{"name": f"i{n}", "kind": "input"} for n in range(reads)]
    prompt = "".join(f"{{i{n}}}" for n in range(reads))
    return {
        "version": 1,
        "variables": inputs + [{"name": f"o{n}", "kind": "output"} for n in range(tasks)],
        "tasks": [
            {"name": f"t{n}", "prompt": {"text": prompt}, "output": f"o{n}"} for n in range(tasks)
        ],
    }


def newest(of: int, tasks: int) -> TaskFlow:
    flow = TaskFlow()
    names = [flow.add_variable(InputVar(f"i{n}")).name for n in range(of)]
    flow.add_variable(NewestVar("n", of=tuple(names)))
    for number in range(tasks):
        flow.add_task("{n}", flow.add_variable(OutputVar(f"o{number}")))
    return flow


def called(**fields_: Any) -> None:
    check_call(CallRequest(**{"text": "x", **fields_}))


CASES = {
    "FILE_BYTES": (10, StrictJSONError, lambda: read_json("[1, 2, 3, 4, 5]")),
    "JSON_DEPTH": (3, StrictJSONError, lambda: read_json("[[[[1]]]]")),
    "JSON_VALUES": (3, StrictJSONError, lambda: read_json("[1, 2, 3]")),
    "FLOW_TASKS": (2, FlowFormatError, lambda: TaskFlow.from_data(flow_of(3))),
    "FLOW_VARIABLES": (2, FlowFormatError, lambda: TaskFlow.from_data(flow_of(2))),
    "FLOW_READS": (5, FlowFormatError, lambda: TaskFlow.from_data(flow_of(2, reads=3))),
    "TEXT_CHARS": (5, FlowError, lambda: PromptTemplate(text="abcdef")),
    "PROMPT_PIECES": (3, FlowError, lambda: PromptTemplate(text="{a}{b}{c}{d}")),
    "SLOT_STAGES": (2, FlowError, lambda: PromptTemplate(text="{a|strip|strip|repr}")),
    "PATH_PARTS": (2, FlowError, lambda: PromptTemplate(text="{a|json:a.b.c}")),
    "CALL_MESSAGES": (1, RequestError, lambda: called(text=None, messages=({"role": "user"},) * 2)),
    "CALL_TOOLS": (1, RequestError, lambda: called(tools=({}, {}))),
    "STOP_TEXTS": (1, RequestError, lambda: called(sampling=Sampling(stop=("a", "b")))),
    "NAME_CHARS": (3, RequestError, lambda: called(tenant="abcd")),
    "LINE_BYTES": (30, RequestError, lambda: wire.encode({"t": "call", "req": "x" * 30})),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_over_a_limit_is_refused_with_its_value_and_its_name(monkeypatch, name):
    value, error, action = CASES[name]
    action()
    monkeypatch.setenv(f"GRAPE_MOST_{name}", str(value))
    # What was parsed under the old limit is kept.
    template._parsed_and_kept.cache_clear()
    transducers._parsed_and_kept.cache_clear()
    with pytest.raises(error, match=rf"\b{value}\b.*GRAPE_MOST_{name}"):
        action()


def test_every_limit_is_tried_here():
    elsewhere = {"ENGINE_PROGRAMS", "ENGINE_PROMPTS", "PROGRAM_PROMPTS", "RESULT_BYTES"}
    assert set(CASES) | elsewhere == set(ALL)


@pytest.mark.parametrize(
    ("name", "value", "action"),
    [
        ("FLOW_READS", 5, lambda: newest(of=3, tasks=2)),
        ("FLOW_TASKS", 1, lambda: newest(of=2, tasks=2)),
        ("FLOW_VARIABLES", 3, lambda: newest(of=2, tasks=1)),
    ],
)
def test_a_flow_that_is_built_has_the_same_limits(monkeypatch, name, value, action):
    action()
    monkeypatch.setenv(f"GRAPE_MOST_{name}", str(value))
    with pytest.raises(FlowFormatError, match=f"GRAPE_MOST_{name}"):
        action()


def test_inputs_and_calls_have_the_limit_of_texts(monkeypatch):
    flow = TaskFlow()
    flow.add_variable(InputVar("a"))
    flow.add_task("{a}", flow.add_variable(OutputVar("o")))
    monkeypatch.setenv("GRAPE_MOST_TEXT_CHARS", "10")
    with pytest.raises(FlowInputError, match="'a': 11 characters, more than the limit of 10"):
        flow.check_inputs({"a": "x" * 11})
    for request in (
        {"text": "x" * 11},
        {"text": None, "token_ids": (1,) * 11},
        {"text": None, "messages": ({"role": "user", "content": [{"text": "x" * 11}]},)},
        {"tools": ({"name": "x" * 11},)},
        {"sampling": Sampling(structured_outputs={"regex": "x" * 11})},
    ):
        with pytest.raises(PromptTooLongError, match="limit of 10"):
            called(**request)


def test_files_that_are_too_large_are_not_read(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("GRAPE_MOST_FILE_BYTES", "20")
    path = tmp_path / "flow.json"
    path.write_text(json.dumps(flow_of(1)))
    with pytest.raises(FlowFormatError, match=r"flow.json: more than 20 bytes"):
        load_flow_file(path)
    with pytest.raises(FlowFormatError, match="more than 20 bytes"):
        load_flow_file("/dev/zero")
    assert TemplateStore(path, "g", "s", content=False).load() is None
    assert "more than 20 bytes" in caplog.text


def test_what_is_too_deep_for_json_is_no_call():
    value: Any = "x"
    for _ in range(300):
        value = [value]
    with pytest.raises(RequestError, match="structured_outputs: 101 levels"):
        called(sampling=Sampling(structured_outputs={"json": value}))


def chain(tasks: int) -> TaskFlow:
    """A first task, and others that read its answer."""
    flow = TaskFlow()
    flow.add_task("begin", flow.add_variable(IntermediateVar("first")))
    for number in range(tasks):
        output = flow.add_variable(OutputVar(f"o{number}"))
        flow.add_task(f"known text {number} {{first}}", output)
    return flow


def test_a_program_opens_no_more_prompts_than_the_limit(monkeypatch):
    monkeypatch.setenv("GRAPE_MOST_PROGRAM_PROMPTS", "2")
    table = PromptTable(CharacterText())
    assert len(table.open_program("p", chain(3), {})) == 2
    assert table.counts["skipped_prompts"] == 1
    assert len(table.open_program("q", chain(3), {})) == 2


def test_an_engine_opens_no_more_prompts_and_programs_than_the_limits(monkeypatch):
    monkeypatch.setenv("GRAPE_MOST_ENGINE_PROMPTS", "4")
    table = PromptTable(CharacterText())
    assert [len(table.open_program(name, chain(3), {})) for name in "pqr"] == [3, 1, 0]
    assert table.counts["skipped_prompts"] == 5
    table.close_program("p")
    assert len(table.open_program("s", chain(3), {})) == 3
    monkeypatch.setenv("GRAPE_MOST_ENGINE_PROGRAMS", "3")
    assert table.open_program("t", chain(3), {}) == []
    assert "t" not in table
    assert table.counts["skipped_programs"] == 1


def test_inputs_that_are_too_long_are_not_prepared(monkeypatch):
    monkeypatch.setenv("GRAPE_MOST_TEXT_CHARS", "50")
    table = PromptTable(CharacterText())
    assert table.open_program("p", chain(1), {"first": "x" * 51}) == []
    assert table.counts["skipped_long_inputs"] == 1


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ({"detokenize": False}, "extra has 'detokenize': how an answer is delivered"),
        ({"prompt_logprobs": 5}, "extra has 'prompt_logprobs': what it asks for is not returned"),
        ({"_all_stop_token_ids": [1]}, "extra has '_all_stop_token_ids': it is vLLM's own"),
        ({"bad_words": "abc"}, "bad_words='abc': write a list of texts"),
        ({"bad_words": ["a", 5]}, "write a list of texts"),
    ],
)
def test_options_that_have_no_place_are_refused(extra, says):
    engine = ScriptedEngine("answer")
    with pytest.raises(RequestError, match=says):
        list(engine.stream(CallRequest(text="hi", sampling=Sampling(extra=extra))))
    with pytest.raises(RequestError, match=says):
        ChatGrape(engine=engine).invoke("hi", extra=extra)


@pytest.mark.parametrize("inputs", [None, 5, ["a"], "a"])
def test_inputs_that_are_no_mapping_are_refused(inputs):
    flow = TaskFlow()
    flow.add_task("go", flow.add_variable(OutputVar("o")))
    with pytest.raises(FlowInputError, match=type(inputs).__name__):
        flow.run_sync(ScriptedEngine("x"), inputs)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"b": [{"a": 1, "x": 0, "a": 1}]}', "the key 'a' stands twice"),
        ("[NaN]", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[1e999]", "the number 1e999 is too large"),
        ("9" * 5000, "digits"),
        ("9" * 100, "a whole number of 333 bits"),
        ('["\\ud800"]', "half of a surrogate pair"),
        ('{"\\udc00": 1}', "half of a surrogate pair"),
        (b"[\xff]", "utf-8"),
        ("[" * 200 + "]" * 200, "levels"),
        ("[" * 100_000, "levels"),
        ("", "Expecting value"),
        ('{"a": 1} x', "Extra data"),
    ],
)
def test_json_that_leaves_open_what_it_says_is_refused(text, says):
    with pytest.raises(StrictJSONError, match=says):
        read_json(text)


@pytest.mark.parametrize("value", [None, True, 1.5, -7, 2**64, "ä\U0001f600", [], {}, {"a": [{}]}])
def test_all_other_json_is_read_as_ever(value):
    for ascii_only in (True, False):
        text = json.dumps(value, ensure_ascii=ascii_only)
        assert read_json(text) == read_json(text.encode()) == value
    assert read_json(b"\xef\xbb\xbf[]") == []


@pytest.mark.parametrize("kind", ["circle", "deep", "keys"])
def test_engine_arguments_that_cannot_be_sent_are_refused(kind):
    value: Any = {}
    if kind == "circle":
        value["x"] = value
    elif kind == "keys":
        value = {1: 1, "a": 2}
    else:
        for _ in range(100_000):
            value = [value]
    with pytest.raises(ConfigError, match="plain data"):
        GrapeEngine("m", progress=False, odd=value)
    while isinstance(value, list):  # or the end of it would be too deep as well
        value = value[0]


def test_errors_of_limits_are_of_our_tree():
    with pytest.raises(GrapeError):
        limits.FLOW_TASKS.check(10**6, "a flow", FlowFormatError)


@pytest.mark.parametrize("message", [{}, {"content": "hi"}, {"role": None, "content": "hi"}])
def test_a_message_without_a_role_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="message 1 of the call has no role"):
        check_call(CallRequest(messages=({"role": "user", "content": "x"}, message)))
