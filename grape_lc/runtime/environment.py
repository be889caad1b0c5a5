"""The environment of an engine host: the user's own, completed where a small machine needs it."""

from __future__ import annotations

import os
from pathlib import Path

import grape_lc

_SOCKET_PATH_BYTES = 100  # macOS has room for three more, Linux for a few
_SOCKET_NAME_BYTES = 40  # as vLLM makes them


def host_environment(folder: Path) -> dict[str, str]:
    """For a host whose sockets go into ``folder``, unless the user chose another one.

    A folder with so long a path that no socket fits into it is left out.
    """
    env = dict(os.environ)
    root = str(Path(grape_lc.__file__).resolve().parent.parent)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")]))
    # One half computes; the other serves the front end and the user's own code. On two cores a
    # second compute thread makes decoding erratic.
    env.setdefault("OMP_NUM_THREADS", str(max(_cores() // 2, 1)))
    env.setdefault("NUMBA_NUM_THREADS", "1")  # n-gram drafting crawls otherwise
    env.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
    env.setdefault("VLLM_NO_USAGE_STATS", "1")
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    if len(os.fsencode(folder)) <= _SOCKET_PATH_BYTES - _SOCKET_NAME_BYTES:
        env.setdefault("VLLM_RPC_BASE_PATH", str(folder))
    return env


def _cores() -> int:
    """Those that this process may use; macOS cannot say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
