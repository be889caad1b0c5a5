"""Too little KV: early work gives way, nothing is held for ever."""

from __future__ import annotations

from tests.contract.simulation import answer

PROMPT = list(range(100, 400))
OTHER = list(range(500, 900))


def test_real_work_takes_the_kv_of_open_prompts(simulate):
    s = simulate(blocks=20)
    s.open("o", PROMPT[:150])
    s.idle()
    s.plain("r", OTHER[:240], n=30)
    s.idle()
    assert s.counters["dropped"] == 1
    assert s.counters["dropped_tokens"] == 149
    assert s.counters["preemptions"] == 0
    assert s.answers["r"] == answer(OTHER[:240], 30)
    assert "o" in s.scheduler.requests, "dropped, not ended"
    s.append("o", PROMPT[150:160])
    s.idle()
    assert s.computed("o") == 159, "warm again once there is room"
    s.call("a", PROMPT[:165], adopt="o")
    s.idle()
    assert s.answers["a"] == answer(PROMPT[:165], 8)


def test_dropped_while_its_chunk_is_in_flight(simulate):
    s = simulate(blocks=20)
    s.open("o", PROMPT[:150])
    s.step()
    s.plain("r", OTHER[:240], n=30)
    s.idle()
    assert s.answers["r"] == answer(OTHER[:240], 30)
    s.call("a", PROMPT[:165], adopt="o")
    s.idle()
    assert s.answers["a"] == answer(PROMPT[:165], 8)


def test_farthest_is_dropped_first_then_youngest(simulate):
    s = simulate(blocks=30)
    for key, hops in (("near", 1), ("far", 3), ("far-young", 3), ("middle", 2)):
        s.open(key, [ord(key[-1])] * 80, hops=hops)
    s.idle()
    order = []
    drop = s.scheduler._drop

    def watched(prompt):
        order.append(prompt.request.request_id)
        drop(prompt)

    s.scheduler._drop = watched
    s.plain("r", OTHER[:300], n=100)
    s.idle()
    assert order[:3] == ["far-young", "far", "middle"]
    assert s.answers["r"] == answer(OTHER[:300], 100)


def test_no_early_work_until_much_is_free_again(simulate):
    s = simulate(blocks=40, rows=3, settings={"wide_margin": 0.6, "horizon": 0})
    s.open("o", PROMPT[:100])
    s.idle()
    s.plain("long", OTHER[:300], n=100)
    s.plain("short", OTHER[10:210], n=30)
    while "short" not in s.finished:
        s.step()
    assert s.counters["dropped"] == 1
    before = s.counters["open_tokens"]
    assert s.free >= 10, "room enough for the open prompt and the reserve"
    while "long" not in s.finished:
        assert s.counters["open_tokens"] == before, "but it was short of KV a moment ago"
        s.step()
    s.idle()
    assert s.computed("o") == 99
    assert s.answers["long"] == answer(OTHER[:300], 100)
    assert s.answers["short"] == answer(OTHER[10:210], 30)


def test_cached_blocks_count_against_the_reserve(simulate):
    """A prefix cache hit takes free blocks out of the pool, computed or not."""
    s = simulate(blocks=24)
    s.plain("first", PROMPT[:161], n=1)
    s.idle()
    s.plain("busy", OTHER[:100], n=120)
    for _ in range(8):
        s.step()
    s.open("o", PROMPT[:161] + [3] * 20)
    for _ in range(8):
        s.step()
    assert s.computed("o") == 0
    assert s.free > 10
    s.idle()
    assert s.computed("o") == 180
    assert s.answers["busy"] == answer(OTHER[:100], 120)


def test_dropped_in_the_step_that_was_granted_to_it(simulate):
    """What it just gave to a real request it does not take back in the same step."""
    s = simulate()
    s.open("o", PROMPT[:60])
    s.idle()
    s.plain("r", OTHER[:40], n=20)
    while not s.answers["r"]:
        s.step()
    s.append("o", PROMPT[60:100])
    stock = s.scheduler._stock_allocate
    failures = iter([True])

    def short_once(request, *args, **kwargs):
        if request.request_id == "r" and next(failures, False):
            return None
        return stock(request, *args, **kwargs)

    s.scheduler._stock_allocate = short_once
    planned = s.scheduler.schedule()
    assert s.counters["dropped"] == 1
    assert set(planned.num_scheduled_tokens) == {"r"}
    s._queue.append((planned, s.worker.execute(planned)))
    s.scheduler._stock_allocate = stock
    s.idle()
    assert s.computed("o") == 99
    assert s.answers["r"] == answer(OTHER[:40], 20)


def test_open_prompt_that_vllm_refuses_does_not_make_the_loop_spin(simulate):
    s = simulate()
    stock = s.scheduler._stock_allocate
    s.scheduler._stock_allocate = lambda request, *args, **kwargs: (
        None if request.request_id == "o" else stock(request, *args, **kwargs)
    )
    s.open("o", PROMPT[:60])
    s.step()
    assert not s.scheduler.prefill_capacity_bound, "vLLM throttles prefill by what it left waiting"
    s.idle(turns=20)
    assert s.computed("o") == 0
    s.scheduler._stock_allocate = stock
    s.append("o", PROMPT[60:70])
    s.idle()
    assert s.computed("o") == 69


def test_adopted_call_alone_in_its_queue_is_not_stripped_for_itself(simulate):
    """Two adopted calls fill the pool, and the first is skipped: its grammar is not ready."""
    s = simulate(blocks=24)
    for k in (1, 2):
        s.open(f"o{k}", [k + 3] * 170)
    s.idle()
    handle = s.scheduler._handle_blocked_waiting_request
    s.scheduler._handle_blocked_waiting_request = lambda request: (
        request.request_id != "r1" and handle(request)
    )
    for k in (1, 2):
        s.call(f"r{k}", [k + 3] * 320, adopt=f"o{k}", n=4)
    for _ in range(5):
        s.step()
    assert s.counters["stripped"] == 0
    assert s.computed("r2") == 169
    del s.scheduler._handle_blocked_waiting_request
    s.idle()
    for k in (1, 2):
        assert s.answers[f"r{k}"] == answer([k + 3] * 320, 4)


def test_reserve_keeps_early_work_from_starting(simulate):
    """What waiting and decoding requests will need is not given away."""
    s = simulate(blocks=24)
    s.plain("r", OTHER[:200], n=100)
    for _ in range(12):
        s.step()
    s.open("o", PROMPT[:200])
    while "r" not in s.finished:
        s.step()
    assert s.counters["dropped"] == 0
    assert s.counters["preemptions"] == 0
    s.idle()
    assert s.answers["r"] == answer(OTHER[:200], 100)


def test_blocked_open_prompt_does_not_make_the_loop_spin(simulate):
    s = simulate(blocks=10)
    s.open("a", PROMPT[:120])
    s.idle()
    s.open("b", OTHER[:200])
    s.idle(turns=50)
    assert s.computed("b") < 199
    assert not s.scheduler.has_requests()
    s.release("a")
    s.idle()
    assert s.computed("b") > 100


def test_adopted_calls_that_hold_each_others_blocks(simulate):
    s = simulate(blocks=24)
    for k in (1, 2):
        s.open(f"o{k}", [k + 3] * 170)
    s.idle()
    for k in (1, 2):
        s.call(f"r{k}", [k + 3] * 320, adopt=f"o{k}", n=4)
    s.idle()
    for k in (1, 2):
        assert s.answers[f"r{k}"] == answer([k + 3] * 320, 4)
    assert s.counters["stripped"] == 1
    assert s.outcomes["r1"]["outcome"] == "adopted"
    assert s.outcomes["r2"] == {"outcome": "cold", "tokens": 0}


def test_waiting_adopted_call_gives_way_before_a_running_one_is_preempted(simulate):
    s = simulate(blocks=20, rows=1)
    s.open("o", PROMPT[:100])
    s.idle()
    s.plain("r", OTHER[:100], n=150)
    s.step()
    s.call("a", PROMPT[:120], adopt="o", n=4)
    s.idle()
    assert s.counters["preemptions"] == 0
    assert s.counters["stripped"] == 1
    assert s.answers["r"] == answer(OTHER[:100], 150)
    assert s.answers["a"] == answer(PROMPT[:120], 4)


def test_a_drop_that_would_not_help_does_not_happen(simulate):
    """A waiting request that cannot start anyway leaves the early work alone."""
    s = simulate(blocks=40)
    s.plain("r", OTHER[:300], n=60)
    for _ in range(10):
        s.step()
    s.open("o", PROMPT[:60])
    for _ in range(10):
        s.step()
    assert s.computed("o") == 59
    s.plain("big", list(range(3, 403)), n=4)
    for _ in range(6):
        s.step()
    assert s.counters["dropped"] == 0
    assert s.computed("o") == 59
    s.idle()
    assert s.answers["big"] == answer(list(range(3, 403)), 4)
    assert s.answers["r"] == answer(OTHER[:300], 60)


def test_shared_blocks_are_not_counted_as_gain(simulate):
    """Two open prompts and a call on one cached prefix."""
    s = simulate(blocks=16)
    s.plain("first", PROMPT[:96], n=2)
    s.idle()
    s.open("o1", PROMPT[:97] + [3] * 20)
    s.open("o2", PROMPT[:97] + [4] * 20)
    s.idle()
    s.plain("r", OTHER[:200], n=20)
    s.call("a", PROMPT[:97] + [3] * 25, adopt="o1")
    s.idle()
    assert s.answers["r"] == answer(OTHER[:200], 20)
    assert s.answers["a"] == answer(PROMPT[:97] + [3] * 25, 8)


def test_what_preemptions_cost_is_known_with_one_tenant_too(simulate):
    s = simulate(blocks=24)
    for key, prompt in (("a", PROMPT[:150]), ("b", OTHER[:150])):
        s.plain(key, prompt, n=100)
    seen = 0.0
    while not {"a", "b"} <= set(s.finished):
        s.step()
        seen = max(seen, s.scheduler._snapshot.signals.recomputed)
    assert s.counters["preemptions"] > 0
    assert seen > 0.1
    s.idle()
