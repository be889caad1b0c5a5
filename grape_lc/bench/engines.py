"""What a measured run needs of an engine, besides serving a chat model."""

from __future__ import annotations

import time
from typing import Any, Protocol, Self

from grape_lc.engine.base import EngineClient
from grape_lc.errors import EngineError

WARM_UP_TOKENS = 4
"""Limit of each answer of the short program that every engine serves before it is measured."""

_RESET_LIMIT_S = 10.0


class MeasurableEngine(EngineClient, Protocol):
    """An engine that can be started, ended, and made to forget."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc_info: Any) -> None: ...

    def reset_prefix_cache(self) -> bool:
        """Forget all cached prefixes; False while calls are running."""
        ...


def empty_cache(arm: str, engine: MeasurableEngine) -> None:
    """Reset the prefix cache; what a finished program still holds is freed within moments.

    Raises EngineError if it is not within ten seconds.
    """
    limit = time.monotonic() + _RESET_LIMIT_S
    while not engine.reset_prefix_cache():
        if time.monotonic() > limit:
            raise EngineError(
                f"the {arm} engine did not empty its prefix cache within {_RESET_LIMIT_S:.0f} s, "
                "though no call is running"
            )
        time.sleep(0.1)
