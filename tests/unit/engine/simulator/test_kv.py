from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.engine.simulator.kv import KV
from grape_lc.engine.simulator.requests import Request
from grape_lc.engine.simulator.tokens import Text
from grape_lc.engine.vllm_adoption import fit
from grape_lc.scheduler.types import RequestView, Stage

SIZE = 4
segments = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), min_size=1, max_size=5)


def request_of(parts: list[tuple[int, int]], name: str = "r", hold_back: int = 0) -> Request:
    text = Text(SIZE)
    for source, tokens in parts:
        text.append(source, tokens)
    view = RequestView(name, 1, 0.0, Stage.WAITING, text.length, hold_back=hold_back)
    return Request(view, text, text.length)


def ids(request: Request) -> list[tuple[int, int]]:
    return [(source, n) for source, count in request.known.segments() for n in range(count)]


@settings(deadline=None)
@given(segments, segments, st.integers(0, 60))
def test_adoption_is_decided_as_in_vllm(opened, called, computed):
    kv = KV(60, SIZE)
    source, target = request_of(opened, "open", hold_back=1), request_of(called, "call")
    computed = min(computed, source.view.tokens - 1)
    if computed:
        assert kv.start(source, [], computed)
        source.view.computed = computed
    # vLLM's rule works on ids; what it calls hashed is published here.
    expected = fit(
        [hash(token) for token in ids(target)],
        [hash(token) for token in ids(source)],
        computed,
        source.published * SIZE,
        SIZE,
    )
    assert kv.adopt(source, target) == expected
    target.view.computed = expected[1]
    source.view.computed = 0 if expected[1] else computed
    kv.validate([source, target])
    kv.release(source)
    kv.release(target)
    assert kv.free == 60


def test_a_request_finds_what_another_one_published_but_never_all_of_itself():
    kv = KV(20, SIZE)
    first, second = request_of([(1, 12)]), request_of([(1, 12)])
    assert kv.start(first, [], 12)
    assert kv.cached(second) == first.blocks[:2]
    assert kv.cost(second, 12, kv.cached(second)) == 1
    kv.release(first)
    assert kv.cost(second, 12, kv.cached(second)) == 3


def test_a_warmed_text_is_in_the_cache_and_held_by_nobody():
    kv = KV(6, SIZE)
    kv.warm(request_of([(1, 11)]))
    kv.warm(request_of([(1, 8), (2, 30)]))  # no room
    assert kv.free == 6
    assert len(kv.cached(request_of([(1, 11), (3, 9)]))) == 2
    assert kv.cached(request_of([(2, 30)])) == []
    kv.validate([])


def test_too_little_room_changes_nothing():
    kv = KV(3, SIZE)
    first, second = request_of([(1, 8)]), request_of([(2, 8)])
    assert kv.start(first, [], 8)
    assert not kv.start(second, [], 8)
    assert second.blocks == []
    assert not kv.grow(first, 17)
    assert first.view.held_blocks == 2
    assert kv.free == 1


def test_an_open_prompt_claims_what_the_cache_holds_only_if_that_is_all():
    kv = KV(20, SIZE)
    first = request_of([(1, 9)])
    assert kv.start(first, [], 9)
    whole, longer = request_of([(1, 9)], hold_back=1), request_of([(1, 14)], hold_back=1)
    assert kv.claim(longer, 13, reserve=0) == 0
    assert kv.claim(whole, 8, reserve=19) == 0
    assert kv.claim(whole, 8, reserve=0) == 8
    assert whole.blocks == first.blocks[:2]


def test_what_giving_up_would_free_leaves_out_what_others_hold_and_what_is_hit():
    kv = KV(20, SIZE)
    one, other = request_of([(1, 12)]), request_of([(1, 12)])
    assert kv.start(one, [], 12)
    assert kv.start(other, kv.cached(other), 12)
    assert kv.freed_by([one]) == 1
    assert kv.freed_by([one, other]) == 4
    assert kv.freed_by([one, other], one.blocks[:2]) == 2


def test_validation_tells_a_shared_block_that_is_written():
    kv = KV(20, SIZE)
    one, other = request_of([(1, 12)]), request_of([(1, 12)])
    assert kv.start(one, [], 12)
    assert kv.start(other, kv.cached(other), 12)
    one.published = 1
    with pytest.raises(AssertionError, match="r: writes shared block"):
        kv.validate([one, other])
