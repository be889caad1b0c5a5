"""Small LangGraph apps of every shape that users write, and what is measured on them."""

from __future__ import annotations

from tests.shapes import chains, choices, fans, loops, nested, talks, tools, values
from tests.shapes.shape import Run, Shape
from tests.shapes.unseen import UNSEEN

SHAPES: tuple[Shape, ...] = (
    *chains.SHAPES,
    *fans.SHAPES,
    *choices.SHAPES,
    *loops.SHAPES,
    *nested.SHAPES,
    *tools.SHAPES,
    *talks.SHAPES,
    *values.SHAPES,
)

__all__ = ["SHAPES", "UNSEEN", "Run", "Shape"]
