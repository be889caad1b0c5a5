"""The KV of requests: which blocks hold it, what the prefix cache has of it, who hands it on.

The rules are those of vLLM's ``KVCacheManager`` for full attention, and of the open prompts'
ledger on top of it. A request's tokens and its blocks, of four tokens each:

    t0 t1 t2 t3 | t4 t5 t6 t7 | t8 t9
    ####block 5#  ####block 9#  ..block 2..
    published: others may hit        its own
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from grape_lc.engine.simulator.blocks import BlockPool
from grape_lc.engine.simulator.requests import Request


class KV:
    """Block tables over one pool; ``block_size`` tokens a block."""

    def __init__(self, blocks: int, block_size: int) -> None:
        self.pool = BlockPool(blocks)
        self.block_size = block_size

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self.pool.free

    def blocks(self, tokens: int) -> int:
        """Blocks that hold this many tokens."""
        return -(-tokens // self.block_size)

    def cached(self, request: Request) -> list[int]:
        """Cached blocks of a request that holds none; never all of its tokens."""
        text = request.text()
        return self.pool.find(text.hashes(), (text.length - 1) // self.block_size)

    def cost(self, request: Request, tokens: int, cached: Collection[int] = ()) -> int:
        """Free blocks that it takes to have room for ``tokens`` tokens, ``cached`` among them."""
        more = self.blocks(tokens) - len(request.blocks) - len(cached)
        return max(0, more) + self.pool.idle(cached)

    def grow(self, request: Request, tokens: int) -> bool:
        """Room for ``tokens`` tokens in all; False, and nothing happens, if the pool is short."""
        need = -(-tokens // self.block_size) - len(request.blocks)
        if need > 0:
            if need > self.pool.free:
                return False
            request.blocks += self.pool.take(need)
            request.view.held_blocks = len(request.blocks)
        if tokens // self.block_size > request.published:
            # What is only drafted is nobody else's yet.
            self._publish(request, min(tokens, request.view.tokens))
        return True

    def start(self, request: Request, cached: list[int], tokens: int) -> bool:
        """``grow`` for a request that may begin with ``cached`` blocks."""
        if self.cost(request, tokens, cached) > self.pool.free:
            return False
        if cached:
            self.pool.share(cached)
            request.blocks += cached
            request.published = request.view.held_blocks = len(cached)
        return self.grow(request, tokens)

    def _publish(self, request: Request, tokens: int) -> None:
        hashes = request.text().hashes()
        for place in range(request.published, tokens // self.block_size):
            self.pool.publish(request.blocks[place], hashes[place])
        request.published = max(request.published, tokens // self.block_size)

    def release(self, request: Request) -> None:
        """Give up all blocks; what is published stays cached while nobody needs the room."""
        self.pool.give_back(request.blocks)
        request.blocks = []
        request.published = request.view.held_blocks = 0

    def warm(self, request: Request) -> None:
        """Leave the full blocks of a text in the cache, as a call with it would have.

        A text for which there is no room is left out.
        """
        if self.start(request, self.cached(request), request.view.tokens):
            self.release(request)

    def claim(self, request: Request, limit: int, reserve: int) -> int:
        """Take what the cache has of an open prompt if that is all it may compute.

        limit: tokens that it may compute. Returns the tokens taken; 0 if the cache holds less, or
        if fewer than ``reserve`` blocks would stay free.
        """
        cached = self.cached(request)
        tokens = len(cached) * self.block_size
        if tokens < max(limit, 1) or self.free - self.pool.idle(cached) < reserve:
            return 0
        self.start(request, cached, tokens)
        return tokens

    def adopt(self, source: Request, target: Request) -> tuple[str, int]:
        """Hand the KV of an open prompt to a call that holds none; the outcome and the tokens.

        ``adopted``: one text is a prefix of the other. ``truncated``: up to the first difference,
        which lies behind all published blocks. ``mismatch`` and ``cold``: nothing is handed over.
        The last token of the call is computed again, for its logits.
        """
        most = min(source.view.computed, target.prompt - 1)
        if most <= 0:
            return "cold", 0
        published = source.published * self.block_size
        common = min(most, source.text().common(target.text()))
        outcome = "adopted"
        if common < most:
            if common < max(published, 1):
                return "mismatch", 0
            outcome = "truncated"
        elif common < published:
            common -= common % self.block_size  # it goes on from a block boundary
            if not common:
                return "mismatch", 0
        keep = self.blocks(common)
        self.pool.give_back(source.blocks[keep:])
        target.blocks = source.blocks[:keep]
        target.published = min(source.published, keep)
        target.view.held_blocks = keep
        source.blocks, source.published, source.view.held_blocks = [], 0, 0
        return outcome, common

    def freed_by(self, holders: Iterable[Request], cached: Collection[int] = ()) -> int:
        """Blocks that would be free if all ``holders`` gave up theirs, ``cached`` not counted."""
        count: dict[int, int] = {}
        for holder in holders:
            for block in holder.blocks:
                count[block] = count.get(block, 0) + 1
        kept = set(cached)
        return sum(
            self.pool.references(block) <= times and block not in kept
            for block, times in count.items()
        )

    def validate(self, requests: Iterable[Request]) -> None:
        """Raise AssertionError unless tables and pool agree; ``requests`` are all there are."""
        requests = list(requests)
        self.pool.validate([request.blocks for request in requests])
        for request in requests:
            view, held = request.view, len(request.blocks)
            assert held >= self.blocks(view.computed), (
                f"{view.id}: {held} blocks for {view.computed} tokens"
            )
            assert view.held_blocks == held, f"{view.id}: {held} blocks, not {view.held_blocks}"
            assert request.published <= held, f"{view.id}: {request.published} of {held} published"
            for block in request.blocks[request.published :]:
                assert self.pool.references(block) == 1, f"{view.id}: writes shared block {block}"
