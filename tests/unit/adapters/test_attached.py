"""An attached graph is a graph of its own class with one method more."""

from __future__ import annotations

import copy
import pickle
from typing import Any, TypedDict

from langgraph.channels import LastValue
from langgraph.graph import START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.pregel import NodeBuilder, Pregel

from grape_lc import attach
from grape_lc.adapters.attached import as_attached, is_attached
from grape_lc.adapters.explained import GraphExplanation
from grape_lc.flow import TaskFlow


class Word(TypedDict, total=False):
    word: str


def shout(state: Word) -> Word:
    return {"word": state["word"].upper()}


def plain() -> Any:
    return StateGraph(Word).add_node("shout", shout).add_edge(START, "shout").compile()


def test_the_class_is_as_it_was_but_for_explain(team: Any, team_flow: TaskFlow) -> None:
    attached = attach(team, team_flow)
    assert isinstance(attached, CompiledStateGraph)
    assert isinstance(attached, type(team))
    assert (type(attached).__name__, type(attached).__qualname__) == (
        type(team).__name__,
        type(team).__qualname__,
    )
    assert isinstance(attached.explain(), GraphExplanation)
    # The graph that was given is left alone, and so is its class.
    assert not is_attached(team)
    assert not hasattr(CompiledStateGraph, "explain")
    assert not hasattr(Pregel, "explain")


def test_copies_keep_it_and_no_attribute_is_added(team: Any, team_flow: TaskFlow) -> None:
    attached: Any = attach(team, team_flow)
    assert attached.__dict__.keys() == team.copy().__dict__.keys()
    for other in (
        attached.with_config(tags=["x"]),
        attached.copy(),
        copy.copy(attached),
        attach(attached),
    ):
        assert type(other) is type(attached)
        assert isinstance(other.explain(), GraphExplanation)


def test_each_class_has_one_attached_class(team: Any) -> None:
    class Own(CompiledStateGraph):
        pass

    own = Own(**plain().__dict__)
    one, two = as_attached(copy.copy(own)), as_attached(copy.copy(own))
    assert type(one) is type(two)
    assert isinstance(one, Own)
    assert type(one) is not type(as_attached(plain()))


def test_it_is_attached_once() -> None:
    graph = as_attached(plain())
    cls = type(graph)
    assert type(as_attached(graph)) is cls


def test_it_runs_and_is_a_node_of_another_graph() -> None:
    graph = as_attached(plain())
    assert graph.invoke({"word": "a"}) == {"word": "A"}
    outer = StateGraph(Word).add_node("inner", graph).add_edge(START, "inner").compile()
    assert outer.invoke({"word": "b"}) == {"word": "B"}


def test_it_is_pickled_as_the_graph_is() -> None:
    graph: Any = Pregel(
        nodes={"n": NodeBuilder().subscribe_only("a").do(str.upper).write_to("b")},
        channels={"a": LastValue(str), "b": LastValue(str)},
        input_channels="a",
        output_channels="b",
    )
    attached = as_attached(graph.copy())
    again = pickle.loads(pickle.dumps(attached))  # noqa: S301
    assert type(again) is type(attached)
    assert is_attached(again)
    assert again.nodes.keys() == graph.nodes.keys()
