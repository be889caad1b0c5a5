"""vLLM's own schedulers, with counts of the KV that they use and lose.

Every decision is still vLLM's: a step only reads how many blocks are left when it has been
scheduled. vLLM's statistics would tell some of it too, but they make objects for every step and
every token, which no other arm pays for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from grape_lc.engine.vllm_counts import KVCounts
from grape_lc.engine.vllm_hooks import check_hooks
from grape_lc.engine.vllm_utilities import install_utilities

if TYPE_CHECKING:
    from vllm.v1.core.sched.scheduler import Scheduler as _Base
else:
    _Base = object


class CountedMixin(_Base):
    """vLLM's own scheduler with ``KVCounts``; put it in front of its class."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        problems = check_hooks(self, super())
        self._uncounted = "; ".join(problems) or None
        self._kv_counts = None if problems else KVCounts.of(self)
        self._preemptions = 0

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's step, and a look at what it left."""
        output = super().schedule(*args, **kwargs)
        if self._kv_counts is not None:
            free = self.kv_cache_manager.block_pool.get_num_free_blocks()
            self._kv_counts.stepped(output.num_scheduled_tokens, self.requests, free)
        return output

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> None:
        if self._kv_counts is not None:
            self._preemptions += 1
            self._kv_counts.lost(request.request_id, request.num_computed_tokens)
        super()._preempt_request(request, *args, **kwargs)

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> bool:
        """vLLM's; the peak begins anew."""
        done: bool = super().reset_prefix_cache(*args, **kwargs)
        if done and self._kv_counts is not None:
            self._kv_counts.emptied()
        return done

    def grape_stats(self) -> dict[str, Any]:
        """The counts; ``uncounted`` says why there are none, if so."""
        if self._kv_counts is None:
            return {"uncounted": self._uncounted}
        return {"preemptions": self._preemptions, **self._kv_counts.told()}


class CountedScheduler(CountedMixin, Scheduler):
    """vLLM's synchronous scheduler, counted."""


class CountedAsyncScheduler(CountedMixin, AsyncScheduler):
    """vLLM's asynchronous scheduler, counted."""


install_utilities()
