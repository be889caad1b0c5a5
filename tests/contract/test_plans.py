"""What a plan says happens in vLLM: who starts, in what order, who gives up KV, what is told."""

from __future__ import annotations

import pytest
from vllm.v1.core.sched.scheduler import Scheduler

from grape_lc.scheduler.types import Item, Limit, Reason
from tests.contract.simulation import Simulation, answer
from tests.contract.test_steps import OTHER, PROMPT, run_until_decoding, steps_of

COST = {"base": 1e-3, "per_row": 1e-5, "per_token": 1e-4}


def names(queue):
    return [request.request_id for request in queue]


def call(s, name, prompt, n=4, **hint):
    program = hint.pop("program", name)
    s.call(name, prompt, n=n, program=program, task="t", hint={"flow": "f", **hint})


def busy(s, n=200):
    s.plain("busy", [7] * 20, n=n)
    run_until_decoding(s, "busy")


def order_of_starts(s):
    """Names of calls as each one gets its first step."""
    seen = []
    while s.scheduler.has_requests() or s._queue:
        for step in steps_of(s, 1):
            seen += [name for name in step if name not in seen]
    return seen


# ---------------------------------------------------------------------- who starts


@pytest.mark.parametrize(
    ("rule", "order"),
    [
        ("fcfs", ["a0", "a1", "b2"]),
        ("hops", ["b2", "a1", "a0"]),
        ("deadline", ["a1", "b2", "a0"]),
    ],
)
def test_calls_start_in_the_order_of_the_rule(simulate, rule, order):
    s = simulate(rows=1, settings={"rule": rule})
    s.plain("busy", [7] * 20, n=30)
    run_until_decoding(s, "busy")
    call(s, "a0", [11] * 40, depth=0)
    call(s, "a1", [12] * 40, depth=1, deadline_s=0.01)
    call(s, "b2", [13] * 40, depth=2)
    assert order_of_starts(s)[1:] == order
    for name, token in (("a0", 11), ("a1", 12), ("b2", 13)):
        assert s.answers[name] == answer([token] * 40, 4)


def test_queues_are_vllms_own_between_steps(simulate):
    s = simulate(rows=2, settings={"rule": "hops"})
    busy(s)
    for depth in range(4):
        call(s, f"r{depth}", [11 + depth] * 40, n=30, depth=depth)
    assert names(s.scheduler.waiting) == ["r0", "r1", "r2", "r3"]
    while not s.answers["r3"]:
        s.step()
    assert names(s.scheduler.running) == ["busy", "r3"]
    assert names(s.scheduler.waiting) == ["r0", "r1", "r2"], "as they came"
    assert s.scheduler.get_request_counts() == (2, 3)


def test_calls_that_are_not_named_neither_start_nor_keep_others_from_running(simulate):
    s = simulate(rows=6)
    busy(s)
    for name in ("one", "two", "three"):
        s.plain(name, OTHER[:90], n=4)
    s.open("o", PROMPT[:40])
    decide = s.scheduler._controller.decide

    def only_two(*args):
        two, early = Item("two", 20, Reason.FAIR), Item("o", 10, Reason.CHEAP)
        plan = decide(*args)._replace(budget=40, starts=(two,), opens=(early,))
        s.scheduler._controller.plan = plan
        return plan

    s.scheduler._controller.decide = only_two
    assert steps_of(s, 1) == [{"busy": 1, "two": 20, "o": 10}]
    assert names(s.scheduler.waiting) == ["one", "three"]
    s.scheduler._controller.decide = decide
    s.idle()
    for name in ("one", "two", "three"):
        assert s.answers[name] == answer(OTHER[:90], 4)


def test_priorities_of_the_client_stand(simulate):
    s = simulate(policy="priority", rows=1, settings={"rule": "hops"})
    busy(s, n=30)
    for priority, name in ((2, "last"), (0, "first"), (1, "middle")):
        s.plain(name, [11 + priority] * 40, n=3, priority=priority)
    assert order_of_starts(s)[1:] == ["first", "middle", "last"]


def test_tenants_take_turns(simulate):
    s = simulate(rows=1)
    busy(s, n=30)
    for k in range(3):
        call(s, f"a{k}", [11] * (40 + k), tenant="a")
    for k in range(3):
        call(s, f"b{k}", [12] * (40 + k), tenant="b")
    assert [name[0] for name in order_of_starts(s)[1:]] == ["a", "b"] * 3


def test_streaming_session_beside_calls(simulate):
    """Its turns come and go by vLLM's own order; the policy plans around it."""
    s = simulate(rows=3, settings={"rule": "hops"})
    s.add("session", PROMPT[:40], None, n=3, resumable=True)
    while len(s.answers["session"]) < 3:
        s.step()
    assert s.answers["session"] == answer(PROMPT[:40], 3)
    busy(s, n=60)
    call(s, "r", OTHER[:60], depth=1)
    s.add("session", OTHER[60:80], None, n=2, resumable=True)
    while len(s.answers["session"]) < 5:
        s.step()
    s.add("session", [3], None, n=1)
    s.idle()
    assert s.answers["r"] == answer(OTHER[:60], 4)
    assert not s.scheduler._sessions


# ---------------------------------------------------------------------- how long a step is


def test_cost_model_bounds_prefill_beside_decodes(simulate):
    s = simulate(
        step_tokens=256, settings={"stretch": 3.0, "backlog_share": 0.0}, extra={"grape_cost": COST}
    )
    busy(s)
    s.plain("long", OTHER[:200], n=2)
    longest = max(step.get("long", 0) for step in steps_of(s, 3))
    # T(decode) is 1.11 ms, so 2.22 ms are left for tokens of 0.1 ms and a row of 0.01 ms.
    assert longest == 22
    assert s.scheduler._controller.plan.limit is Limit.STRETCH


def test_target_of_a_decode_bounds_the_step(simulate):
    s = simulate(step_tokens=256, settings={"slo_share": 1.0}, extra={"grape_cost": COST})
    call(s, "quick", [7] * 20, n=200, tbt_s=0.0041)
    run_until_decoding(s, "quick")
    s.plain("long", OTHER[:200], n=2)
    steps = steps_of(s, 3)
    assert s.scheduler.grape_stats()["limit_slo"] > 0
    assert 0 < max(step.get("long", 0) for step in steps) < 31


def test_a_profile_that_does_not_fit_is_given_up_once(simulate, caplog):
    s = simulate(extra={"grape_cost": {"base": 10.0}})
    s.work_s = 0.001
    s.plain("r", [7] * 20, n=400)
    s.idle()
    assert len([r for r in caplog.records if "is given up" in r.message]) == 1


@pytest.mark.parametrize("cost", [{"base": -1.0}, {"speed": 1}, 7, {"base": "fast"}])
def test_a_bad_profile_is_left_out(simulate, caplog, cost):
    s = simulate(extra={"grape_cost": cost})
    assert "grape_cost is left out" in caplog.text
    assert s.scheduler._costs.cost is None


@pytest.mark.parametrize("name", ["grape_trace", "grape_log_steps"])
@pytest.mark.parametrize("value", [-1, True, 1.5])
def test_bad_settings_of_the_driver(model_config_dir, kind, name, value):
    with pytest.raises(ValueError, match=name):
        Simulation(model_config_dir, kind, extra={name: value})


# ---------------------------------------------------------------------- who gives up KV


def test_open_prompts_are_dropped_in_the_order_of_the_rule(simulate):
    s = simulate(blocks=30, settings={"eviction": "lru", "governor": False})
    for key in ("old", "young"):
        s.open(key, [ord(key[0])] * 100, hops=1)
        s.idle()
    s.append("old", [5] * 2)
    s.idle()
    dropped = []
    drop = s.scheduler._drop

    def watched(prompt):
        dropped.append(prompt.view.id)
        drop(prompt)

    s.scheduler._drop = watched
    s.plain("r", OTHER[:300], n=20)
    s.idle()
    assert dropped[0] == "young", "the other one was touched later"
    assert s.answers["r"] == answer(OTHER[:300], 20)


@pytest.mark.parametrize("eviction", ["tail", "lru", "distance", "recompute", "cost"])
def test_running_calls_are_preempted_by_the_rule(simulate, eviction):
    """The small one is the cheapest to compute again; vLLM would take the last one."""
    s = simulate(blocks=30, settings={"eviction": eviction, "admission": False})
    for name, token, size in (("first", 11, 110), ("small", 12, 30), ("large", 13, 200)):
        s.plain(name, [token] * size, n=100)
    preempted = []
    preempt = Scheduler._preempt_request

    def watched(scheduler, request, *args, **kwargs):
        preempted.append(request.request_id)
        preempt(scheduler, request, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_preempt_request", watched)
        s.idle()
    assert preempted[0] == ("small" if eviction == "recompute" else "large")
    for name, token, size in (("first", 11, 110), ("small", 12, 30), ("large", 13, 200)):
        assert s.answers[name] == answer([token] * size, 100)


def test_switched_off_early_work_computes_nothing(simulate):
    s = simulate(settings={"incremental": False, "static": False})
    busy(s, n=20)
    s.open("o", PROMPT[:60])
    s.append("o", PROMPT[60:90], final=True)
    s.idle()
    assert s.computed("o") == 0
    assert s.scheduler.grape_stats()["not_run_off"] > 0


# ---------------------------------------------------------------------- vLLM's parts


def test_with_a_lookahead_of_one_vllms_hook_changes_nothing(simulate):
    """Ours does not call it then, in every request's every step."""
    s = simulate()
    assert s.scheduler.num_prefill_lookahead <= 1
    s.plain("r", PROMPT[:100], n=2)
    request = s.scheduler.requests["r"]
    for tokens in (0, 1, 99, 100):
        assert Scheduler._reserve_prefill_lookahead(s.scheduler, request, 0, tokens) == tokens
    s.idle()


def test_counters_say_why_steps_are_as_they_are(simulate):
    s = simulate(step_tokens=256, settings={"prefill_cap": 32})
    busy(s, n=40)
    s.plain("long", OTHER[:200], n=2)
    s.idle()
    stats = s.scheduler.grape_stats()
    assert stats["limit_cap"] > 0
    assert stats["level_full"] + stats["level_near"] + stats["level_off"] == stats["steps"]
    assert stats["not_run_engine"] == 0
