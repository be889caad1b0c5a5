"""Flows: their JSON, the files of ``grape trace``, templates."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given, settings
from hypothesis import strategies as st

from grape_lc.adapters.flow_file import FlowFile, load_flow_file
from grape_lc.flow import (
    Literal_,
    PromptTemplate,
    TaskFlow,
    literal_to_template,
    lower,
    parse_template,
    parse_transducer,
)
from tests.fuzz.hostile import anything, cut, damaged, documents, texts, value_or_ours

FLOW = {
    "version": 1,
    "name": "f",
    "variables": [
        {"name": "a", "kind": "input", "description": "asked"},
        {"name": "d", "kind": "input", "opaque": True},
        {"name": "plan", "kind": "intermediate"},
        {"name": "other", "kind": "intermediate"},
        {"name": "n", "kind": "newest", "of": ["plan", "other"]},
        {"name": "o", "kind": "output"},
    ],
    "tasks": [
        {
            "name": "plan",
            "prompt": {"messages": [{"role": "user", "content": "Plan {a}"}]},
            "output": "plan",
            "sampling": {"max_tokens": 5, "stop": ["x"], "extra": {"min_p": 0.1}},
            "targets": {"ttft_s": 0.5},
        },
        {"name": "other", "prompt": {"text": "{a|repr}"}, "output": "other"},
        {
            "name": "o",
            "prompt": {
                "messages": [
                    {"role": "system", "content": "{{brief}}"},
                    {"role": "user", "content": "{n|json:steps.0.do|strip} {d}"},
                ],
                "tools": [{"type": "function", "function": {"name": "t"}}],
            },
            "output": "o",
        },
    ],
    "targets": {"deadline_s": 9},
}
FLOW_FILE = {
    "format": 1,
    "graph": "app:graph",
    "source_hash": "0" * 64,
    "made_with": {"grape_lc": "1", "langgraph": "1", "langchain_core": "1"},
    "warnings": ["w"],
    "denied": [
        {"node": None, "kind": "file", "event": "open", "what": "x", "where": "a.py:1"},
    ],
    "confined": [],
    "flow": FLOW,
}


def use(flow: TaskFlow) -> None:
    """What is done with a flow that was read."""
    value_or_ours(flow.validate_flow)
    value_or_ours(flow.order)
    value_or_ours(lambda: lower(flow))
    value_or_ours(lambda: flow.explain({}))
    again = value_or_ours(flow.to_json)
    assert again is not None, "what was read cannot be written"
    assert TaskFlow.from_json(again) == flow


@settings(max_examples=80)
@given(documents(FLOW))
@example(b'{"version":1,"version":2,"tasks":[]}')
@example(b'{"version":1,"name":"\\ud800"}')
@example(b'{"version":1,"targets":{"ttft_s":1e999}}')
@example(b'{"version":1,"targets":{"ttft_s":' + b"9" * 4000 + b"}}")
def test_flow_json(data):
    flow = value_or_ours(lambda: TaskFlow.from_json(data))
    if flow is not None:
        use(flow)


@settings(max_examples=60)
@given(documents(FLOW_FILE) | documents(FLOW))
def test_flow_files(data):
    with TemporaryDirectory() as folder:
        path = Path(folder) / "flow.json"
        path.write_bytes(data)
        file = value_or_ours(lambda: load_flow_file(path))
    if file is not None:
        assert FlowFile.from_json(file.to_json()) == file


@settings(max_examples=60)
@given(st.data())
def test_templates(data):
    text = data.draw(damaged("Say {x|strip} and {{y}} to {z|json:a.0.b|repr}", most=3))
    segments = value_or_ours(lambda: parse_template(text))
    value_or_ours(lambda: PromptTemplate(text=text))
    if segments is not None:
        kinds = [type(segment) for segment in segments]
        assert (Literal_, Literal_) not in pairwise(kinds)
    literal = data.draw(texts)
    parsed = parse_template(literal_to_template(literal))
    assert parsed == ((Literal_(literal),) if literal else ())


@settings(max_examples=60)
@given(anything)
def test_prompts_of_any_kind(prompt):
    value_or_ours(lambda: PromptTemplate.of(prompt))
    flow = TaskFlow.from_json(json.dumps({**FLOW, "tasks": []}))
    value_or_ours(lambda: flow.add_task(prompt, "o"))
    value_or_ours(lambda: flow.add_task("go", "o", name="t", extra={"x": prompt}))


@settings(max_examples=40)
@given(anything, anything)
def test_inputs_of_any_kind(inputs, text):
    flow = TaskFlow.from_json(json.dumps(FLOW))
    value_or_ours(lambda: flow.check_inputs(inputs))
    value_or_ours(lambda: flow.check_inputs({"a": text, "d": ""}))
    value_or_ours(lambda: flow.explain(inputs if isinstance(inputs, dict) else {"a": text}))


SPECS = st.lists(
    st.sampled_from(
        (
            *("strip", "lstrip", "rstrip", "after_think", "repr", "identity"),
            *("json_escape", "json_escape_ascii", "json:a", "json:a.b", "json:0.a", "json:%20.x"),
        )
    ),
    min_size=1,
    max_size=3,
).map("|".join)
DOCUMENT = 'Sure:\n```json\n{"x": [1, {"y": null}], "a": {"b": "t\\u00e4\\ud83d\\ude00 \\n"}}\n```'


@settings(max_examples=150)
@given(st.data())
def test_transducers_on_what_a_model_writes(data):
    """In any pieces the text is the same as at once, and what fits at once is never stopped."""
    transducer = parse_transducer(data.draw(SPECS))
    value = data.draw(damaged(DOCUMENT, most=4) | damaged('{"a": "1"}') | texts)
    whole = value_or_ours(lambda: transducer.apply(value))
    stream = transducer.stream()
    text = "".join(stream.feed(piece) for piece in data.draw(cut(value))) + stream.finish()
    assert stream.complete or stream.stopped
    if whole is None:
        assert stream.stopped or stream.complete
    else:
        assert text == whole
        assert stream.complete


@given(texts)
def test_any_transducer_name(spec):
    value_or_ours(lambda: parse_template(f"{{x|{spec}}}"))
