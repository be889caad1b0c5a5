"""Flow files: written and read back, refused with a reason, checked against a graph."""

import json
import logging
from typing import TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.graph import START, StateGraph

from grape_lc import (
    ChatGrape,
    InputVar,
    OutputVar,
    Sampling,
    ScriptedEngine,
    Targets,
    TaskFlow,
    to_taskflow,
)
from grape_lc.adapters.flow_file import (
    Effect,
    FlowFile,
    MadeWith,
    check_fresh,
    load_flow_file,
    save_flow_file,
)
from grape_lc.adapters.source_hash import source_hash
from grape_lc.errors import ConfigError, FlowError, FlowFormatError, TraceError
from tests.shapes import SHAPES, Shape


def a_flow(prompt: str = "Say {x}") -> TaskFlow:
    flow = TaskFlow(name="f")
    flow.add_variable(InputVar("x"))
    flow.add_task([("user", prompt)], flow.add_variable(OutputVar("y")), max_tokens=3)
    return flow


def a_file(**changes) -> FlowFile:
    return FlowFile(
        **{
            "graph": "app:graph",
            "source_hash": "0" * 64,
            "made_with": MadeWith.here(),
            "flow": a_flow(),
            **changes,
        }
    )


texts = st.text(st.characters(codec="utf-8"))


@given(node=st.none() | texts, what=texts, warnings=st.lists(texts, max_size=3))
def test_what_is_written_is_read(node, what, warnings):
    effect = Effect(node=node, kind="file", event="open", what=what, where="a.py:1")
    file = a_file(denied=(effect,), confined=(effect, effect), warnings=tuple(warnings))
    assert FlowFile.from_json(file.to_json()) == file
    assert FlowFile.from_json(file.to_json()).to_json() == file.to_json()


def test_a_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "flow.json"
    path.write_text("old")
    save_flow_file(a_file(), path)
    assert load_flow_file(path) == a_file()
    assert [p.name for p in tmp_path.iterdir()] == ["flow.json"]
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert list(json.loads(path.read_text())) == [
        "format",
        "graph",
        "source_hash",
        "made_with",
        "warnings",
        "denied",
        "confined",
        "flow",
    ]


def test_a_bare_flow_is_taken(tmp_path):
    path = tmp_path / "flow.json"
    path.write_text(a_flow().to_json())
    file = load_flow_file(path)
    assert file.flow == a_flow()
    assert file.source_hash is None


def test_a_mark_of_an_editor_in_front_is_no_content(tmp_path):
    path = tmp_path / "flow.json"
    path.write_bytes(b"\xef\xbb\xbf" + a_file().to_json().encode())
    assert load_flow_file(path) == a_file()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: data.update(format=2), "format 2"),
        (lambda data: data.update(format=True), "format True"),
        (lambda data: data.update(format=1.0), "format 1.0"),
        (lambda data: data.pop("format"), "format None"),
        (lambda data: data.update(more=1), "more"),
        (lambda data: data.update(denied=[{"node": "n"}]), "Effect: kind"),
        (lambda data: data["flow"].update(tasks=3), "tasks"),
        (lambda data: data.pop("flow"), "'graph'"),
    ],
)
def test_other_content_is_refused_with_the_reason(tmp_path, change, says):
    path = tmp_path / "flow.json"
    data = json.loads(a_file().to_json())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(FlowFormatError, match=r"flow\.json: ") as caught:
        load_flow_file(path)
    assert says in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000])
def test_what_is_no_json_object_is_refused(tmp_path, content):
    path = tmp_path / "flow.json"
    path.write_bytes(content)
    with pytest.raises(FlowError, match=r"flow\.json"):
        load_flow_file(path)


def test_what_cannot_be_read_or_written_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match=r"nothing\.json"):
        load_flow_file(tmp_path / "nothing.json")
    with pytest.raises(ConfigError, match="No such file"):
        save_flow_file(a_file(), tmp_path / "no folder" / "flow.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="folder"):
        save_flow_file(a_file(), tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


class State(TypedDict):
    x: str


def node(state: State) -> State:
    return {"x": "Say it"}


def other(state: State) -> State:
    return {"x": "Say something else"}


def graph_of(function):
    return StateGraph(State).add_node("n", function).add_edge(START, "n").compile()


def test_another_state_of_the_code_is_warned_of_once_and_named(caplog):
    now, changed = source_hash(graph_of(node)), source_hash(graph_of(other))
    file = a_file(source_hash=now)
    with caplog.at_level(logging.WARNING, logger="grape_lc"):
        assert check_fresh(file, "g", now, "f.json")
        assert check_fresh(a_file(source_hash=None), "g", changed, "f.json")
        assert not caplog.records
        assert not check_fresh(file, "g", changed, "f.json")
    assert "grape trace app:graph -o f.json" in caplog.text


@settings(max_examples=50)
@given(
    max_tokens=st.none() | st.integers(1, 99),
    stop=st.lists(texts.filter(bool), max_size=2),
    extra=st.dictionaries(texts, st.none() | st.booleans() | st.just("") | st.lists(st.none())),
    ttft_s=st.none() | st.floats(0.1, 9),
    description=texts,
)
def test_what_is_not_set_is_not_written_and_comes_back(
    max_tokens, stop, extra, ttft_s, description
):
    flow = TaskFlow(targets=Targets(ttft_s=ttft_s))
    flow.add_variable(InputVar("x", description=description))
    flow.add_variable(OutputVar("y"))
    sampling = Sampling(max_tokens=max_tokens, stop=tuple(stop), extra=extra)
    flow.add_task("{x}", "y", sampling=sampling, targets=Targets(tbt_s=ttft_s))
    file = a_file(flow=flow)
    assert FlowFile.from_json(file.to_json()) == file
    if not extra:
        assert "null" not in file.to_json()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_flow_of_every_shape_comes_back(shape: Shape):
    graph = shape.build(ChatGrape(engine=ScriptedEngine("")))
    try:
        flow = to_taskflow(graph, example=shape.example)
    except TraceError:
        pytest.skip("this one cannot be traced")
    assert FlowFile.from_json(a_file(flow=flow).to_json()).flow == flow
