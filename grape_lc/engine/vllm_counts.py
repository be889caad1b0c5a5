"""What KV a scheduler uses and loses, counted alike for ours and for vLLM's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any


class KVCounts:
    """Counts of one engine core.

    evictions: times that a request or an open prompt lost its KV before its end.
    recomputed_tokens: tokens that were computed again because of that, as they are computed; what
        the prefix cache still had of them is not among them.
    peak_kv_blocks: most blocks in use behind a step, since the prefix cache was emptied; blocks
        that are only cached count as free. peak_kv_bytes: the same in bytes, on one device.
    """

    def __init__(self, total_blocks: int, block_bytes: int) -> None:
        self._total = total_blocks
        self._block_bytes = block_bytes
        self._evictions = 0
        self._recomputed = 0
        self._peak = 0
        # How far each request had been computed that lost its KV and did not get there again.
        self._marks: dict[str, int] = {}

    @classmethod
    def of(cls, scheduler: Any) -> KVCounts:
        """Counts for a scheduler of vLLM. The block that vLLM keeps empty is never in use."""
        config = scheduler.kv_cache_config
        size = sum(tensor.size for tensor in config.kv_cache_tensors)
        return cls(int(config.num_blocks) - 1, int(size // config.num_blocks))

    @property
    def unfinished(self) -> int:
        """Requests that lost KV and did not get there again yet."""
        return len(self._marks)

    def lost(self, request_id: str, computed: int) -> None:
        """A request, or open prompt, with ``computed`` tokens loses its KV."""
        self._evictions += 1
        mark = max(computed, self._marks.get(request_id, 0))
        if mark > 0:
            self._marks[request_id] = mark

    def handed_over(
        self, source: str, target: str, opened: Sequence[int] | None, asked: Sequence[int] | None
    ) -> None:
        """A call takes the place of an open prompt: what both say is still to be recomputed."""
        mark = self._marks.pop(source, 0)
        both = zip((opened or ())[:mark], asked or (), strict=False)
        alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
        if alike:
            self._marks[target] = alike

    def stepped(
        self, scheduled: Mapping[str, int], requests: Mapping[str, Any], free_blocks: int
    ) -> None:
        """A step was scheduled, and ``num_computed_tokens`` of its requests is that behind it."""
        self._peak = max(self._peak, self._total - free_blocks)
        # Empty unless something was evicted.
        for request_id, mark in list(self._marks.items()):
            request = requests.get(request_id)
            if request is None:
                del self._marks[request_id]
                continue
            tokens = scheduled.get(request_id, 0)
            if tokens:
                end = request.num_computed_tokens
                self._recomputed += max(0, min(end, mark) - (end - tokens))
                if end >= mark:
                    del self._marks[request_id]

    def emptied(self) -> None:
        """The prefix cache was emptied: the peak begins anew."""
        self._peak = 0

    def told(self) -> dict[str, int]:
        """All counts as plain values."""
        return {
            "evictions": self._evictions,
            "recomputed_tokens": self._recomputed,
            "peak_kv_blocks": self._peak,
            "peak_kv_bytes": self._peak * self._block_bytes,
        }
