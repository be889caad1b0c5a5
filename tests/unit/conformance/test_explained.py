"""Every shape of graph can be explained, and its calls are all accounted for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grape_lc.adapters.explain_text import WIDTH
from tests.shapes import SHAPES, Shape
from tests.shapes.coverage import LEARNING, play
from tests.shapes.making import Source, make


@pytest.mark.parametrize("source", ["learned", "traced"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_shape_is_explained(shape: Shape, source: Source) -> None:
    made: Any = make(shape, source)
    graph, engine = made
    for number in range(LEARNING + 1):
        play(graph, shape, shape.runs[number], thread=str(number))
    found = graph.explain()
    # Calls that do not say which run they are of cannot be counted.
    seen = sum(call.last.calls for call in found.calls if call.last is not None)
    assert seen == len(engine.calls) or (shape.reach == "bare" and seen < len(engine.calls))
    flow = {call.task for call in found.calls if call.source != "none"}
    assert all(edge.upstream in flow and edge.downstream in flow for edge in found.edges)
    assert all(call.why for call in found.calls if call.source == "none")
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= WIDTH
    for call in found.calls:
        assert any(call.task in line for line in lines)
    assert found.to_html().count("<table>") == found.to_html().count("</table>")
