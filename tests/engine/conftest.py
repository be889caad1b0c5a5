"""Real vLLM engines on the CPU with the embedded model, in fp32 so that tokens can be compared."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from grape_lc import GrapeEngine

SETTINGS: dict[str, Any] = {"dtype": "float32", "max_model_len": 2048, "max_num_seqs": 16}


@pytest.fixture(scope="session")
def engine(model_path: str) -> Iterator[GrapeEngine]:
    """Our scheduler, checking its invariants after every step and recording it."""
    with GrapeEngine(
        model_path,
        progress=False,
        grape={"validate": True},
        additional_config={"grape_trace": 1000},
        **SETTINGS,
    ) as engine:
        yield engine


@pytest.fixture(scope="session")
def stock(model_path: str) -> Iterator[GrapeEngine]:
    """vLLM's own scheduler with the same settings, in the deterministic mode."""
    with GrapeEngine(
        model_path, scheduler="stock", progress=False, deterministic=True, **SETTINGS
    ) as engine:
        yield engine


@pytest.fixture
def quiet(engine: GrapeEngine) -> Iterator[dict[str, Any]]:
    """Sizes before a test; afterwards blocks, slots and open prompts must be back there."""
    engine.reset_prefix_cache()
    before = engine.stats()
    yield before
    names = ("free_blocks", "open_prompts", "requests", "running", "waiting", "tracked")
    expected = {**{name: before[name] for name in names}, "programs": 0}
    # A busy machine may take some steps to hear of the last end.
    end = time.monotonic() + 20
    while True:
        after = engine.stats()
        left = {name: after[name] for name in expected}
        if left == expected:
            return
        assert time.monotonic() < end, (expected, left)
