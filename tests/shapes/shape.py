"""What a shape is: a small LangGraph app as users write them, and what it is run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grape_lc import ChatGrape
from grape_lc.engine.base import CallRequest
from tests.shapes.answers import reply


@dataclass(frozen=True)
class Run:
    """One thread of conversation with an app.

    turns: what the graph is given, one after the other; a ``Command`` goes on with a run.
    calls: the model's calls that these make, by node (``node#2`` for its second call in the run),
        in order; of an app whose branches run side by side, in the order of the alphabet.
    """

    turns: tuple[Any, ...]
    calls: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """An app, to be run plain and attached.

    build: a compiled graph whose nodes call the model that is given.
    runs: at least four. The first two are for learning, the others are held out.
    answer: what the model says to a request; it depends on the prompt, so that a wrong prompt
        shows in everything behind it.
    example: of an input, for a trace; None: the input's schema is enough.
    parallel: branches run side by side, and LangGraph gives them no order.
    sync: whether it can be invoked without an event loop.
    reach: ``graph``: every call is known to belong to a node; ``bare``: some are made in threads
        that got no context.
    outside: how a text begins that comes from elsewhere than tools, models and inputs; "": none.
    """

    name: str
    build: Callable[[ChatGrape], Any]
    runs: tuple[Run, ...]
    answer: Callable[[CallRequest], str] = reply
    example: Any = None
    parallel: bool = False
    sync: bool = True
    reach: str = "graph"
    outside: str = ""

    def __str__(self) -> str:
        return self.name


def runs(calls: tuple[str, ...], *inputs: Any) -> tuple[Run, ...]:
    """Runs of one turn each, all with the same calls."""
    return tuple(Run((given,), calls) for given in inputs)
