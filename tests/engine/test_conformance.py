"""Shapes of graphs on a real engine: with right flows and with wrong ones, token by token."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from grape_lc import ChatGrape, GrapeEngine, ScriptedEngine, TaskFlow, attach, to_taskflow
from grape_lc.engine.base import CallDelta, CallRequest
from tests.shapes import SHAPES, Shape
from tests.shapes.compare import comparable
from tests.shapes.coverage import play
from tests.shapes.wrong import WRONG

# Those that the engine sees differently: messages and bare text, calls one after the other, side by
# side, from threads without context, and again and again. All shapes run on the real host, without
# vLLM, in tests/unit/conformance.
NAMES = ("chain", "completion", "fan_out", "pool", "reflection")
CHOSEN = [shape for shape in SHAPES if shape.name in NAMES]
KINDS = tuple(WRONG)
TRIES = 12


@dataclass
class Seen:
    """What the engine was asked and said. answers: token ids of each call by node, sorted."""

    states: Any
    answers: list[tuple[str, tuple[int, ...]]]
    ahead: int


@dataclass
class Watcher:
    """Notes the tokens of each call, and how many of its prompt were there ahead."""

    tokens: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    labels: dict[int, str] = field(default_factory=dict)
    ahead: int = 0

    def __call__(self, call_id: int, request: CallRequest, delta: CallDelta) -> None:
        self.tokens[call_id] += delta.token_ids
        self.labels[call_id] = request.label or ""
        if delta.usage is not None:
            self.ahead += delta.usage.ahead_tokens


@contextmanager
def watched(engine: GrapeEngine) -> Iterator[Watcher]:
    watcher = Watcher()
    undo = engine.observe(watcher)
    try:
        yield watcher
    finally:
        undo()


def run(shape: Shape, engine: GrapeEngine, flow: TaskFlow | None) -> Seen:
    """The last run of a shape, from an empty prefix cache."""
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=12, ignore_eos=True)
    graph = shape.build(llm)
    if flow is not None:
        graph = attach(graph, flow, model=engine, learn=False)
    engine.reset_prefix_cache()
    with watched(engine) as watcher:
        states = play(graph, shape, shape.runs[-1], thread="t")
    answers = sorted((watcher.labels[i], tuple(ids)) for i, ids in watcher.tokens.items())
    return Seen(comparable(states), answers, watcher.ahead)


def flow_of(shape: Shape) -> TaskFlow:
    graph = shape.build(ChatGrape(engine=ScriptedEngine(shape.answer)))
    return to_taskflow(graph, example=shape.example)


def wrong_flow(shape: Shape, kind: str) -> TaskFlow:
    other = CHOSEN[(CHOSEN.index(shape) + 1) % len(CHOSEN)]
    return WRONG[kind](flow_of(shape), flow_of(other))


@pytest.mark.parametrize("shape", CHOSEN, ids=str)
def test_right_and_wrong_flows(shape: Shape, engine: GrapeEngine, quiet: object) -> None:
    expected = run(shape, engine, None)
    assert expected.ahead == 0
    assert len(expected.answers) >= len(shape.runs[-1].calls)
    # One of the wrong ones for each shape: every kind comes up.
    wrong = KINDS[CHOSEN.index(shape) % len(KINDS)]
    for kind, flow in [("right", flow_of(shape)), (wrong, wrong_flow(shape, wrong))]:
        seen = run(shape, engine, flow)
        assert seen.answers == expected.answers, kind
        assert seen.states == expected.states, kind


def test_learned_prompts(engine: GrapeEngine, quiet: object) -> None:
    """Runs before anything is known, while it is learned, and afterwards."""
    shape = next(shape for shape in CHOSEN if shape.name == "chain")
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=12, ignore_eos=True)
    graph = shape.build(llm)
    attached = attach(graph, model=engine, learned="memory")
    for given in shape.runs[:3]:
        engine.reset_prefix_cache()
        expected = comparable(play(graph, shape, given, thread="t"))
        engine.reset_prefix_cache()
        assert comparable(play(attached, shape, given, thread="t")) == expected


def test_work_was_done_ahead_at_all(engine: GrapeEngine, quiet: object) -> None:
    """Early work stops for a while when much of it came to nothing, as it did above."""
    shape = next(shape for shape in CHOSEN if shape.name == "chain")
    flow = flow_of(shape)
    assert any(run(shape, engine, flow).ahead > 0 for _ in range(TRIES))


async def test_runs_with_right_and_wrong_flows_at_once(engine: GrapeEngine, quiet: object) -> None:
    shape = next(shape for shape in CHOSEN if shape.name == "fan_out")
    llm = ChatGrape(engine=engine, temperature=0, max_tokens=12, ignore_eos=True)
    graph = shape.build(llm)
    inputs = [given.turns[0] for given in shape.runs]
    expected = [await graph.ainvoke(given) for given in inputs]
    engine.reset_prefix_cache()
    flows = [flow_of(shape), *(wrong_flow(shape, kind) for kind in KINDS)]
    graphs = [attach(graph, flow, model=engine, learn=False) for flow in flows]
    results = await asyncio.gather(
        *(attached.ainvoke(given) for attached, given in zip(graphs, inputs, strict=False))
    )
    assert results == expected[: len(results)]
