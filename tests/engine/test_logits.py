"""The numbers behind answers: those of a prompt prefilled ahead are the same, to rounding."""

from __future__ import annotations

import time
from typing import Any

import pytest

from grape_lc import GrapeEngine, InputVar, IntermediateVar, OutputVar, Sampling, TaskFlow
from grape_lc.engine.base import CallDelta, CallRequest
from tests.engine.flows import EDITOR, WRITER

# Of a logarithm of probability. In fp32 differences are near 1e-5 (docs/exactness.md).
TOLERANCE = 1e-3
CHOICES = 20
PLAN = "Begin with the smell of it. Then two facts. End with a question."
HEADS = {"one block": EDITOR, "several steps": (EDITOR + WRITER) * 6}


def two_tasks(head: str) -> TaskFlow:
    """A plan, and a text whose prompt is known up to the plan before there is one."""
    flow = TaskFlow(name="two_tasks")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("text"))
    flow.add_task([("user", "Plan a text about {topic}.")], "plan")
    flow.add_task([("system", head), ("user", "About {topic}, by this plan: {plan}")], "text")
    return flow


def messages(head: str) -> tuple[dict[str, Any], ...]:
    """What the second task asks when the plan is ``PLAN``."""
    return (
        {"role": "system", "content": head},
        {"role": "user", "content": f"About bread, by this plan: {PLAN}"},
    )


def cold(engine: GrapeEngine, head: str, sampling: Sampling) -> list[CallDelta]:
    """The answer to a prompt of which nothing is computed yet."""
    engine.reset_prefix_cache()
    deltas = list(engine.stream(CallRequest(messages=messages(head), sampling=sampling)))
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.cached_tokens == 0
    return deltas


def ahead(engine: GrapeEngine, head: str, sampling: Sampling) -> list[CallDelta]:
    """The answer of a call that takes over most of its prompt."""
    engine.reset_prefix_cache()
    before = engine.stats()["open_tokens"]
    program = engine.open_program(two_tasks(head), {"topic": "bread"})
    least = engine.count_tokens(head)
    end = time.monotonic() + 120
    while engine.stats()["open_tokens"] - before < least:
        assert time.monotonic() < end, "the open prompt is not computed"
        time.sleep(0.02)
    request = CallRequest(messages=messages(head), sampling=sampling, program=program, task="text")
    try:
        deltas = list(engine.stream(request))
    finally:
        engine.close_program(program)
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.ahead_outcome == "adopted"
    assert usage.ahead_tokens >= least
    return deltas


def tokens(deltas: list[CallDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_probabilities_of_a_prompt_that_was_taken_over(
    engine: GrapeEngine, quiet: dict[str, Any], head: str
) -> None:
    """In fp32: the likeliest tokens of each place and their probabilities, but for rounding."""
    sampling = Sampling(temperature=0.0, max_tokens=8, logprobs=CHOICES)
    plain, taken = cold(engine, head, sampling), ahead(engine, head, sampling)
    assert tokens(taken) == tokens(plain)
    pairs = zip(
        (place for delta in plain for place in delta.logprobs),
        (place for delta in taken for place in delta.logprobs),
        strict=True,
    )
    for one, other in pairs:
        assert one.token == other.token
        assert len(one.top) == CHOICES
        for (_, right), (_, found) in zip(one.top, other.top, strict=True):
            assert found == pytest.approx(right, abs=TOLERANCE)


@pytest.mark.parametrize("seed", [1, 2])
def test_same_seed_same_tokens(
    engine: GrapeEngine, stock: GrapeEngine, quiet: dict[str, Any], seed: int
) -> None:
    """Sampled at temperature 1, one call at a time: stock, ours, ours again, and taken over."""
    head = HEADS["several steps"]
    sampling = Sampling(temperature=1.0, max_tokens=24, seed=seed, ignore_eos=True)
    right = tokens(cold(stock, head, sampling))
    for _ in range(2):
        assert tokens(cold(engine, head, sampling)) == right
        assert tokens(ahead(engine, head, sampling)) == right
    other = sampling.model_copy(update={"seed": seed + 10})
    assert tokens(cold(engine, head, other)) != right, "the seed changes nothing"
