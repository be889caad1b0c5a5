"""Messages that come while a step's output is on the way, as with asynchronous scheduling.

vLLM counts what such a step computes as computed when it schedules it, and has its output later.
Every step is checked by the worker: a wrong block is an error there.
"""

from __future__ import annotations

import pytest
from vllm.v1.request import RequestStatus

from tests.contract.simulation import BLOCK, KINDS, Kind, Simulation, answer

PROMPT = list(range(100, 400))
OTHER = list(range(500, 900))
ASYNC = [kind for kind in KINDS if kind.asynchronous]


@pytest.fixture(params=ASYNC, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """What ``simulate`` makes here: the asynchronous kinds only."""
    return request.param  # type: ignore[no-any-return]


def decoding(s: Simulation, name: str, prompt: list[int], n: int) -> None:
    """A call that decodes, with a token on the way."""
    s.plain(name, prompt, n=n)
    while not s.answers[name]:
        s.step()
    while not s.in_flight:
        s.step()
    assert s.scheduler.requests[name].num_in_flight_tokens > 0


@pytest.mark.parametrize("flying_steps", [1, 2])
def test_appended_while_its_chunks_are_on_the_way(simulate, flying_steps):
    s = simulate(settings={"open_cap": 32})
    s.open("o", PROMPT[:100])
    for _ in range(flying_steps):
        s.launch()
    assert s.computed("o") == 32 * flying_steps
    s.append("o", PROMPT[100:103])
    s.append("o", PROMPT[103:150])
    s.launch()
    assert s.in_flight == flying_steps + 1
    s.idle()
    assert s.computed("o") == 149
    s.call("r", PROMPT[:160], adopt="o")
    s.idle()
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 149}
    assert s.answers["r"] == answer(PROMPT[:160], 8)


@pytest.mark.parametrize(
    ("prompt", "outcome", "tokens"),
    [
        (PROMPT[:171], "adopted", 64),
        (PROMPT[:64], "adopted", 3 * BLOCK),
        (PROMPT[:40], "adopted", 2 * BLOCK),
        (PROMPT[:20] + [7] * 40, "mismatch", 0),
    ],
)
def test_adopted_while_its_last_chunk_is_on_the_way(simulate, prompt, outcome, tokens):
    """What the call does not take is freed while a step that writes there is on the way."""
    s = simulate()
    s.open("o", PROMPT[:150])
    s.launch()
    s.call("r", prompt, adopt="o")
    s.plain("other", OTHER[:120], n=6)
    s.launch()
    assert s.in_flight == 2
    s.idle()
    assert s.outcomes["r"] == {"outcome": outcome, "tokens": tokens}
    assert s.answers["r"] == answer(prompt, 8)
    assert s.answers["other"] == answer(OTHER[:120], 6)


def test_cut_in_the_tail_while_the_step_that_wrote_it_is_on_the_way(simulate):
    """The call overwrites what the open prompt's chunk just wrote, in the next step."""
    s = simulate()
    s.open("o", PROMPT[:61])
    s.launch()
    prompt = PROMPT[:55] + [7] * 20
    s.call("r", prompt, adopt="o")
    s.launch()
    s.idle()
    assert s.outcomes["r"] == {"outcome": "truncated", "tokens": 55}
    assert s.answers["r"] == answer(prompt, 8)


def test_released_and_opened_anew_while_its_chunk_is_on_the_way(simulate):
    s = simulate(blocks=12)
    s.open("o", PROMPT[:150])
    s.launch()
    s.release("o")
    assert s.free == s.base, "free at once: steps run in order"
    s.open("p", OTHER[:150])
    s.launch()
    s.idle()
    s.call("r", OTHER[:155], adopt="p", n=3)
    s.idle()
    assert s.outcomes["r"]["outcome"] == "adopted"
    assert s.answers["r"] == answer(OTHER[:155], 3)


def test_dropped_then_appended_while_its_chunk_is_on_the_way(simulate):
    """Real work takes its KV; what is appended then must not be computed behind what is gone."""
    s = simulate(blocks=14, settings={"governor": False})
    s.open("o", PROMPT[:100])
    s.launch()
    assert s.computed("o") == 64
    s.plain("r", OTHER[:180], n=10)
    while not s.counters["dropped"]:
        s.launch() if s.in_flight < 2 else s.collect()
    assert s.computed("o") == 0
    s.append("o", PROMPT[100:120])
    s.idle()
    assert s.answers["r"] == answer(OTHER[:180], 10)
    assert s.computed("o") == 119
    s.call("a", PROMPT[:130], adopt="o", n=4)
    s.idle()
    assert s.answers["a"] == answer(PROMPT[:130], 4)


def test_adopted_call_is_preempted_with_its_chunk_on_the_way(simulate):
    """It is queued again, and gets what it had by the prefix cache or anew."""
    s = simulate(step_tokens=32)
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("r", PROMPT[:150], adopt="o")
    s.launch()
    assert s.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert s.scheduler.requests["r"].status == RequestStatus.PREEMPTED
    s.open("p", PROMPT[:100])
    s.append("p", PROMPT[100:120])
    s.launch()
    s.idle()
    assert s.outcomes["r"] == {"outcome": "cold", "tokens": 0}
    assert s.answers["r"] == answer(PROMPT[:150], 8)
    assert s.computed("p") == 119


def test_preempted_with_a_token_on_the_way_waits_for_it(simulate):
    """Else the token would be sampled a second time."""
    s = simulate()
    decoding(s, "r", PROMPT[:40], 30)
    s.scheduler.reset_prefix_cache(reset_running_requests=True)
    request = s.scheduler.requests["r"]
    assert request.status == RequestStatus.PREEMPTED
    s.open("o", PROMPT[:60])
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:40], 30)
    assert s.computed("o") == 59


def test_aborted_while_its_first_step_is_on_the_way(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("r", PROMPT[:80], adopt="o")
    s.launch()
    s.scheduler.finish_requests("r", RequestStatus.FINISHED_ABORTED)
    assert s.free == s.base
    s.plain("next", OTHER[:90], n=5)
    s.launch()
    s.idle()
    assert s.answers["r"] == [], "nothing of it is told"
    assert s.answers["next"] == answer(OTHER[:90], 5)


def test_feeder_ends_with_one_more_step_on_the_way(simulate):
    """Its last token is known a step late: the step behind it was scheduled for it too."""
    s = simulate()
    s.open("o", PROMPT[:60])
    s.call("up", OTHER[:30], n=5, feeds=True)
    s.plain("busy", [9] * 20, n=60)
    while "up" not in s.finished:
        s.step()
    s.append("o", PROMPT[60:70], final=True)
    s.call("down", PROMPT[:75], adopt="o")
    s.idle()
    assert s.answers["up"] == answer(OTHER[:30], 5)
    assert s.answers["down"] == answer(PROMPT[:75], 8)
    assert s.answers["busy"] == answer([9] * 20, 60)


@pytest.mark.parametrize("how", ["abort", "preempt", "adopt"])
def test_with_drafts_on_the_way(simulate, how):
    s = simulate(drafts=3)
    decoding(s, "busy", [7] * 30, 40)
    s.open("o", PROMPT[:80])
    s.launch()
    if how == "abort":
        s.scheduler.finish_requests("busy", RequestStatus.FINISHED_ABORTED)
    elif how == "preempt":
        s.scheduler.reset_prefix_cache(reset_running_requests=True)
    s.append("o", PROMPT[80:90])
    s.call("r", PROMPT[:95], adopt="o", n=12)
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:95], 12)
    if how != "abort":
        assert s.answers["busy"] == answer([7] * 30, 40)


def test_short_of_kv_with_steps_on_the_way(simulate):
    """Calls are preempted with tokens on the way, while open prompts give way and come back."""
    s = simulate(blocks=20, rows=4, settings={"governor": False})
    s.open("o", PROMPT[:80])
    s.idle()
    for number in range(4):
        s.plain(f"r{number}", [11 + number] * 40, n=60)
    turns = 0
    while s.scheduler.has_unfinished_requests() and turns < 3000:
        turns += 1
        if turns % 7 == 0 and "o" in s.scheduler.requests:
            s.append("o", [3 + turns % 5])
        s.step()
        if len(s.finished) == 4:
            break
    assert s.counters["preemptions"] > 0
    assert s.counters["dropped"] > 0
    for number in range(4):
        assert s.answers[f"r{number}"] == answer([11 + number] * 40, 60)
    known = list(s.scheduler.requests["o"].prompt_token_ids)
    s.call("a", [*known, 9], adopt="o", n=4)
    s.idle()
    assert s.answers["a"] == answer([*known, 9], 4)
