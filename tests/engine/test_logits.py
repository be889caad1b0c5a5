"""The numbers behind answers: those of a prompt prefilled ahead are the same, to rounding."""

from __future__ import annotations

import time
from typing import Any

import pytest

from grape_lc import GrapeEngine, InputVar, IntermediateVar, OutputVar, Sampling, TaskFlow
from grape_lc.engine.base import CallDelta, CallRequest
from grape_lc.errors import ConfigError, UnsupportedRequestError
from tests.engine.flows import EDITOR, WRITER

# Of a logarithm of probability. In fp32 differences are near 1e-5 (docs/exactness.md).
TOLERANCE = 1e-3
CHOICES = 20
HEADS = {"one block": EDITOR, "several steps": (EDITOR + WRITER) * 6}
GREEDY = Sampling(temperature=0.0, max_tokens=8)


def two_tasks(head: str) -> TaskFlow:
    """A plan, and a text whose prompt is known up to the plan before there is one."""
    flow = TaskFlow(name="two_tasks")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("text"))
    flow.add_task([("user", "Plan a text about {topic}.")], "plan")
    flow.add_task([("system", head), ("user", "About {topic}, by this plan: {plan}")], "text")
    return flow


def planned(engine: GrapeEngine, program: str | None = None) -> str:
    """The answer of the first task."""
    messages = ({"role": "user", "content": "Plan a text about bread."},)
    request = CallRequest(messages=messages, sampling=GREEDY, program=program, task="plan")
    return "".join(delta.text for delta in engine.stream(request))


def second(head: str, plan: str, sampling: Sampling, program: str | None = None) -> CallRequest:
    """What the second task asks, given that plan."""
    content = f"About bread, by this plan: {plan}"
    return CallRequest(
        messages=({"role": "system", "content": head}, {"role": "user", "content": content}),
        sampling=sampling,
        program=program,
        task="text",
    )


def cold(engine: GrapeEngine, head: str, plan: str, sampling: Sampling) -> list[CallDelta]:
    """The answer to a prompt of which nothing is computed yet."""
    engine.reset_prefix_cache()
    deltas = list(engine.stream(second(head, plan, sampling)))
    usage = deltas[-1].usage
    assert usage is not None
    assert usage.cached_tokens == 0
    return deltas


def ahead(engine: GrapeEngine, head: str, sampling: Sampling) -> list[CallDelta]:
    """The answer of a call that takes over most of its prompt."""
    least = engine.count_tokens(head)
    end = time.monotonic() + 120
    while True:
        engine.reset_prefix_cache()
        before = engine.stats()["open_tokens"]
        program = engine.open_program(two_tasks(head), {"topic": "bread"})
        try:
            plan = planned(engine, program)
            soon = time.monotonic() + 5
            while engine.stats()["open_tokens"] - before < least and time.monotonic() < soon:
                time.sleep(0.02)
            deltas = list(engine.stream(second(head, plan, sampling, program)))
        finally:
            engine.close_program(program)
        usage = deltas[-1].usage
        assert usage is not None
        if usage.ahead_tokens >= least:
            assert usage.ahead_outcome == "adopted"
            return deltas
        # Other tests may have taught the governor that early work does not pay; it tries again.
        assert time.monotonic() < end, usage


def tokens(deltas: list[CallDelta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_probabilities_of_a_prompt_that_was_taken_over(
    engine: GrapeEngine, quiet: dict[str, Any], head: str
) -> None:
    """In fp32: the likeliest tokens of each place and their probabilities, but for rounding."""
    sampling = Sampling(temperature=0.0, max_tokens=8, logprobs=CHOICES)
    plain, taken = cold(engine, head, planned(engine), sampling), ahead(engine, head, sampling)
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
    plan = planned(engine)
    right = tokens(cold(stock, head, plan, sampling))
    for _ in range(2):
        assert tokens(cold(engine, head, plan, sampling)) == right
        assert tokens(ahead(engine, head, sampling)) == right
    other = sampling.model_copy(update={"seed": seed + 10})
    assert tokens(cold(engine, head, plan, other)) != right, "the seed changes nothing"


def test_the_deterministic_mode_refuses_what_cannot_be_repeated(stock: GrapeEngine) -> None:
    """Its engine computes in fp32 on a CPU, and samples only with a seed."""
    info = stock.info()
    assert (info["deterministic"], info["dtype"]) == (True, "float32")
    sampling = Sampling(temperature=0.7, max_tokens=2)
    with pytest.raises(UnsupportedRequestError, match="without a seed"):
        list(stock.stream(CallRequest(text="Hi", sampling=sampling)))
    seeded = sampling.model_copy(update={"seed": 1})
    assert list(stock.stream(CallRequest(text="Hi", sampling=seeded)))[-1].usage is not None


def test_the_deterministic_mode_refuses_other_types_on_a_cpu(model_path: str) -> None:
    """The host says so before a model is loaded."""
    engine = GrapeEngine(model_path, progress=False, deterministic=True, dtype="bfloat16")
    with pytest.raises(ConfigError, match="dtype='bfloat16'"):
        engine.start()
