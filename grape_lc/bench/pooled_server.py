"""An arm at work on engines of a pool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grape_lc.bench.arms import Arm
from grape_lc.bench.engine_pool import EnginePool, engine_key
from grape_lc.bench.examples import Example
from grape_lc.bench.server import ArmServer, BenchEngine


class PooledServer(ArmServer):
    """An ``ArmServer`` whose engine is one of a pool, and stays open when the server is closed.

    It runs its short program to warm up on every engine that it gets, also on one that others
    have used: what they ran was another workload, or in another way.

    shared: engine arguments besides those of the arm.
    """

    def __init__(
        self,
        arm: Arm,
        example: Example,
        max_tokens: int,
        pool: EnginePool,
        shared: Mapping[str, Any],
        limit_s: float,
        in_flight: int | None = None,
        *,
        fixed_lengths: bool = False,
    ) -> None:
        super().__init__(
            arm,
            example,
            max_tokens,
            lambda arm: pool.lease(arm, shared, self.close),
            limit_s,
            in_flight,
            fixed_lengths=fixed_lengths,
        )
        self._pool = pool
        self._shared = dict(shared)

    @property
    def key(self) -> str:
        """Names its engine: servers with the same key use the same one."""
        return engine_key(self.arm, self._shared)

    def start(self) -> BenchEngine:
        """As ``ArmServer.start``."""
        self._pool.touch(self.arm, self._shared)
        return super().start()

    def drop(self) -> None:
        """End the engine, which failed, also for others: the next start opens another."""
        self.close()
        self._pool.drop(self.arm, self._shared)
