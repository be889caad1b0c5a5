"""Lowering: the micro-tasks of known flows, and graphs that break a rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from grape_lc.errors import ConfigError, CycleError, FlowError, NeverReadError
from grape_lc.flow import (
    Edge,
    InputVar,
    IntermediateVar,
    Literal_,
    MicroTask,
    MicroTaskGraph,
    OutputVar,
    Slot,
    TaskFlow,
    lower,
)


def two_stages() -> TaskFlow:
    flow = TaskFlow()
    flow.add_variable(InputVar("goal"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("code"))
    flow.add_task([("system", "Plan."), ("user", "{goal}")], "plan", name="P")
    flow.add_task(
        [("system", "Code."), ("user", "Plan: {plan} Goal: {goal} Go."), ("user", "{plan}")],
        "code",
        name="C",
    )
    return flow


def test_a_prompt_is_cut_at_the_slots_of_upstream_tasks_only():
    graph = lower(two_stages(), chunk=8)
    assert graph.nodes == (
        MicroTask("P/prefill:0", "P", "prefill", (Literal_("Plan."), Slot("goal")), "static"),
        MicroTask("P/decode", "P", "decode", (), "dynamic"),
        MicroTask("C/prefill:0", "C", "prefill", (Literal_("Code."), Literal_("Plan: ")), "static"),
        MicroTask("C/prefill:1", "C", "prefill", (Slot("plan"),), "dynamic"),
        MicroTask(
            "C/prefill:2",
            "C",
            "prefill",
            (Literal_(" Goal: "), Slot("goal"), Literal_(" Go.")),
            "static",
        ),
        MicroTask("C/prefill:3", "C", "prefill", (Slot("plan"),), "dynamic"),
        MicroTask("C/decode", "C", "decode", (), "dynamic"),
    )
    assert set(graph.edges) == {
        Edge("P/prefill:0", "P/decode", "strong"),
        Edge("P/decode", "C/prefill:1", "partial", 8),
        Edge("P/decode", "C/prefill:3", "partial", 8),
        Edge("C/prefill:0", "C/prefill:1", "strong"),
        Edge("C/prefill:1", "C/prefill:2", "strong"),
        Edge("C/prefill:2", "C/prefill:3", "strong"),
        Edge("C/prefill:3", "C/decode", "strong"),
    }
    assert len(graph.edges) == 7


def test_hops_count_the_edges_to_the_next_decode():
    assert lower(two_stages()).hops() == {
        "P/prefill:0": 1,
        "P/decode": 0,
        "C/prefill:0": 4,
        "C/prefill:1": 3,
        "C/prefill:2": 2,
        "C/prefill:3": 1,
        "C/decode": 0,
    }


def test_micro_tasks_follow_the_flow_s_order_and_not_the_declaration():
    flow = TaskFlow(
        variables=(IntermediateVar("x"), OutputVar("o")),
        tasks=tuple(two_tasks_backwards()),
    )
    assert [node.id for node in lower(flow).nodes] == [
        *("first/prefill:0", "first/decode"),
        *("last/prefill:0", "last/decode"),
    ]


def two_tasks_backwards():
    flow = TaskFlow(variables=(IntermediateVar("x"), OutputVar("o")))
    yield flow.add_task("{x}", "o", name="last")
    yield flow.add_task("go", "x", name="first")


def test_only_a_valid_flow_is_lowered():
    flow = two_stages()
    flow.add_variable(InputVar("unused"))
    with pytest.raises(NeverReadError, match="'unused'"):
        lower(flow)


@pytest.mark.parametrize("chunk", [0, -1])
def test_a_partial_edge_hands_over_something(chunk):
    with pytest.raises(ConfigError, match=f"chunk is {chunk}"):
        lower(two_stages(), chunk=chunk)


# -- graphs that break a rule ---------------------------------------------------------------


def without(graph, *edges):
    return replace(graph, edges=tuple(e for e in graph.edges if (e.src, e.dst) not in edges))


def with_(graph, *edges):
    return replace(graph, edges=graph.edges + edges)


def with_node(graph, node_id, **changes):
    nodes = tuple(replace(n, **changes) if n.id == node_id else n for n in graph.nodes)
    return replace(graph, nodes=nodes)


GOOD = lower(two_stages())
STRONG = ("C/prefill:0", "C/prefill:1")
PARTIAL = ("P/decode", "C/prefill:1")


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (replace(GOOD, nodes=(*GOOD.nodes, GOOD.nodes[0])), "more than once: P/prefill:0"),
        (with_(GOOD, Edge("C/decode", "Q/decode", "strong")), "joins 'Q/decode', which is not"),
        (with_(GOOD, Edge("P/decode", "C/prefill:0", "strong")), "joins the tasks 'P' and 'C'"),
        (
            with_(without(GOOD, STRONG), Edge(*STRONG, "strong", 4)),
            "has a weight",
        ),
        (
            with_(GOOD, Edge("P/prefill:0", "C/prefill:1", "partial", 4)),
            "goes from a static prefill to a dynamic prefill",
        ),
        (
            with_(GOOD, Edge("P/decode", "C/prefill:0", "partial", 4)),
            "goes from a dynamic decode to a static prefill",
        ),
        (
            with_(GOOD, Edge("P/decode", "C/decode", "partial", 4)),
            "goes from a dynamic decode to a dynamic decode",
        ),
        (
            with_(without(GOOD, PARTIAL), Edge("C/decode", "C/prefill:1", "partial", 4)),
            "stays inside task 'C'",
        ),
        (with_(without(GOOD, PARTIAL), Edge(*PARTIAL, "partial")), "no weight of at least 1"),
        (with_(without(GOOD, PARTIAL), Edge(*PARTIAL, "partial", 0)), "no weight of at least 1"),
        (without(GOOD, PARTIAL), "'C/prefill:1' is fed by 0 partial edges, not 1"),
        (with_(GOOD, Edge(*PARTIAL, "partial", 4)), "'C/prefill:1' is fed by 2 partial edges"),
        (with_node(GOOD, "P/prefill:0", kind="decode"), "task 'P' has 2 decodes, not 1"),
        (
            MicroTaskGraph((GOOD.nodes[0],), ()),
            "task 'P' has 0 decodes, not 1",
        ),
        (without(GOOD, STRONG), "task 'C' is not one chain of strong edges that ends in"),
        (
            with_(GOOD, Edge("C/prefill:0", "C/prefill:2", "strong")),
            "task 'C' is not one chain",
        ),
        (
            with_(
                without(GOOD, ("C/prefill:2", "C/prefill:3")),
                Edge("C/prefill:0", "C/prefill:3", "strong"),
            ),
            "task 'C' is not one chain",
        ),
        (
            with_(without(GOOD, STRONG), Edge("C/prefill:0", "C/prefill:2", "strong")),
            "task 'C' is not one chain",
        ),
        (
            with_(
                without(GOOD, ("P/prefill:0", "P/decode")),
                Edge("P/decode", "P/prefill:0", "strong"),
            ),
            "task 'P' is not one chain of strong edges that ends in 'P/decode'",
        ),
    ],
)
def test_validate_names_the_rule_that_is_broken(graph, said):
    with pytest.raises(FlowError) as caught:
        graph.validate()
    assert said in str(caught.value)


def test_validate_refuses_cycles():
    graph = with_(GOOD, Edge("C/prefill:2", "C/prefill:1", "strong"))
    with pytest.raises(CycleError, match="C/prefill:1, C/prefill:2"):
        graph.validate()


def test_a_lowered_graph_and_an_empty_one_are_valid():
    GOOD.validate()
    MicroTaskGraph((), ()).validate()
    assert MicroTaskGraph((), ()).hops() == {}
