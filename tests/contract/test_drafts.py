"""Open prompts beside speculative decoding."""

from __future__ import annotations

from tests.contract.simulation import answer

PROMPT = list(range(100, 400))


def test_drafting_alone(simulate):
    s = simulate(drafts=3)
    s.plain("r", PROMPT[:40], n=30)
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:40], 30)


def test_adopted_at_its_last_token_beside_drafting_calls(simulate):
    s = simulate(drafts=3)
    s.plain("busy", [7] * 30, n=60)
    s.open("o", PROMPT[:80])
    for _ in range(20):
        s.step()
    assert s.computed("o") == 79
    s.call("r", PROMPT[:80], adopt="o", n=20)
    s.idle()
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 79}
    assert s.answers["r"] == answer(PROMPT[:80], 20)
    assert s.answers["busy"] == answer([7] * 30, 60)


def test_cap_smaller_than_a_call_with_drafts(simulate):
    """A call that starts with drafts needs 1 + drafts tokens or is never started."""
    s = simulate(drafts=5, settings={"prefill_cap": 2, "grace_tokens": 1})
    s.plain("busy", [7] * 30, n=400)
    for _ in range(20):
        s.step()
    s.open("o", PROMPT[:39])
    s.append("o", PROMPT[39:40], final=True)
    for _ in range(50):
        s.step()
    assert s.computed("o") == 39
    s.call("r", PROMPT[:40], adopt="o", n=3)
    for _ in range(12):
        s.step()
    assert "r" in s.finished, "started beside the busy one"
    assert "busy" not in s.finished
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:40], 3)
    assert s.answers["busy"] == answer([7] * 30, 400)


def test_open_row_has_no_drafts_and_plain_greedy_sampling(simulate):
    s = simulate(drafts=3)
    s.add(
        "o",
        PROMPT[:60],
        {"op": "open"},
        sampling={"temperature": 0.9, "logprobs": 2, "seed": 7},
    )
    params = s.scheduler.requests["o"].sampling_params
    assert params.temperature == 0.0
    assert params.logprobs is None
    assert params.seed is None
    assert params.extra_args is None
    s.plain("busy", [7] * 30, n=30)
    s.idle()
    assert not s.scheduler.requests["o"].spec_token_ids
