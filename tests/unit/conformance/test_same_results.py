"""An attached graph shows to the outside what the graph itself does."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from grape_lc import ScriptedEngine
from grape_lc.adapters.callsite import numbered
from tests.shapes import SHAPES, UNSEEN, Shape
from tests.shapes.compare import comparable, config_of, events, history, streamed
from tests.shapes.coverage import LEARNING, play
from tests.shapes.making import Source, make

# A graph is made and run in every way; the first runs are those that teach.
SOURCES: tuple[Source, ...] = ("learned", "traced")
HELD_OUT = range(LEARNING, LEARNING + 2)

ALL = (*SHAPES, *UNSEEN)

shapes = pytest.mark.parametrize("shape", ALL, ids=str)
shapes_and_ways = pytest.mark.parametrize(
    ("shape", "use_async"),
    [
        pytest.param(shape, use_async, id=f"{shape}-{'async' if use_async else 'sync'}")
        for shape in ALL
        for use_async in (False, True)
        if use_async or shape.sync
    ],
)
sources = pytest.mark.parametrize("source", SOURCES)


def prepared(shape: Shape, source: Source) -> tuple[Any, ScriptedEngine]:
    """A graph that has had the runs that teach, whether it learns or not."""
    graph, engine = make(shape, source)
    for number in range(LEARNING):
        play(graph, shape, shape.runs[number], thread=f"early {number}")
    return graph, engine


@shapes
def test_each_shape_makes_the_calls_that_it_says(shape: Shape) -> None:
    graph, engine = make(shape, "plain")
    for number, run in enumerate(shape.runs):
        before = len(engine.calls)
        play(graph, shape, run, thread=str(number))
        counts: Counter[str] = Counter()
        made = [numbered(call.request.label or "model", counts) for call in engine.calls[before:]]
        assert tuple(sorted(made) if shape.parallel else made) == (
            tuple(sorted(run.calls)) if shape.parallel else run.calls
        )
    assert len({call.prompt for call in engine.calls}) > len(engine.calls) / 2
    assert engine.programs == ()


@sources
@shapes_and_ways
def test_streams_and_checkpoints(shape: Shape, source: Source, use_async: bool) -> None:
    plain, _ = prepared(shape, "plain")
    attached, engine = prepared(shape, source)
    for number in HELD_OUT:
        thread = str(number)
        seen = [
            streamed(graph, shape, shape.runs[number], thread, use_async=use_async)
            for graph in (plain, attached)
        ]
        assert len(seen[0]) > 1
        assert seen[1] == seen[0]
        assert history(attached, thread) == history(plain, thread)
    assert engine.open_programs == ()


@sources
@shapes
def test_events(shape: Shape, source: Source) -> None:
    plain, _ = prepared(shape, "plain")
    attached, engine = prepared(shape, source)
    run = shape.runs[LEARNING]
    expected = events(plain, shape, run, "t")
    assert len(expected) > 2 * len(run.turns)
    assert events(attached, shape, run, "t") == expected
    assert engine.open_programs == ()


@sources
@shapes_and_ways
def test_batches(shape: Shape, source: Source, use_async: bool) -> None:
    inputs = [run.turns[0] for run in shape.runs]
    configs = [config_of(f"batch {number}") for number in range(len(inputs))]
    results = []
    for wanted in ("plain", source):
        graph, engine = prepared(shape, wanted)
        if use_async:
            states = asyncio.run(graph.abatch(inputs, configs))
        else:
            states = graph.batch(inputs, configs)
        assert engine.open_programs == ()
        results.append([comparable(states), [history(graph, f"batch {n}") for n in range(2)]])
    assert results[1] == results[0]


@pytest.mark.parametrize("source", ["traced", "learned"])
def test_programs_are_opened_at_all(source: Source) -> None:
    """The tests above compare graphs that really are different."""
    without = set[str]()
    for shape in ALL:
        graph, engine = prepared(shape, source)
        play(graph, shape, shape.runs[LEARNING], thread="t")
        if not engine.programs:
            without.add(shape.name)
    assert without == set()
