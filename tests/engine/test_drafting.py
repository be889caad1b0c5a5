"""n-gram drafting beside open prompts: the same greedy tokens, and a refusal where vLLM errs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from grape_lc import GrapeEngine, InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.engine.base import CallRequest
from grape_lc.errors import UnsupportedRequestError
from grape_lc.flow.sampling import Sampling
from tests.engine.conftest import SETTINGS
from tests.engine.flows import SUBJECTS
from tests.engine.runs import run_programs

NGRAM = {
    "method": "ngram",
    "num_speculative_tokens": 4,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}


@pytest.fixture(scope="module")
def drafting(model_path: str) -> Iterator[GrapeEngine]:
    with GrapeEngine(
        model_path,
        progress=False,
        speculative_config=NGRAM,
        grape={"validate": True},
        **SETTINGS,
    ) as engine:
        yield engine


def refine() -> TaskFlow:
    """Write, then repeat with corrections, twice: later answers copy much of their prompt."""
    flow = TaskFlow(name="refine")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("draft"))
    flow.add_variable(IntermediateVar("second"))
    flow.add_variable(OutputVar("final"))
    sampling = Sampling(max_tokens=48, temperature=0.0)
    flow.add_task([("user", "Write four sentences about {topic}.")], "draft", sampling=sampling)
    again = "Repeat this text word for word, correcting only mistakes:\n\n"
    flow.add_task([("user", again + "{draft}\n\nThe text again:")], "second", sampling=sampling)
    flow.add_task([("user", again + "{second}\n\nThe text again:")], "final", sampling=sampling)
    return flow


def test_drafts_change_no_token(drafting: GrapeEngine, stock: GrapeEngine) -> None:
    """Refining programs, drafted with open prompts, against plain vLLM without either."""
    outcomes: list[str] = []
    # Six at a time, until enough were taken over for the equality to mean something.
    for first in range(0, len(SUBJECTS), 6):
        jobs = [(refine(), subject) for subject in SUBJECTS[first : first + 6]]
        got = run_programs(drafting, jobs)
        expected = run_programs(stock, jobs)
        assert [tokens for tokens, _ in got] == [tokens for tokens, _ in expected]
        outcomes += [u.ahead_outcome for _, usage in got for u in usage.values()]
        if outcomes.count("adopted") >= 4:
            break
    assert outcomes.count("adopted") >= 4, outcomes
    assert drafting.stats()["requests"] == 0


def test_drafts_are_really_used(drafting: GrapeEngine) -> None:
    """Some delta carries more than one token: without that the test above shows nothing."""
    copy = CallRequest(
        messages=({"role": "user", "content": "Repeat: one two three four five six. " * 4},),
        sampling=Sampling(temperature=0.0, max_tokens=60),
    )
    assert max(len(delta.token_ids) for delta in drafting.stream(copy)) > 1


def test_sampling_beside_drafts_is_refused_on_a_cpu(drafting: GrapeEngine) -> None:
    """vLLM's CPU sampler would corrupt the other calls of the batch; the message says so."""
    with pytest.raises(UnsupportedRequestError, match=r"temperature=0\.7"):
        list(drafting.stream(CallRequest(text="Hi", sampling=Sampling(temperature=0.7))))
