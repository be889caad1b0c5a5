"""Settings and fixtures that all tests share."""

from __future__ import annotations

import os

import pytest

from grape_lc.engine.models import resolve_model

# Before anything imports vLLM or torch, in this process or in one that it starts. One thread: two
# make decode times erratic. The rest keeps an engine small, quiet and off the network.
for _name, _value in {
    "OMP_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}.items():
    os.environ.setdefault(_name, _value)


@pytest.fixture(scope="session")
def model_path() -> str:
    """Folder of the embedded model, made first if this machine does not have it yet."""
    return resolve_model(None, progress=print)
