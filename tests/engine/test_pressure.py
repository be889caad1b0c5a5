"""KV short: real calls never wait for an open prompt, and answers stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from grape_lc import GrapeEngine, InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.engine.base import CallRequest
from grape_lc.errors import UnsupportedRequestError
from grape_lc.flow.sampling import Sampling
from tests.engine.flows import SUBJECTS, chain
from tests.engine.runs import run_programs

# 32 blocks of 32 tokens; each of the six programs at once wants about 12 for its own calls and as
# many again ahead.
TINY: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 768,
    "max_num_seqs": 8,
    "num_gpu_blocks_override": 32,
    "max_num_batched_tokens": 512,
}


@pytest.fixture(scope="module")
def tiny(model_path: str) -> Iterator[GrapeEngine]:
    with GrapeEngine(model_path, progress=False, grape={"validate": True}, **TINY) as engine:
        yield engine


def test_open_prompts_give_way_and_nothing_hangs(tiny: GrapeEngine, stock: GrapeEngine) -> None:
    """Far too little KV for six programs and their open prompts: same tokens, all blocks back."""
    jobs = [(chain(24), subject) for subject in SUBJECTS[:8]]
    before = tiny.stats()
    got = run_programs(tiny, jobs)
    expected = run_programs(stock, jobs)
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in expected]
    after = tiny.stats()
    assert after["free_blocks"] == before["free_blocks"]
    assert after["requests"] == after["open_prompts"] == 0
    held_back = after["dropped"] + sum(
        u.ahead_outcome == "cold" for _, x in got for u in x.values()
    )
    assert held_back > 0, "the KV was not short: the test tests nothing"


def wide(tasks: int) -> TaskFlow:
    """One call, then so many side by side, each with a text of its own, then one that reads all."""
    flow = TaskFlow(name="wide")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(OutputVar("verdict"))
    sampling = Sampling(temperature=0.0, max_tokens=8, ignore_eos=True)
    flow.add_task([("user", "Plan a text about {topic}.")], "plan", sampling=sampling)
    names = [f"side{number}" for number in range(tasks)]
    for number, name in enumerate(names):
        flow.add_variable(IntermediateVar(name))
        head = f"Reader {number} says: " + f"{SUBJECTS[number]}, {number}. " * 50
        flow.add_task([("system", head), ("user", "{plan}")], name, sampling=sampling)
    flow.add_task(
        [("user", " ".join(f"{{{name}}}" for name in names))], "verdict", sampling=sampling
    )
    return flow


def test_a_program_that_wants_more_than_there_is(tiny: GrapeEngine, stock: GrapeEngine) -> None:
    """Its prompts are several times the KV, all ready at once. It ends, and so do those beside."""
    jobs = [(wide(8), "bees"), *((chain(8), subject) for subject in SUBJECTS[:3])]
    before = tiny.stats()
    got = run_programs(tiny, jobs)
    prompts = sum(usage.prompt_tokens for usage in got[0][1].values())
    assert prompts > 2 * 32 * 32, "the KV was not short: the test tests nothing"
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in run_programs(stock, jobs)]
    after = tiny.stats()
    assert after["free_blocks"] == before["free_blocks"]
    assert after["requests"] == after["open_prompts"] == after["programs"] == 0


def test_a_seeded_prompt_longer_than_a_step_is_refused(tiny: GrapeEngine) -> None:
    """It would end vLLM's CPU worker; shorter ones, and those without a seed, are served."""
    seeded = Sampling(temperature=0.8, seed=7, max_tokens=4)
    with pytest.raises(UnsupportedRequestError, match="max_num_batched_tokens"):
        list(tiny.stream(CallRequest(text="word " * 600, sampling=seeded)))
    short = CallRequest(text="word " * 300, sampling=seeded)
    texts = {"".join(d.text for d in tiny.stream(short)) for _ in range(2)}
    assert len(texts) == 1, "same seed, same tokens"
    plain = Sampling(temperature=0.8, max_tokens=4)
    last = list(tiny.stream(CallRequest(text="word " * 600, sampling=plain)))[-1]
    assert last.finish_reason is not None
