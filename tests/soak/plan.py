"""Which programs a soak runs, and what goes wrong in which: drawn from a seed."""

from __future__ import annotations

import random
from enum import StrEnum
from typing import NamedTuple


class Shape(StrEnum):
    """What a program's calls wait for."""

    ONE = "one"
    CHAIN = "chain"
    FAN_OUT = "fan_out"
    FAN_IN = "fan_in"


class Way(StrEnum):
    """What runs a program: a TaskFlow, or a LangGraph graph.

    DECLARED is attached with its flow, LEARNED with nothing, BLOCKING has nodes that are no
    coroutines.
    """

    TASKFLOW = "taskflow"
    DECLARED = "declared"
    LEARNED = "learned"
    BLOCKING = "blocking"


class Fault(StrEnum):
    """What goes wrong in a program."""

    CANCELLED_IN_CALL = "cancelled_in_call"
    CANCELLED_BETWEEN_CALLS = "cancelled_between_calls"
    CANCELLED_AT_START = "cancelled_at_start"
    READER_STOPS = "reader_stops"
    ABANDONED = "abandoned"
    NODE_RAISES = "node_raises"
    PROMPT_TOO_LONG = "prompt_too_long"
    BAD_SAMPLING = "bad_sampling"
    TIMEOUT = "timeout"
    NEVER_CALLED = "never_called"
    OTHER_INPUTS = "other_inputs"


class Job(NamedTuple):
    """One program. sampled: its calls draw their tokens, from a seed; else they are greedy.

    pause_s: how long somebody who leaves it waits before that.
    """

    number: int
    shape: Shape
    way: Way
    tenant: str
    topic: str
    sampled: bool
    fault: Fault | None
    pause_s: float


TENANTS = ("", "north", "south")
TOPICS = (
    "bees", "the sea", "bread", "rain", "snow", "a bridge", "the moon", "a violin",
    "old trains", "a letter", "the desert", "a market", "chess", "coffee", "a garden", "time",
)  # fmt: skip
_NEW_TOPIC = 0.3  # share of programs whose input no other one has
_SAMPLED = 0.1
_MOST_PAUSE_S = 0.3

# A node is a graph's; the others are made by hand, so that they can be wrong.
_GRAPHS_ONLY = frozenset({Fault.NODE_RAISES})
_FLOWS_ONLY = frozenset({Fault.NEVER_CALLED})
_SEVERAL_CALLS = frozenset(
    {Fault.CANCELLED_BETWEEN_CALLS, Fault.NEVER_CALLED, Fault.OTHER_INPUTS, Fault.BAD_SAMPLING}
)


def job(number: int, seed: int, share: float) -> Job:
    """The program with this number; each is drawn by itself. share: of programs with a fault."""
    draw = random.Random(f"{seed}/{number}")
    shape, way = draw.choice(list(Shape)), draw.choice(list(Way))
    fault = draw.choice(list(Fault)) if draw.random() < share else None
    if fault in _GRAPHS_ONLY and way is Way.TASKFLOW:
        way = Way.DECLARED
    if fault in _FLOWS_ONLY:
        way = Way.TASKFLOW
    if fault in _SEVERAL_CALLS and shape is Shape.ONE:
        shape = Shape.CHAIN
    if fault is Fault.OTHER_INPUTS and way is Way.LEARNED:
        way = Way.DECLARED
    topic = draw.choice(TOPICS)
    if draw.random() < _NEW_TOPIC:
        topic = f"{topic}, number {number}"
    return Job(
        number,
        shape,
        way,
        draw.choice(TENANTS),
        topic,
        draw.random() < _SAMPLED,
        fault,
        draw.uniform(0.0, _MOST_PAUSE_S),
    )
