"""Resetting the prefix cache and ending the engine with open prompts alive."""

from __future__ import annotations

from tests.contract.simulation import answer

PROMPT = list(range(100, 400))


def test_reset_forgets_the_kv_of_open_prompts(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    assert s.scheduler.reset_prefix_cache()
    assert s.computed("o") == 0
    assert s.free == s.base
    s.idle()
    assert s.computed("o") == 59
    s.call("r", PROMPT[:80], adopt="o")
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:80], 8)


def test_reset_while_an_open_prompts_chunk_is_in_flight(simulate):
    s = simulate()
    s.open("o", PROMPT[:160])
    s.step()
    assert s.scheduler.reset_prefix_cache()
    s.idle()
    s.call("r", PROMPT[:180], adopt="o")
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:180], 8)


def test_reset_of_running_requests_and_of_an_adopted_call_that_waits(simulate):
    """vLLM raises if anything still holds KV after it preempted what runs."""
    s = simulate(rows=1)
    s.open("o", PROMPT[:60])
    s.idle()
    s.plain("running", [7] * 40, n=40)
    for _ in range(8):
        s.step()
    s.call("r", PROMPT[:80], adopt="o")
    assert s.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert s.free == s.base
    s.idle()
    assert s.outcomes["r"] == {"outcome": "cold", "tokens": 0}
    assert s.answers["r"] == answer(PROMPT[:80], 8)
    assert s.answers["running"] == answer([7] * 40, 40)


def test_reset_fails_as_in_vllm_while_requests_run(simulate):
    s = simulate()
    s.plain("r", [7] * 40, n=20)
    s.step()
    assert not s.scheduler.reset_prefix_cache()
    s.idle()
    assert s.answers["r"] == answer([7] * 40, 20)


def test_preempted_before_its_first_token(simulate):
    s = simulate(step_tokens=32)
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("r", PROMPT[:200], adopt="o")
    s.step()
    assert s.scheduler.reset_prefix_cache(reset_running_requests=True)
    s.idle()
    assert s.outcomes["r"] == {"outcome": "cold", "tokens": 0}
    assert s.answers["r"] == answer(PROMPT[:200], 8)


def test_release_all(simulate):
    s = simulate()
    s.open("o1", PROMPT[:60])
    s.open("o2", PROMPT[:160])
    s.plain("r", PROMPT[:20], n=5)
    s.step()
    assert s.scheduler.grape_release_all() == 2
    assert s.scheduler.grape_release_all() == 0
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:20], 5)


def test_shutdown_releases(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.scheduler.shutdown()
    assert not s.scheduler.requests
    assert s.free == s.base
