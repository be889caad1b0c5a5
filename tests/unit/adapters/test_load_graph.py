"""load_graph: what module:graph may be, and what is said when it is not."""

import sys
import textwrap

import pytest
from langgraph.pregel import Pregel

from grape_lc.adapters.load_graph import Target, load_graph
from grape_lc.errors import ConfigError, TraceError

MODULE = """
    from types import SimpleNamespace
    from typing import TypedDict
    from langgraph.func import entrypoint
    from langgraph.graph import START, StateGraph

    class State(TypedDict):
        x: str

    def node(state):
        return {"x": "y"}

    builder = StateGraph(State).add_node("n", node).add_edge(START, "n")
    graph = builder.compile(name="compiled")
    holder = SimpleNamespace(graph=graph)
    empty = StateGraph(State)
    number = 3

    def make():
        return builder

    def make_of(config):
        assert config == {"configurable": {}}
        return graph

    async def make_later():
        return graph

    def fail():
        raise KeyError("nothing")

    def needs(one, two):
        return graph

    @entrypoint()
    def function(x):
        return x
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "an_app.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "a-script.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "a_pkg").mkdir()
    (tmp_path / "a_pkg" / "__init__.py").touch()
    (tmp_path / "a_pkg" / "app.py").write_text("from .near import graph\n")
    (tmp_path / "a_pkg" / "near.py").write_text("from an_app import graph\n")
    (tmp_path / "beside.py").write_text("from an_app import graph\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    "target",
    [
        "an_app:graph",
        "an_app:builder",
        "an_app:holder.graph",
        "an_app:make",
        "an_app:make_of",
        "an_app:make_later",
        "an_app:function",
        "a_pkg.app:graph",
        "an_app.py:graph",
        "a-script.py:graph",
        "./beside.py:graph",
    ],
)
def test_a_graph_is_found_and_compiled(folder, target):
    assert isinstance(load_graph(target, folder), Pregel)


async def test_it_is_found_from_within_an_event_loop(folder):
    assert load_graph("an_app:make_later", folder).name == "compiled"


@pytest.mark.parametrize(
    ("target", "error", "says"),
    [
        ("an_app:nothing", ConfigError, "graphs in it: builder, graph, empty, function"),
        ("an_app:number", ConfigError, "is no LangGraph graph but int"),
        ("an_app:State", ConfigError, "is no LangGraph graph but"),
        ("an_app:empty", TraceError, "does not compile"),
        ("an_app:fail", TraceError, "KeyError: 'nothing'"),
        ("an_app:needs", TraceError, "TypeError"),
        ("no_such_app:graph", ConfigError, "no module 'no_such_app'"),
        ("a_pkg.none:graph", ConfigError, "no module 'a_pkg.none'"),
        ("none.py:graph", ConfigError, "no file"),
        ("graph", ConfigError, "module:graph"),
        ("an_app:", ConfigError, "module:graph"),
        ("an app:graph", ConfigError, "module:graph"),
        ("", ConfigError, "module:graph"),
    ],
)
def test_what_is_wrong_is_said(folder, target, error, says):
    with pytest.raises(error) as caught:
        load_graph(target, folder)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import no_such_package", "no_such_package"),
        ("raise ValueError('bad setting')", "ValueError: bad setting"),
        ("def broken(:", "SyntaxError"),
        ("import sys; sys.exit('no arguments')", "SystemExit: no arguments"),
    ],
)
@pytest.mark.parametrize("target", ["a_bad_app:graph", "a_bad_app.py:graph"])
def test_a_module_that_fails_is_told_with_its_error(folder, code, says, target):
    (folder / "a_bad_app.py").write_text(code)
    with pytest.raises(TraceError, match="cannot be imported") as caught:
        load_graph(target, folder)
    assert says in str(caught.value)
    assert "a_bad_app" not in sys.modules


def test_a_target_is_written_as_it_was_given():
    assert str(Target.parse("C/x.py:a.b")) == "C/x.py:a.b"
