from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.vllm_counts import KVCounts


class Steps:
    """Requests that a fake scheduler computes."""

    def __init__(self) -> None:
        self.counts = KVCounts(10, 64)
        self.requests: dict[str, Any] = {}

    def run(self, free: int = 10, **tokens: int) -> None:
        for name, count in tokens.items():
            request = self.requests.setdefault(name, SimpleNamespace(num_computed_tokens=0))
            request.num_computed_tokens += count
        self.counts.stepped(tokens, self.requests, free)

    def lose(self, name: str, cached: int = 0) -> None:
        """The request has lost its KV, and finds ``cached`` tokens when it goes on."""
        self.counts.lost(name, self.requests[name].num_computed_tokens)
        self.requests[name].num_computed_tokens = cached

    def told(self, name: str) -> int:
        return self.counts.told()[name]


def test_the_peak_is_of_blocks_in_use_since_the_cache_was_emptied():
    steps = Steps()
    steps.run(free=4)
    steps.run(free=7)
    assert (steps.told("peak_kv_blocks"), steps.told("peak_kv_bytes")) == (6, 384)
    steps.counts.emptied()
    assert steps.told("peak_kv_blocks") == 0
    steps.run(free=9)
    assert steps.told("peak_kv_blocks") == 1


def test_tokens_up_to_where_a_request_was_are_recomputed():
    steps = Steps()
    steps.run(a=100)
    steps.lose("a", cached=32)
    assert (steps.told("evictions"), steps.told("recomputed_tokens")) == (1, 0)
    steps.run(a=40)
    assert steps.told("recomputed_tokens") == 40
    # 28 are left; the others of this step are new.
    steps.run(a=50)
    steps.run(a=1)
    assert steps.told("recomputed_tokens") == 68


def test_a_request_that_is_evicted_again_on_the_way_recomputes_no_more_than_it_does():
    steps = Steps()
    steps.run(a=100)
    steps.lose("a")
    steps.run(a=10)
    steps.lose("a")
    steps.run(a=100)
    assert (steps.told("evictions"), steps.told("recomputed_tokens")) == (2, 110)


def test_a_request_that_ends_recomputes_nothing():
    steps = Steps()
    steps.run(a=100)
    steps.lose("a")
    del steps.requests["a"]
    steps.run(b=1)
    steps.run(a=100)
    assert steps.told("recomputed_tokens") == 0


def test_what_has_computed_nothing_loses_nothing():
    steps = Steps()
    steps.run(a=0)
    steps.lose("a")
    steps.run(a=100)
    assert (steps.told("evictions"), steps.told("recomputed_tokens")) == (1, 0)


def test_a_call_recomputes_what_its_open_prompt_lost():
    steps = Steps()
    steps.run(open=100)
    steps.lose("open")
    steps.counts.handed_over("open", "call", [1] * 60 + [2] * 60, [1] * 60 + [3] * 60)
    steps.requests["call"] = SimpleNamespace(num_computed_tokens=0)
    steps.run(call=120)
    assert steps.told("recomputed_tokens") == 60


@pytest.mark.parametrize(("opened", "asked"), [(None, [1]), ([1], None), ([1], [2])])
def test_a_call_that_says_something_else_recomputes_nothing(opened: Any, asked: Any):
    steps = Steps()
    steps.run(open=1)
    steps.lose("open")
    steps.counts.handed_over("open", "call", opened, asked)
    steps.run(call=50)
    assert steps.told("recomputed_tokens") == 0


def test_a_block_is_a_share_of_all_tensors():
    tensors = [SimpleNamespace(size=1100), SimpleNamespace(size=1100)]
    config = SimpleNamespace(num_blocks=11, kv_cache_tensors=tensors)
    counts = KVCounts.of(SimpleNamespace(kv_cache_config=config))
    counts.stepped({}, {}, 7)
    assert counts.told()["peak_kv_blocks"] == 3
    assert counts.told()["peak_kv_bytes"] == 600


@given(st.lists(st.tuples(st.integers(1, 30), st.none() | st.integers(0, 30)), max_size=20))
def test_all_that_ran_is_either_new_or_recomputed(script: list[tuple[int, int | None]]):
    steps, ran, reached, at = Steps(), 0, 0, 0
    for tokens, found in script:
        steps.run(a=tokens)
        ran, at = ran + tokens, at + tokens
        reached = max(reached, at)
        if found is not None:
            at = min(found, reached)
            steps.lose("a", cached=at)
    assert ran == reached + steps.told("recomputed_tokens")
