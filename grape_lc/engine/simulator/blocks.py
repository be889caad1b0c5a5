"""The KV block pool with prefix caching, as vLLM's ``BlockPool`` keeps it.

    taken from here first                                         taken last
    | freed, without a hash | never used | freed and cached, oldest ... newest |
      last in, first out                   a hit takes a block out of the middle

A block that is full has a hash, which stands for it and all before it, and may be read by several
requests. When nobody reads it any more it stays cached until its turn comes to be taken. vLLM's
null block is not among the blocks of this pool.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """``total`` blocks, numbered from 0; raises ValueError unless there is at least one."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ValueError(f"a pool needs at least one block, not {total}")
        self.total = total
        self._refs: list[int] = []  # of the blocks used so far; the others were never taken
        self._hash: list[int | None] = []
        self._spare: list[int] = []
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._by_hash: dict[int, int] = {}
        self._twins: dict[int, list[int]] = {}  # further blocks with the same hash

    @property
    def free(self) -> int:
        """Blocks that nobody holds; cached ones among them count."""
        return self.total - len(self._refs) + len(self._spare) + len(self._cached)

    def find(self, hashes: Sequence[int], most: int) -> list[int]:
        """Cached blocks of the longest prefix of ``hashes``, at most ``most``; takes none."""
        found: list[int] = []
        by_hash = self._by_hash
        for index in range(min(most, len(hashes))):
            block = by_hash.get(hashes[index])
            if block is None:
                break
            found.append(block)
        return found

    def idle(self, blocks: Iterable[int]) -> int:
        """How many of these blocks nobody holds."""
        refs = self._refs
        return sum(refs[block] == 0 for block in blocks)

    def take(self, count: int) -> list[int]:
        """Blocks for new tokens; what was cached in them is forgotten.

        Raises ValueError if fewer are free.
        """
        if count > self.free:
            raise ValueError(f"{count} blocks wanted, {self.free} of {self.total} are free")
        taken = []
        for _ in range(count):
            if self._spare:
                block = self._spare.pop()
                self._refs[block] = 1
            elif len(self._refs) < self.total:
                block = len(self._refs)
                self._refs.append(1)
                self._hash.append(None)
            else:
                block, _ = self._cached.popitem(last=False)
                self._forget(block)
                self._refs[block] = 1
            taken.append(block)
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """One more request holds these cached blocks."""
        for block in blocks:
            if self._refs[block] == 0:
                del self._cached[block]
            self._refs[block] += 1

    def give_back(self, blocks: Sequence[int]) -> None:
        """A request lets go of its blocks, given in the order of its tokens.

        They join the queue last one first, so that a prefix outlives what follows it.
        """
        for block in reversed(blocks):
            self._refs[block] -= 1
            if self._refs[block] == 0:
                if self._hash[block] is None:
                    self._spare.append(block)
                else:
                    self._cached[block] = None

    def publish(self, block: int, value: int) -> None:
        """A held block is full and gets its hash; later requests may hit it."""
        self._hash[block] = value
        if self._by_hash.setdefault(value, block) != block:
            self._twins.setdefault(value, []).append(block)

    def reset(self) -> bool:
        """Forget all that is cached; False, and nothing happens, while a block is held."""
        if self.free < self.total:
            return False
        self._refs.clear()
        self._hash.clear()
        self._spare.clear()
        self._cached.clear()
        self._by_hash.clear()
        self._twins.clear()
        return True

    def references(self, block: int) -> int:
        """How many requests hold a block."""
        return self._refs[block] if block < len(self._refs) else 0

    def _forget(self, block: int) -> None:
        value = self._hash[block]
        self._hash[block] = None
        assert value is not None, f"block {block} is cached and has no hash"
        twins = self._twins.get(value)
        if twins is None:
            del self._by_hash[value]
            return
        if self._by_hash[value] == block:
            self._by_hash[value] = twins.pop(0)
        else:
            twins.remove(block)
        if not twins:
            del self._twins[value]

    def validate(self, holders: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless ``holders``, the blocks of every request, explain the pool.

        Every block is held as often as ``holders`` say, or is free and in one queue only.
        """
        held = Counter(block for blocks in holders for block in blocks)
        spare = Counter(self._spare)
        for block, refs in enumerate(self._refs):
            assert refs == held[block], f"block {block}: {refs} references, {held[block]} holders"
            queued = spare[block] + (block in self._cached)
            assert queued == (refs == 0), f"block {block}: {refs} references, in {queued} queues"
            if block in self._cached:
                assert self._hash[block] is not None, f"block {block} is cached without a hash"
            if spare[block]:
                assert self._hash[block] is None, f"block {block} has a hash and is not cached"
        unknown = [block for block in held if not 0 <= block < len(self._refs)]
        assert not unknown, f"held blocks that were never taken: {unknown}"
        assert self.free + len(held) == self.total, f"{self.free} free, {len(held)} held"
        named = Counter(self._by_hash.values())
        named.update(block for twins in self._twins.values() for block in twins)
        for block, value in enumerate(self._hash):
            assert named[block] == (value is not None), f"block {block} is named {named[block]}x"
        for value, block in self._by_hash.items():
            assert self._hash[block] == value, f"hash {value} names block {block}"
