"""What is refused, why, and that the call is then served as vLLM serves it."""

from __future__ import annotations

import pytest
from vllm.lora.request import LoRARequest
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from tests.contract.simulation import answer

PROMPT = list(range(100, 400))


@pytest.mark.parametrize(
    ("sampling", "request_fields", "why"),
    [
        ({}, {"lora_request": LoRARequest("a", 1, "/nowhere")}, "LoRA differs"),
        ({"prompt_logprobs": 1}, {}, "prompt logprobs"),
        ({"skip_reading_prefix_cache": True}, {}, "the call reads no cached prefix"),
    ],
)
def test_calls_that_must_not_adopt(simulate, sampling, request_fields, why):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.add(
        "r",
        PROMPT[:80],
        {"op": "call", "adopt": "o"},
        sampling=sampling,
        **request_fields,
    )
    assert s.computed("r") == 0
    assert "o" not in s.scheduler.requests
    s.idle()
    assert s.outcomes["r"] == {"outcome": f"refused:{why}", "tokens": 0}
    assert s.answers["r"] == answer(PROMPT[:80], 8)


def test_same_salt_adopts(simulate):
    s = simulate()
    s.add("o", PROMPT[:60], {"op": "open"}, cache_salt="tenant")
    s.idle()
    s.add("r", PROMPT[:80], {"op": "call", "adopt": "o"}, cache_salt="tenant")
    s.idle()
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 59}


@pytest.mark.parametrize("state", [PauseState.PAUSED_NEW, PauseState.PAUSED_ALL])
def test_paused_engine(simulate, state):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.open("later", PROMPT[:50])
    s.scheduler.set_pause_state(state)
    assert not s.scheduler.has_unfinished_requests(), "open prompts do not run in a pause"
    s.call("r", PROMPT[:80], adopt="o")
    for _ in range(5):
        s.step()
    assert not s.answers["r"]
    assert s.computed("later") == 0
    s.scheduler.set_pause_state(PauseState.UNPAUSED)
    s.idle()
    assert s.outcomes["r"] == {"outcome": "refused:the engine is paused", "tokens": 0}
    assert s.answers["r"] == answer(PROMPT[:80], 8)
    assert s.computed("later") == 49


@pytest.mark.parametrize(
    "message",
    [
        {"op": "open", "hops": -1},
        {"op": "open", "v": 2},
        {"op": "append"},
        {"op": "append", "key": 7},
        {"op": "append", "key": "o", "final": "yes"},
    ],
)
def test_malformed_control_message_is_dropped(simulate, message):
    s = simulate()
    s.add("x", PROMPT[:20], message)
    assert "x" not in s.scheduler.requests
    s.idle()
    assert s.counters["malformed"] == 1


@pytest.mark.parametrize(
    "message", [{"op": "call", "adopt": 5}, {"op": "call", "v": None}, {"op": "sing"}, {}]
)
def test_malformed_call_is_an_ordinary_call(simulate, message):
    s = simulate()
    s.add("r", PROMPT[:20], message)
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:20], 8)
    assert s.counters["malformed"] == 1
    assert "r" not in s.outcomes


def test_message_that_is_no_mapping(simulate):
    s = simulate()
    s.add("r", PROMPT[:20], None, sampling={"extra_args": {"grape": "adopt"}})
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:20], 8)


def test_empty_open_and_empty_append(simulate):
    s = simulate()
    s.open("e", [])
    s.open("o", PROMPT[:1])
    s.append("o", [])
    s.idle()
    assert "e" not in s.scheduler.requests
    assert s.computed("o") == 0
    s.call("r", PROMPT[:20], adopt="e")
    s.call("r2", PROMPT[:1], adopt="o")
    s.idle()
    assert s.outcomes["r"]["outcome"] == "refused:no prompt tokens"
    assert s.outcomes["r2"]["outcome"] == "cold"
    assert s.answers["r2"] == answer(PROMPT[:1], 8)


def test_open_with_the_id_of_a_running_call(simulate):
    s = simulate()
    s.plain("r", PROMPT[:20])
    s.open("r", PROMPT[:30])
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:20], 8)
    assert s.counters["refused"] == 1


def test_ids_of_control_messages_are_given_back_to_the_client(simulate):
    """With several engines the client keeps a routing entry for each id until it ended."""
    s = simulate(finished_sets=True)
    s.open("o", PROMPT[:40])
    s.add("a1", PROMPT[40:60], {"op": "append", "key": "o"})
    s.add("a2", PROMPT[60:70], {"op": "append", "key": "gone"})
    s.add("bad", PROMPT[60:70], {"op": "open", "hops": "x"})
    s.idle()
    assert {"a1", "a2", "bad"} <= s.told
    assert "o" not in s.told
    s.call("r", PROMPT[:80], adopt="o")
    s.idle()
    assert {"o", "r"} <= s.told


def test_engine_that_keeps_no_open_prompts(simulate):
    s = simulate()
    s.scheduler._unmovable = "a KV connector is configured"
    s.open("o", PROMPT[:60])
    s.append("o", PROMPT[60:70])
    s.idle()
    assert s.scheduler.grape_stats()["disabled"] == "a KV connector is configured"
    s.call("r", PROMPT[:80], adopt="o")
    s.idle()
    assert s.outcomes["r"]["outcome"] == "refused:a KV connector is configured"
    assert s.answers["r"] == answer(PROMPT[:80], 8)


def test_several_answers_of_one_call(simulate):
    """vLLM makes n requests with the same extra arguments: the first adopts."""
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    for child in range(3):
        s.call(f"{child}_r", PROMPT[:80], adopt="o", feeds=True)
    s.idle()
    assert s.outcomes["0_r"] == {"outcome": "adopted", "tokens": 59}
    assert s.outcomes["1_r"]["outcome"] == "refused:taken by another call"
    for child in range(3):
        assert s.answers[f"{child}_r"] == answer(PROMPT[:80], 8)


def test_aborted_adopted_call(simulate):
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("waiting", PROMPT[:80], adopt="o")
    s.scheduler.finish_requests("waiting", RequestStatus.FINISHED_ABORTED)
    s.open("p", PROMPT[:60])
    s.idle()
    s.call("running", PROMPT[:80], adopt="p", n=50)
    for _ in range(6):
        s.step()
    s.scheduler.finish_requests(["running"], RequestStatus.FINISHED_ABORTED)
    s.idle()
    assert s.free == s.base


def test_everything_is_finished_at_once(simulate):
    s = simulate()
    s.open("o1", PROMPT[:60])
    s.open("o2", PROMPT[:160])
    s.plain("r", PROMPT[:20])
    s.step()
    s.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    s.idle()
    assert not s.scheduler.requests
    assert s.counters["released"] == 2
    assert s.free == s.base


def test_without_prefix_caching(simulate):
    s = simulate(caching=False)
    s.open("o", PROMPT[:100])
    s.open("p", PROMPT[:100])
    s.idle()
    s.call("r", PROMPT[:120], adopt="o")
    s.call("d", PROMPT[:20] + [7] * 60, adopt="p")
    s.idle()
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 99}
    assert s.outcomes["d"] == {"outcome": "truncated", "tokens": 20}
    assert s.answers["r"] == answer(PROMPT[:120], 8)
    assert s.answers["d"] == answer(PROMPT[:20] + [7] * 60, 8)


def test_other_connector_parameters_are_kept(simulate):
    """A connector's own parameters travel in the same field of an output."""
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("r", PROMPT[:80], adopt="o", n=1)
    planned = s.scheduler.schedule()
    result = s.worker.execute(planned)
    s.scheduler._connector_finished = lambda request: (False, {"remote": 1})
    outputs = s.scheduler.update_from_output(planned, result)[0].outputs
    assert outputs[0].kv_transfer_params == {
        "remote": 1,
        "grape": {"outcome": "adopted", "tokens": 59},
    }


def test_every_output_says_what_was_adopted(simulate):
    """A slow reader gets several outputs merged, of which the last one's fields survive."""
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.call("r", PROMPT[:80], adopt="o", n=5)
    seen = []
    while "r" in s.scheduler.requests:
        s.outcomes.clear()
        before = len(s.answers["r"])
        s.step()
        if len(s.answers["r"]) > before:
            seen.append(s.outcomes.get("r"))
    assert seen == [{"outcome": "adopted", "tokens": 59}] * 5
