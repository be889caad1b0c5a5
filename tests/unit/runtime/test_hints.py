"""Where a call stands in its flow, and what its request adds."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.base import CallRequest
from grape_lc.flow import InputVar, OutputVar, TaskFlow
from grape_lc.runtime.hints import FlowShape, with_targets
from grape_lc.scheduler.types import NO_HINT, Hint


def flow_of(reads: list[list[int]], name: str = "flow") -> TaskFlow:
    """A flow whose task ``k`` reads the outputs of the tasks ``reads[k]``."""
    flow = TaskFlow(name=name)
    flow.add_variable(InputVar("topic"))
    for number in range(len(reads)):
        flow.add_variable(OutputVar(f"v{number}"))
    for number, sources in enumerate(reads):
        slots = " ".join(f"{{v{source}}}" for source in sources)
        flow.add_task(f"{{topic}} {slots}", f"v{number}", name=f"t{number}")
    return flow


graphs = st.integers(1, 7).flatmap(
    lambda size: st.tuples(
        *(st.lists(st.integers(0, k - 1), unique=True) if k else st.just([]) for k in range(size))
    ).map(list)
)


@given(graphs)
def test_after_is_a_way_down_that_cannot_be_longer(reads: list[list[int]]) -> None:
    flow = flow_of(reads)
    shape = FlowShape.of(flow)
    for task in flow.order():
        hint = shape.hint(task.name)
        assert hint.depth == flow.depth(task)
        way = [task.name, *hint.after]
        for upper, lower in itertools.pairwise(way):
            assert lower in flow.downstream(upper)
        longest = max((len(shape.hint(t).after) + 1 for t in flow.downstream(task)), default=0)
        assert len(hint.after) == longest


def test_flows_are_the_same_only_with_the_same_tasks_and_edges() -> None:
    chain = FlowShape.of(flow_of([[], [0], [1]])).name
    assert chain == FlowShape.of(flow_of([[], [0], [1]])).name
    others = [flow_of([[], [0], [0]]), flow_of([[], [0]]), flow_of([[], [0], [1]], "other")]
    assert chain not in {FlowShape.of(flow).name for flow in others}


def test_a_long_flow_names_only_the_next_tasks() -> None:
    shape = FlowShape.of(flow_of([[], *([k] for k in range(99))]))
    after = shape.hint("t0").after
    assert after == tuple(f"t{k}" for k in range(1, 1 + len(after)))
    assert len(after) < 99


def test_the_request_adds_its_targets() -> None:
    request = CallRequest(text="x", program="p", task="t", tenant="me", ttft_s=0.5, deadline_s=9)
    hint = with_targets(Hint(flow="f", depth=2), request)
    assert hint == Hint(
        program="p", flow="f", task="t", tenant="me", depth=2, ttft_s=0.5, deadline_s=9
    )
    assert with_targets(NO_HINT, CallRequest(text="x")) is NO_HINT
