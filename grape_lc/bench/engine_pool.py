"""Engines that stay open from run to run, and are shared by all that want the same one.

An engine takes half a minute to start, and arms, workloads and rates often need engines with the
same arguments. The pool keeps the ones that were used last open, a few at a time::

    with EnginePool(engine_of, most=4) as pool:
        with pool.lease(arm, shared) as engine:  # started now, or still open
            ...
        with pool.lease(arm, shared) as engine:  # the same engine
            ...

What holds a lease is told when its engine ends, which is so when the pool has no room for it any
more, when it was dropped, and at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from grape_lc.bench.arms import Arm
from grape_lc.bench.server import BenchEngine

MOST_ENGINES = 4
"""Engines that are open at once."""

EngineOf = Callable[[Arm, dict[str, Any]], BenchEngine]
"""Makes the engine of an arm, given the engine arguments that all arms share."""


def engine_key(arm: Arm, shared: Mapping[str, Any]) -> str:
    """Names an engine: arms with the same key can be served by the same one."""
    args = {"scheduler": arm.scheduler, **shared, **arm.engine_args()}
    given = {name: value for name, value in args.items() if value is not None}  # None: as without
    return json.dumps(given, sort_keys=True, default=str)


class EnginePool:
    """Opens engines when they are needed; a context manager, at whose end all are closed.

    most: engines that may be open at once; for one more, the one unused longest is closed.
    clock: seconds, never backwards.
    Not thread-safe: runs follow one another.
    """

    def __init__(
        self,
        engine_of: EngineOf,
        most: int = MOST_ENGINES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engine_of = engine_of
        self._most = most
        self._clock = clock
        self._open: dict[str, _Open] = {}  # the one used last stands last
        self._starts: list[float] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def most(self) -> int:
        """Engines that may be open at once."""
        return self._most

    @property
    def open_engines(self) -> tuple[str, ...]:
        """Keys of the open engines, the one unused longest first."""
        return tuple(self._open)

    @property
    def starts(self) -> tuple[float, ...]:
        """How long each start of an engine took, in seconds."""
        return tuple(self._starts)

    def lease(
        self, arm: Arm, shared: Mapping[str, Any], on_end: Callable[[], None] = lambda: None
    ) -> Lease:
        """The use of an engine of this arm, as a context manager that gives the engine.

        on_end: called when the engine is about to end while the lease is held.
        """
        return Lease(self, arm, dict(shared), on_end)

    def touch(self, arm: Arm, shared: Mapping[str, Any]) -> None:
        """Count the arm's engine as used now, if it is open."""
        key = engine_key(arm, shared)
        if key in self._open:
            self._open[key] = self._open.pop(key)

    def drop(self, arm: Arm, shared: Mapping[str, Any]) -> None:
        """Close the arm's engine, if it is open: it failed, and the next lease starts another."""
        self._close(engine_key(arm, shared))

    def close(self) -> None:
        """Close all engines, also those after one whose end fails; it gives no more of them."""
        self._closed = True
        with ExitStack() as stack:
            for key in self._open:
                stack.callback(self._close, key)

    def take(self, lease: Lease) -> BenchEngine:
        """For leases: their engine, opened if need be. Raises what starting it raises."""
        if self._closed:
            raise RuntimeError("this pool of engines is closed")
        key = lease.key
        if key not in self._open:
            while len(self._open) >= self._most:
                self._close(next(iter(self._open)))
            begin = self._clock()
            self._open[key] = _Open(self._engine_of(lease.arm, lease.shared))
            self._starts.append(self._clock() - begin)
        held = self._open[key] = self._open.pop(key)
        held.leases.append(lease)
        return held.engine

    def give_back(self, lease: Lease) -> None:
        """For leases: the engine is not used by this one any more; it stays open."""
        held = self._open.get(lease.key)
        if held is not None and lease in held.leases:
            held.leases.remove(lease)

    def _close(self, key: str) -> None:
        held = self._open.pop(key, None)
        if held is None:
            return
        with held.stack:  # closes the engine, whatever those who hold it do
            for lease in held.leases:
                lease.on_end()


class Lease:
    """The use of an engine, from ``__enter__`` on."""

    def __init__(
        self, pool: EnginePool, arm: Arm, shared: dict[str, Any], on_end: Callable[[], None]
    ) -> None:
        self.arm = arm
        self.shared = shared
        self.on_end = on_end
        self.key = engine_key(arm, shared)
        self._pool = pool

    def __enter__(self) -> BenchEngine:
        return self._pool.take(self)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.give_back(self)


class _Open:
    """An open engine, what ends it, and who holds it."""

    def __init__(self, engine: BenchEngine) -> None:
        self.stack = ExitStack()
        self.engine = self.stack.enter_context(engine)
        self.leases: list[Lease] = []
