"""Graphs of every shape on scripted engines, plain and attached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from grape_lc import ChatGrape, ScriptedEngine, attach, to_taskflow
from grape_lc.engine.base import CallRequest
from tests.shapes.compare import with_checkpoints
from tests.shapes.shape import Shape

Source = Literal["plain", "learned", "traced"]
Answers = Callable[[CallRequest], Any]


def make(
    shape: Shape, source: Source, engine: ScriptedEngine | None = None
) -> tuple[Any, ScriptedEngine]:
    """A graph of a shape with a checkpointer, attached or not, and its engine."""
    engine = engine or ScriptedEngine(shape.answer)
    graph = with_checkpoints(shape.build(ChatGrape(engine=engine)))
    if source == "learned":
        graph = attach(graph)
    elif source == "traced":
        graph = attach(graph, to_taskflow(graph, example=shape.example), learn=False)
    return graph, engine
