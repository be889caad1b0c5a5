"""Step times of a real engine: what is logged, a profile made of it, and its use."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from grape_lc import GrapeEngine
from grape_lc.bench import profile
from grape_lc.bench.profiler import Profiler, profile_engine
from grape_lc.engine.base import CallRequest
from grape_lc.engine.profile_cells import cells_of, steps_of
from grape_lc.engine.profile_fit import fit
from grape_lc.flow.sampling import Sampling
from grape_lc.scheduler.cost import LinearCost, StepLoad

SMALL: dict[str, Any] = {"max_model_len": 512, "max_num_seqs": 4}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Profiles of this machine's user are neither used nor overwritten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def measured(model_path: str, cache: None) -> Iterator[GrapeEngine]:
    with profile_engine(model_path, "float32", progress=False, **SMALL) as engine:
        yield engine


def run(engine: GrapeEngine, tokens: int, output: int) -> float:
    sampling = Sampling(temperature=0.0, max_tokens=output, extra={"ignore_eos": True})
    ids = tuple(range(1000, 1000 + tokens))
    began = time.monotonic()
    for _ in engine.stream(CallRequest(token_ids=ids, sampling=sampling)):
        pass
    return time.monotonic() - began


def test_a_calls_steps_are_logged_as_they_were(measured: GrapeEngine) -> None:
    measured.reset_prefix_cache()
    measured.steps()
    wall = run(measured, 40, 5)
    steps = steps_of(measured.steps())
    expected = [StepLoad.of([(40, 0)]), *(StepLoad.of([(1, n)]) for n in range(40, 44))]
    assert [step.load for step in steps] == expected
    assert 0 < sum(step.seconds for step in steps) <= wall
    assert measured.steps() == [], "each step is told once"


def test_a_cached_prefix_is_context(measured: GrapeEngine) -> None:
    measured.reset_prefix_cache()
    run(measured, 70, 1)
    measured.steps()
    run(measured, 70, 1)
    block = measured.info()["block_size"]
    cached = 69 // block * block
    assert [step.load for step in steps_of(measured.steps())] == [
        StepLoad.of([(70 - cached, cached)])
    ]


def test_a_profile_is_made_kept_and_used(measured: GrapeEngine, model_path: str) -> None:
    told: list[str] = []
    made: list[Profiler] = []

    def clock() -> float:
        """The time is over after three rounds, which a fit needs, however long they take here."""
        return 1e9 if made and made[0].rounds == 3 else 0.0

    profiler = Profiler(measured, seconds=30.0, tell=told.append, clock=clock)
    made.append(profiler)
    steps = asyncio.run(profiler.measure())
    assert profiler.rounds == 3
    assert told
    assert {cell.kind for cell in cells_of(steps).values()} == {"decode", "prefill", "mixed"}
    assert max(step.load.rows for step in steps) == 4
    found = fit(steps)
    decode, chunk = StepLoad.of([(1, 100)]), StepLoad.of([(1, 100), (64, 0)])
    assert 0 < found.cost.seconds(decode) < found.cost.seconds(chunk)

    # Tests share their machine, so how small the error is here says nothing.
    errors = {"mape": 0.05, "p95_error": 0.1, "steps": found.single.steps}
    document = {**measured.info()["profile"], **found.to_mapping(), "heldout_single": errors}
    path, refusal = profile.store(document)
    assert refusal is None
    assert path is not None
    assert measured.info()["profiled"] is False
    assert LinearCost.from_mapping(document["coefficients"]) == found.cost
    with GrapeEngine(model_path, progress=False, dtype="float32", **SMALL) as engine:
        assert engine.info()["profiled"] is True
        assert engine.stats()["cost_trusted"] is True
        assert list(engine.stream(CallRequest(text="hello", sampling=Sampling(max_tokens=3))))
