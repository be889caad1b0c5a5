from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before vLLM is imported: no look-up of models by name, one thread, quiet logs.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from tests.contract.simulation import KINDS, Kind, Simulation, write_model_config


@pytest.fixture(scope="session")
def model_config_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model_config(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def simulate(model_config_dir: Path, kind: Kind) -> Iterator[Callable[..., Simulation]]:
    """Make simulations; at the end each must come to rest with all blocks back."""
    made: list[Simulation] = []

    def make(**settings: Any) -> Simulation:
        made.append(Simulation(model_config_dir, kind, **settings))
        return made[-1]

    yield make
    for simulation in made:
        simulation.close()
