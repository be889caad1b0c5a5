"""How long a step gets, and who comes first in it."""

from __future__ import annotations

from vllm.v1.request import RequestStatus

from tests.contract.simulation import answer

PROMPT = list(range(100, 400))
OTHER = list(range(500, 900))


def run_until_decoding(s, request_id):
    while not s.answers[request_id]:
        s.step()


def steps_of(s, turns):
    """Run, and return the tokens by request of each step that computed something."""
    seen = []
    schedule = s.scheduler.schedule

    def watch(*args):
        planned = schedule(*args)
        if planned.num_scheduled_tokens:
            seen.append(dict(planned.num_scheduled_tokens))
        return planned

    s.scheduler.schedule = watch
    for _ in range(turns):
        s.step()
    del s.scheduler.schedule
    return seen


def test_long_prefill_is_cut_while_another_request_decodes(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": 32})
    s.plain("busy", [7] * 20, n=60)
    run_until_decoding(s, "busy")
    s.plain("long", OTHER[:200], n=2)
    steps = steps_of(s, 10)
    assert max(step.get("long", 0) for step in steps) == 32
    assert all(step.get("busy") for step in steps)
    s.idle()
    assert s.answers["long"] == answer(OTHER[:200], 2)


def test_long_prefill_alone_is_not_cut(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": 32})
    s.plain("long", OTHER[:200], n=2)
    assert steps_of(s, 1)[0] == {"long": 200}


def test_prompt_with_a_seed_is_computed_in_one_step(simulate):
    """A chunk of it would end vLLM's CPU engine."""
    s = simulate(step_tokens=256, settings={"prefill_cap": 32})
    s.plain("busy", [7] * 20, n=60)
    run_until_decoding(s, "busy")
    s.plain("root", PROMPT[:250], n=2)
    s.add("seeded", OTHER[:200], None, n=2, sampling={"seed": 5, "temperature": 0.8})
    steps = steps_of(s, 10)
    assert [step["seeded"] for step in steps if step.get("seeded", 0) > 1] == [200]
    assert max(step.get("root", 0) for step in steps) == 32
    s.idle()
    assert s.answers["seeded"] == answer(OTHER[:200], 2)


def test_adopted_call_with_a_seed(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": 16})
    s.open("o", PROMPT[:60])
    s.idle()
    s.plain("busy", [7] * 20, n=60)
    run_until_decoding(s, "busy")
    sampling = {"seed": 5, "temperature": 0.8}
    s.add("r", PROMPT[:160], {"op": "call", "adopt": "o"}, n=2, sampling=sampling)
    steps = steps_of(s, 4)
    assert [step["r"] for step in steps if step.get("r", 0) > 1] == [101]
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:160], 2)


def test_no_cap(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": None})
    s.plain("busy", [7] * 20, n=60)
    run_until_decoding(s, "busy")
    s.plain("long", OTHER[:200], n=2)
    assert max(step.get("long", 0) for step in steps_of(s, 4)) == 200


def test_cap_is_shared_by_real_and_early_prefill(simulate):
    s = simulate(step_tokens=256, rows=12, settings={"prefill_cap": 48})
    s.plain("busy", [7] * 20, n=120)
    run_until_decoding(s, "busy")
    s.plain("long", OTHER[:200], n=2)
    for key in ("o1", "o2", "o3"):
        s.open(key, [ord(key[1])] * 100)
    for step in steps_of(s, 30):
        decodes = sum(1 for tokens in step.values() if tokens == 1)
        assert sum(step.values()) - decodes <= 48
    assert s.computed("o3") >= 96


def test_short_leftover_of_an_adopted_call_goes_before_a_long_root(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": 32})
    s.open("o", PROMPT[:60])
    s.idle()
    s.plain("busy", [7] * 20, n=100)
    run_until_decoding(s, "busy")
    s.plain("root", OTHER[:300], n=2)
    steps_of(s, 2)
    s.call("r", PROMPT[:80], adopt="o", n=2)
    steps = steps_of(s, 3)
    assert steps[0]["r"] == 21, "the whole leftover at once"
    assert "root" not in steps[0], "nothing else in the step of a task switch"
    assert steps[1]["root"] == 32, "but the root gets on in the next one"
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:80], 2)


def test_root_gets_on_beside_adopted_calls_that_cannot_start(simulate):
    s = simulate(step_tokens=256, rows=2, settings={"prefill_cap": 32})
    for key in ("o1", "o2", "o3"):
        s.open(key, [ord(key[1])] * 60)
    s.idle()
    s.plain("busy", [7] * 20, n=100)
    run_until_decoding(s, "busy")
    s.plain("root", OTHER[:300], n=2)
    s.step()
    for key in ("1", "2", "3"):
        s.call(f"r{key}", [ord(key)] * 80, adopt=f"o{key}", n=2)
    steps = steps_of(s, 8)
    assert all(step.get("root", 0) > 0 for step in steps)
    s.idle()
    assert s.answers["root"] == answer(OTHER[:300], 2)


def test_open_prompts_take_what_is_left_nearest_first(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": 40})
    s.plain("busy", [7] * 20, n=100)
    run_until_decoding(s, "busy")
    s.open("far", OTHER[:100], hops=2)
    s.open("near", PROMPT[:100], hops=1)
    steps = steps_of(s, 6)
    assert steps[0].get("near") == 40
    assert "far" not in steps[0]
    s.idle()
    assert s.computed("far") == 99


def test_less_than_a_chunk_waits_unless_final(simulate):
    s = simulate(settings={"chunk": 16})
    s.plain("busy", [7] * 20, n=100)
    run_until_decoding(s, "busy")
    s.open("o", PROMPT[:40])
    steps_of(s, 4)
    assert s.computed("o") == 39
    s.append("o", PROMPT[40:50])
    steps_of(s, 4)
    assert s.computed("o") == 39
    s.append("o", PROMPT[50:52], final=True)
    steps_of(s, 4)
    assert s.computed("o") == 51


def test_less_than_a_chunk_runs_in_an_idle_engine(simulate):
    s = simulate(settings={"chunk": 16})
    s.open("o", PROMPT[:40])
    s.idle()
    s.append("o", PROMPT[40:43])
    s.idle()
    assert s.computed("o") == 42


def test_early_work_in_an_idle_engine_comes_in_short_steps(simulate):
    s = simulate(step_tokens=256, settings={"open_cap": 50})
    s.open("o", PROMPT[:200])
    assert steps_of(s, 1)[0] == {"o": 50}


def test_early_work_does_not_lengthen_a_step_of_real_prefill(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": 64})
    s.open("o", PROMPT[:100])
    s.plain("r", OTHER[:90], n=2)
    assert steps_of(s, 1)[0] == {"r": 90}


def test_no_free_run_slot(simulate):
    s = simulate(rows=2)
    for k in (1, 2):
        s.plain(f"r{k}", [k + 3] * 20, n=20)
    run_until_decoding(s, "r2")
    s.open("o", PROMPT[:60])
    steps_of(s, 6)
    assert s.computed("o") == 0
    s.idle()
    assert s.computed("o") == 59


def test_step_is_short_after_a_feeder_ended(simulate):
    settings = {"prefill_cap": 64, "grace_tokens": 8, "grace_s": 0.0025, "hold_s": 0.0}
    s = simulate(step_tokens=256, settings=settings)
    s.open("o", PROMPT[:60])
    s.idle()
    s.plain("busy", [9] * 20, n=200)
    run_until_decoding(s, "busy")
    s.call("up", [7] * 20, n=2, feeds=True)
    while "up" not in s.finished:
        s.step()
    s.plain("root", OTHER[:300], n=2)
    steps = steps_of(s, 8)
    assert steps[0]["root"] == 8
    assert max(step.get("root", 0) for step in steps) == 64, "afterwards the usual cap"


def test_no_step_is_begun_while_a_follower_is_due_at_once(simulate):
    """The other call waits a moment; the switch need not sit out a step first."""
    s = simulate(step_tokens=256, settings={"hold_s": 0.006})
    if s.kind.asynchronous:
        return  # steps overlap there, and the hold is off
    s.open("o", PROMPT[:60])
    s.idle()
    s.plain("busy", [9] * 20, n=200)
    run_until_decoding(s, "busy")
    s.call("up", [7] * 20, n=2, feeds=True)
    while "up" not in s.finished:
        s.step()
    s.scheduler._controller.measures.step_s = (
        0.05  # as on a CPU; the simulated clock ticks a millisecond a step
    )
    steps = s.scheduler.grape_counters["steps"]
    assert steps_of(s, 2) == []
    assert s.scheduler.grape_counters["held"] >= 2
    assert s.scheduler.grape_counters["steps"] == steps
    s.call("r", PROMPT[:70], adopt="o", n=2)
    assert steps_of(s, 1) == [{"busy": 1, "r": 11}]


def test_a_follower_that_stays_away_ends_the_hold_and_later_ones(simulate):
    s = simulate(step_tokens=256, settings={"hold_s": 0.006})
    s.plain("busy", [9] * 20, n=400)
    run_until_decoding(s, "busy")
    held = []
    for number in range(12):
        s.call(f"up{number}", [7 + number] * 20, n=2, feeds=True, program=f"p{number}")
        while f"up{number}" not in s.finished:
            s.step()
        s.scheduler._controller.measures.step_s = 0.05
        before = s.scheduler.grape_counters["held"]
        for _ in range(30):
            s.step()
        held.append(s.scheduler.grape_counters["held"] - before)
    assert held[-1] == 0, held
    s.idle()
    assert s.answers["busy"] == answer([9] * 20, 400)


def test_idle_engine_waits_for_the_follower_of_a_feeder(simulate):
    s = simulate(settings={"grace_s": 0.05})
    s.open("o", PROMPT[:60])
    s.call("up", [7] * 20, n=2, feeds=True)
    while "up" not in s.finished:
        s.step()
    s.append("o", PROMPT[60:90])
    before = s.computed("o")
    for _ in range(6):
        s.step()
    assert s.computed("o") == before, "kept free for the call that is on its way"
    assert s.scheduler.has_requests(), "but awake"
    s.call("r", PROMPT[:95], adopt="o")
    s.step()
    s.idle()
    assert s.answers["r"] == answer(PROMPT[:95], 8)


def test_grace_ends_without_a_follower(simulate):
    s = simulate(settings={"grace_s": 0.02})
    s.call("up", [7] * 20, n=2, feeds=True)
    s.open("o", PROMPT[:60])
    s.scheduler.finish_requests("up", RequestStatus.FINISHED_ABORTED)
    s.idle()
    assert s.computed("o") == 59
    assert s.clock.now >= 1000.02


def test_lengths_are_learned_of_calls_that_end_at_a_stop_string_too(simulate):
    """The front end ends these, which looks like an abort; a client that left looks the same."""
    s = simulate()
    lengths = s.scheduler._controller.outlook.lengths
    for name, stop in (("left", None), ("stopped", ["END"])):
        call = {"op": "call", "adopt": None, "task": name, "hint": {"flow": "f"}}
        s.add(name, [7] * 20, call, n=9, sampling={"stop": stop})
        s.step()
        s.step()
        s.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        s.idle()
    assert lengths.expected("f", "left") is None
    assert lengths.expected("f", "stopped") is not None


def test_throttled_step_runs_no_early_work(simulate):
    """With data parallel, vLLM holds prefill back in some steps."""
    s = simulate()
    s.open("o", PROMPT[:60])
    planned = s.scheduler.schedule(throttle_prefills=True)
    assert not planned.num_scheduled_tokens
    s.idle()
    assert s.computed("o") == 59


def test_time_to_live(simulate):
    s = simulate(settings={"ttl_s": 60})
    s.open("old", PROMPT[:40])
    s.idle()
    s.clock.now += 50
    s.open("young", OTHER[:40])
    s.idle()
    s.clock.now += 20
    stats = s.scheduler.grape_stats()
    assert stats["expired"] == 1
    assert stats["open_prompts"] == 1
    s.call("r", PROMPT[:60], adopt="old")
    s.idle()
    assert s.outcomes["r"] == {"outcome": "refused:expired", "tokens": 0}
    assert s.answers["r"] == answer(PROMPT[:60], 8)


def test_long_prompt_takes_longer_chunks(simulate):
    """Every chunk sends the whole prompt to the worker again."""
    s = simulate(settings={"chunk": 1})
    s.plain("busy", [7] * 20, n=300)
    run_until_decoding(s, "busy")
    s.open("o", [5 + i % 9 for i in range(400)])
    steps_of(s, 30)
    assert s.computed("o") == 399
    s.append("o", [4, 4])
    steps_of(s, 4)
    assert s.computed("o") == 399, "402 tokens: a chunk is at least 3"
    s.append("o", [4])
    steps_of(s, 4)
    assert s.computed("o") == 402
