from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from grape_lc.engine.simulator.blocks import BlockPool

TOTAL = 12


def test_a_pool_without_blocks_is_refused():
    with pytest.raises(ValueError, match="at least one block, not 0"):
        BlockPool(0)


def test_more_than_there_is_cannot_be_taken():
    pool = BlockPool(3)
    pool.take(2)
    with pytest.raises(ValueError, match="2 blocks wanted, 1 of 3 are free"):
        pool.take(2)


def test_a_hit_takes_cached_blocks_up_to_the_first_that_is_missing():
    pool = BlockPool(4)
    blocks = pool.take(3)
    for block, value in zip(blocks, (11, 12, 13), strict=True):
        pool.publish(block, value)
    pool.give_back(blocks)
    assert pool.find((11, 12, 99, 13), 4) == blocks[:2]
    assert pool.find((11, 12, 13), 1) == blocks[:1]
    pool.share(blocks[:2])
    assert pool.free == 2
    assert pool.idle(blocks) == 1


def test_blocks_without_a_hash_go_first_then_unused_ones_then_the_oldest_cached_tail_first():
    pool = BlockPool(5)
    first, second, third = pool.take(1), pool.take(2), pool.take(1)
    pool.publish(first[0], 1)
    pool.publish(second[0], 2)
    pool.publish(second[1], 3)
    pool.give_back(second)
    pool.give_back(first)
    pool.give_back(third)
    assert pool.take(5) == [*third, 4, second[1], second[0], first[0]]
    assert pool.find((1, 2, 3), 3) == []


def test_of_two_blocks_with_one_hash_the_other_serves_when_the_first_is_taken():
    pool = BlockPool(2)
    (first,), (second,) = pool.take(1), pool.take(1)
    pool.publish(first, 5)
    pool.publish(second, 5)
    assert pool.find((5,), 1) == [first]
    pool.give_back([first])
    pool.take(1)
    assert pool.find((5,), 1) == [second]


def test_only_an_unused_pool_can_be_reset():
    pool = BlockPool(2)
    blocks = pool.take(1)
    pool.publish(blocks[0], 1)
    assert not pool.reset()
    pool.give_back(blocks)
    assert pool.reset()
    assert pool.find((1,), 1) == []
    assert pool.free == 2


class Pool(RuleBasedStateMachine):
    """Requests that take, publish, share and give back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(TOTAL)
        self.requests: list[list[int]] = []
        self.full: list[int] = []  # blocks of each request that have their hash

    @rule(count=st.integers(1, 4), chain=st.integers(0, 2))
    def start(self, count: int, chain: int) -> None:
        hashes = [chain * 100 + index for index in range(count)]
        hits = self.pool.find(hashes, count - 1)
        cost = count - len(hits) + self.pool.idle(hits)
        if cost > self.pool.free:
            return
        free = self.pool.free
        self.pool.share(hits)
        blocks = [*hits, *self.pool.take(count - len(hits))]
        assert self.pool.free == free - cost
        for index in range(len(hits), count - 1):
            self.pool.publish(blocks[index], hashes[index])
        self.requests.append(blocks)
        self.full.append(count - 1)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.requests) - 1))
        self.pool.give_back(self.requests.pop(index))
        self.full.pop(index)

    @precondition(lambda self: not self.requests)
    @rule()
    def reset(self) -> None:
        assert self.pool.reset()

    @invariant()
    def conserved(self) -> None:
        self.pool.validate(self.requests)

    def teardown(self) -> None:
        for blocks in self.requests:
            self.pool.give_back(blocks)
        assert self.pool.free == TOTAL
        self.pool.validate([])


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
