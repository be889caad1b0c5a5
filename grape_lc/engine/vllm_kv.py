"""The KV blocks of open prompts: whose they are, claiming cached ones, handing them over.

Adoption moves a list of blocks from the open prompt O to the real request R. With blocks of
four tokens, ``#`` a hashed block (in the prefix cache, others may read it), ``.`` the tail:

    O: t0 t1 t2 t3 | t4 t5 t6 t7 | t8 t9 __ __
       ####block 5#  ####block 9#  ..block 2..
    R: t0 t1 t2 t3 | t4 t5 t6 t7 | t8 t9 u0 u1 | u2 ...
       ####block 5#  ####block 9#  ..block 2..   next free block

R goes on at t10, inside block 2. A hashed block is never written again: where R differs from O
inside the tail, R takes O's tokens up to there and overwrites the rest of the tail, which nobody
else can see. Where it differs inside a hashed block nothing is moved, and the prefix cache
serves R what they share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

from grape_lc.scheduler.types import RequestView


class KVLedger:
    """Reads and moves entries of vLLM's block tables (one for each KV group)."""

    def __init__(self, kv_cache_manager: Any) -> None:
        self._manager = kv_cache_manager
        self._groups: tuple[Any, ...] = tuple(kv_cache_manager.coordinator.single_type_managers)
        self._pool: Any = kv_cache_manager.block_pool
        self.groups = len(self._groups)
        self.block_size: int = self._groups[0].block_size if self._groups else 1

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody references; cached ones among them count as free."""
        return int(self._pool.get_num_free_blocks())

    @property
    def total_blocks(self) -> int:
        """All blocks of the pool, the null block excluded."""
        return int(self._pool.num_gpu_blocks) - 1

    @property
    def tracked(self) -> set[str]:
        """Ids of all requests that have an entry in a block table."""
        return {key for group in self._groups for key in group.req_to_blocks}

    def held(self, request_id: str) -> int:
        """Blocks of a request, over all groups."""
        return sum(len(group.req_to_blocks.get(request_id, ())) for group in self._groups)

    def hold(self, views: Iterable[RequestView]) -> None:
        """Count the blocks of each view's request; for many at once."""
        if len(self._groups) != 1:
            for view in views:
                view.held_blocks = self.held(view.id)
            return
        table = self._groups[0].req_to_blocks
        for view in views:
            blocks = table.get(view.id)
            view.held_blocks = len(blocks) if blocks is not None else 0

    def hashed_tokens(self, request_id: str) -> int:
        """Tokens of a request that lie in hashed blocks, which must not be written again."""
        # There is no entry while the request fills its first block.
        cached = max(group.num_cached_block.get(request_id, 0) for group in self._groups)
        return int(cached) * self.block_size

    def blocks_for(self, tokens: int) -> int:
        """Blocks that hold this many tokens, over all groups."""
        return -(-tokens // self.block_size) * self.groups

    def cost(self, request_id: str, tokens: int, cached: Any = None) -> int:
        """How many free blocks a request takes to have room for ``tokens`` tokens.

        cached: the KVCacheBlocks of a prefix cache hit. Those that somebody uses cost nothing;
        the others count as free until the request takes them.
        """
        live = sum(block.ref_cnt > 0 for block in _blocks_in(cached))
        return max(0, self.blocks_for(tokens) - self.held(request_id) - int(live))

    def claim(self, request: Any, limit: int, reserve: int) -> int:
        """Take what the prefix cache has of a request that holds nothing; returns the tokens.

        Done only if the cache holds at least ``limit`` tokens of it: then there is nothing left
        to compute, and vLLM, which never admits a request without a token to compute, would
        refuse it for ever. Otherwise, or if fewer than ``reserve`` blocks would stay free, 0,
        and vLLM finds the cached part itself.
        """
        blocks, tokens = self._manager.get_computed_blocks(request)[:2]
        if tokens < limit or self.free_blocks - self.cost("", tokens, blocks) < reserve:
            return 0
        taken = self._manager.allocate_slots(
            request, 0, num_new_computed_tokens=tokens, new_computed_blocks=blocks
        )
        return 0 if taken is None else int(tokens)

    def move(self, source: str, target: str, tokens: int) -> None:
        """Give ``target`` the first ``tokens`` tokens of ``source``; the other blocks are freed.

        ``tokens`` is either at least ``hashed_tokens(source)`` or a multiple of the block size:
        the request goes on writing at that place.
        """
        keep = -(-tokens // self.block_size)
        for group in self._groups:
            blocks = group.req_to_blocks.pop(source)
            hashed = group.num_cached_block.pop(source, 0)
            if len(blocks) > keep:
                # Last block first, so that the tail is evicted before what is in front of it.
                group.block_pool.free_blocks(reversed(blocks[keep:]))
                blocks = blocks[:keep]
            group.req_to_blocks[target] = blocks
            group.num_cached_block[target] = min(hashed, keep)

    def freed_by(self, holders: Iterable[str], cached: Any = None) -> int:
        """Blocks that become free when all ``holders`` give up theirs.

        A block that others read as well stays where it is, and one of the hit ``cached`` would
        be taken again at once; neither counts.
        """
        references: Counter[int] = Counter()
        blocks: dict[int, Any] = {}
        kept = {block.block_id for block in _blocks_in(cached)}
        for holder in holders:
            for group in self._groups:
                for block in group.req_to_blocks.get(holder, ()):
                    references[block.block_id] += 1
                    blocks[block.block_id] = block
        return sum(
            blocks[number].ref_cnt <= count and number not in kept
            for number, count in references.items()
        )

    def problems(self, request_id: str, computed: int) -> list[str]:
        """What is wrong with the block table entry of a request with ``computed`` tokens."""
        found = []
        for number, group in enumerate(self._groups):
            blocks = group.req_to_blocks.get(request_id, ())
            need = -(-computed // self.block_size)
            if len(blocks) < need or (blocks and not computed):
                found.append(f"group {number}: {len(blocks)} blocks for {computed} tokens")
            if any(block.ref_cnt < 1 or block.is_null for block in blocks):
                found.append(f"group {number}: holds a block that is free or null")
            hashed = group.num_cached_block.get(request_id, 0)
            if hashed > len(blocks):
                found.append(f"group {number}: {hashed} hashed of {len(blocks)} blocks")
            if any(block.ref_cnt > 1 for block in blocks[hashed:]):
                found.append(f"group {number}: shares a block that it still writes")
        return found


def _blocks_in(cached: Any) -> list[Any]:
    return [] if cached is None else [block for group in cached.blocks for block in group]


def why_not_movable(scheduler: Any) -> str | None:
    """Why this engine's KV cannot be kept and handed over; ``None`` if it can."""
    config = scheduler.vllm_config
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    kinds = sorted({type(manager).__name__ for manager in managers})
    sizes = {manager.block_size for manager in managers}
    parallel = config.parallel_config
    reasons = (
        (scheduler.connector is not None, "a KV connector is configured"),
        (getattr(scheduler, "ec_connector", None) is not None, "an encoder connector is used"),
        (
            any(type(manager) is not FullAttentionManager for manager in managers),
            f"KV managers {kinds}, only FullAttentionManager can be moved",
        ),
        (not managers, "the model keeps no KV"),
        (
            len(sizes | {scheduler.block_size, scheduler.hash_block_size}) > 1,
            f"block sizes differ: {sorted(sizes)}, hash {scheduler.hash_block_size}",
        ),
        (
            parallel.decode_context_parallel_size > 1 or parallel.prefill_context_parallel_size > 1,
            "context parallelism",
        ),
        (scheduler.is_encoder_decoder, "an encoder-decoder model"),
        (config.model_config.runner_type != "generate", "not a generating model"),
        (scheduler.num_sampled_tokens_per_step != 1, "not an autoregressive model"),
        (
            getattr(scheduler, "aux_output_connector", None) is not None,
            "per-token outputs of the prompt are asked for",
        ),
        (not scheduler.scheduler_config.enable_chunked_prefill, "chunked prefill is off"),
    )
    return next((why for applies, why in reasons if applies), None)


def why_not_capped(scheduler: Any) -> str | None:
    """Why this engine's steps must not be shortened; ``None`` if they may."""
    reasons = (
        (not scheduler.scheduler_config.enable_chunked_prefill, "chunked prefill is off"),
        (scheduler.has_mamba_layers, "Mamba state is kept at block boundaries only"),
        (
            scheduler.vllm_config.model_config.supports_multimodal_inputs,
            "an image may need a whole step",
        ),
        (scheduler.num_prefill_lookahead > 1, "the drafter needs long last chunks"),
    )
    return next((why for applies, why in reasons if applies), None)
