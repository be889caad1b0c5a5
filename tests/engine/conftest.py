"""Real vLLM engines on the CPU with the embedded model, in fp32 so that tokens can be compared."""

from __future__ import annotations

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
    """vLLM's own scheduler with the same settings."""
    with GrapeEngine(model_path, scheduler="stock", progress=False, **SETTINGS) as engine:
        yield engine


@pytest.fixture
def quiet(engine: GrapeEngine) -> Iterator[dict[str, Any]]:
    """Sizes before a test; afterwards blocks, slots and open prompts must be back there."""
    engine.reset_prefix_cache()
    before = engine.stats()
    yield before
    after = engine.stats()
    for name in ("free_blocks", "open_prompts", "requests", "running", "waiting", "tracked"):
        assert after[name] == before[name], (name, before[name], after[name])
    assert after["programs"] == 0
