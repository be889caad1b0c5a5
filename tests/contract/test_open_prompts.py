"""Open, append, adopt and release on vLLM's real scheduler."""

from __future__ import annotations

import pytest

from tests.contract.simulation import BLOCK, MAX_LEN, answer

PROMPT = list(range(100, 400))


def test_grows_idles_and_is_adopted_with_its_partial_block(simulate):
    s = simulate()
    s.open("o", PROMPT[:70])
    s.idle()
    assert s.computed("o") == 69, "all but the last token"
    assert not s.scheduler.has_requests(), "an idle open prompt costs no steps"
    s.append("o", PROMPT[70:90])
    assert s.scheduler.has_requests()
    s.idle()
    assert s.computed("o") == 89
    s.call("r", PROMPT[:120], adopt="o")
    assert s.computed("r") == 89
    assert "o" not in s.scheduler.requests
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:120], 8)
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 89}
    assert s.counters["adopted"] == 1
    assert s.counters["adopted_tokens"] == 89
    assert s.free == s.base


def test_open_prompts_never_answer(simulate):
    s = simulate()
    s.open("o", PROMPT[:70])
    s.idle()
    assert not s.answers
    assert not s.finished


def test_less_than_a_block(simulate):
    s = simulate()
    s.open("o", PROMPT[:12])
    s.idle()
    s.call("r", PROMPT[:30], adopt="o")
    assert s.computed("r") == 11
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:30], 8)


def test_adopted_while_its_chunk_is_in_flight(simulate):
    s = simulate()
    s.open("o", PROMPT[:150])
    planned = s.scheduler.schedule()
    s._queue.append((planned, s.worker.execute(planned)))
    s.append("o", PROMPT[150:170])
    s.call("r", PROMPT[:171], adopt="o")
    assert s.computed("r") == 64
    s.collect()
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:171], 8)


@pytest.mark.parametrize(
    ("prompt", "outcome", "tokens"),
    [
        (PROMPT[:85] + [7] * 30, "truncated", 85),
        (PROMPT[:80] + [7] * 30, "truncated", 80),
        (PROMPT[:20] + [7] * 90, "mismatch", 0),
        ([7] * 40, "mismatch", 0),
        (PROMPT[:91], "adopted", 90),
        (PROMPT[:88], "adopted", 87),
        (PROMPT[:40], "adopted", 2 * BLOCK),
        (PROMPT[:5], "mismatch", 0),
    ],
)
def test_prompt_that_differs_or_ends_early(simulate, prompt, outcome, tokens):
    s = simulate()
    s.open("o", PROMPT[:91])
    s.idle()
    s.call("r", prompt, adopt="o")
    s.idle()
    assert s.answers["r"] == answer(prompt, 8)
    assert s.outcomes["r"] == {"outcome": outcome, "tokens": tokens}
    assert s.free == s.base


def test_unknown_key_and_a_key_used_twice(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("a", PROMPT[:80], adopt="never")
    s.call("b", PROMPT[:80], adopt="o")
    s.call("c", PROMPT[:80], adopt="o")
    s.append("o", PROMPT[:5])
    s.open("o", PROMPT[:60])
    s.idle()
    assert s.outcomes["a"]["outcome"] == "unknown"
    assert s.outcomes["b"]["outcome"] == "adopted"
    assert s.outcomes["c"]["outcome"].startswith("refused:taken")
    assert "o" not in s.scheduler.requests, "a stale abort could kill a second one"
    for request_id in "abc":
        assert s.answers[request_id] == answer(PROMPT[:80], 8)


def test_nothing_computed_is_cold(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.call("r", PROMPT[:80], adopt="o")
    s.idle()
    assert s.outcomes["r"] == {"outcome": "cold", "tokens": 0}
    assert s.answers["r"] == answer(PROMPT[:80], 8)


def test_release_frees_at_once(simulate):
    s = simulate()
    s.open("o", PROMPT[:150])
    s.step()
    s.release("o")
    assert s.free == s.base
    s.append("o", PROMPT[:10])
    s.idle()
    assert s.counters["released"] == 1
    assert s.counters["unknown"] == 1


def test_longer_than_the_model(simulate):
    s = simulate()
    prompt = [5 + i % 7 for i in range(MAX_LEN + 40)]
    s.open("o", prompt[: MAX_LEN - 20])
    s.append("o", prompt[MAX_LEN - 20 :])
    s.append("o", [9] * 10)
    s.idle()
    assert s.computed("o") == MAX_LEN - 2
    s.call("r", prompt[: MAX_LEN - 1], adopt="o", n=1)
    s.idle()
    assert s.answers["r"] == answer(prompt[: MAX_LEN - 1], 1)


def test_whole_prompt_in_the_prefix_cache(simulate):
    """The last computable token ends a cached block: there is no token to schedule."""
    s = simulate()
    prompt = PROMPT[: 4 * BLOCK + 1]
    s.plain("first", prompt, n=2)
    s.idle()
    s.open("o", prompt)
    s.idle()
    assert s.computed("o") == 4 * BLOCK
    s.call("r", [*prompt, 3, 4], adopt="o")
    s.idle()
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 4 * BLOCK}
    assert s.answers["r"] == answer([*prompt, 3, 4], 8)


def test_opened_longer_than_the_model(simulate):
    s = simulate()
    prompt = [5 + i % 7 for i in range(MAX_LEN + 40)]
    s.open("o", prompt)
    s.idle()
    assert s.computed("o") == MAX_LEN - 2
    s.call("r", prompt[: MAX_LEN - 1], adopt="o", n=1)
    s.idle()
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": MAX_LEN - 2}
    assert s.answers["r"] == answer(prompt[: MAX_LEN - 1], 1)


def test_append_leaves_the_list_alone_that_a_worker_may_hold(simulate):
    s = simulate()
    s.open("o", PROMPT[:40])
    held = s.scheduler.requests["o"].prompt_token_ids
    s.append("o", PROMPT[40:60])
    assert held == PROMPT[:40]
    s.idle()


def test_open_prompt_that_vllm_skips(simulate):
    """As it does when all LoRA slots of a step are taken."""
    s = simulate()
    stock = s.scheduler._handle_blocked_waiting_request
    s.scheduler._handle_blocked_waiting_request = lambda request: (
        request.request_id != "o" and stock(request)
    )
    s.open("o", PROMPT[:40])
    s.open("p", PROMPT[50:90])
    s.idle(turns=30)
    assert s.computed("p") == 39
    assert s.computed("o") == 0
    assert not s.scheduler.deferred_waiting
    del s.scheduler._handle_blocked_waiting_request
    s.append("o", PROMPT[40:50])
    s.idle()
    assert s.computed("o") == 49


def test_others_find_in_the_prefix_cache_what_was_appended(simulate):
    s = simulate(step_tokens=200)
    s.open("o", PROMPT[:70])
    s.append("o", PROMPT[70:100])
    s.idle()
    s.plain("other", PROMPT[:100])
    planned = s.scheduler.schedule()
    assert planned.num_scheduled_tokens == {"other": 100 - 6 * BLOCK}
    s._queue.append((planned, s.worker.execute(planned)))
    s.idle()
    assert s.answers["other"] == answer(PROMPT[:100], 8)
