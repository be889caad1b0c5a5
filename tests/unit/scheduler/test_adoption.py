"""How far a call can go on from an open prompt."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.vllm_adoption import fit

few = st.lists(st.integers(0, 1), min_size=1, max_size=40)


@given(prompt=few, opened=few, computed=st.integers(0, 40), full_blocks=st.integers(0, 10))
def test_never_more_than_is_safe(prompt, opened, computed, full_blocks):
    computed = min(computed, len(opened) - 1)
    hashed = min(full_blocks, computed // 4) * 4
    outcome, tokens = fit(prompt, opened, computed, hashed, 4)
    assert 0 <= tokens <= min(computed, len(prompt) - 1)
    assert prompt[:tokens] == opened[:tokens]
    # It goes on writing at this place, which no other request may read.
    assert tokens == 0 or tokens >= hashed or tokens % 4 == 0
    assert (tokens > 0) == (outcome in {"adopted", "truncated"})
    # Nothing that is safe is given away, but for what the prefix cache serves as well.
    if prompt[:computed] == opened[:computed] and len(prompt) > computed > 0:
        assert (outcome, tokens) == ("adopted", computed)
    if outcome == "cold":
        assert computed == 0 or len(prompt) == 1


@given(opened=few, more=few)
def test_the_predicted_prompt_is_adopted_whole(opened, more):
    computed = len(opened) - 1
    outcome, tokens = fit(opened + more, opened, computed, computed // 4 * 4, 4)
    assert (outcome, tokens) == (("adopted", computed) if computed else ("cold", 0))
