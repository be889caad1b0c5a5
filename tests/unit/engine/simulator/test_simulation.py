from __future__ import annotations

import pytest

from grape_lc.engine.simulator.arrivals import Renewal
from grape_lc.engine.simulator.hardware import machine
from grape_lc.engine.simulator.host import HostSettings
from grape_lc.engine.simulator.programs import Workload
from grape_lc.engine.simulator.settings import EngineSettings, fitting
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.engine.simulator.simulation import ArmConfig, saturated_rate, simulate, stock
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PolicyConfig, Rule

A100 = machine("a100-40gb", "llama3-8b")
OURS = ArmConfig("grape", PolicyConfig(prefill_cap=None, hold_s=0.0))


def work(name: str = "search", seed: int = 1) -> Workload:
    return Workload(SHAPES[name], seed)


def test_no_load_is_served_faster_than_arrivals_and_overload_no_faster_than_saturation():
    rate = saturated_rate(stock(), A100, work(), count=128, population=64)
    idle = simulate(stock(), A100, work(), Renewal(rate / 20), 12, seed=2)
    assert idle.figures()["busy"] < 0.9
    over = simulate(stock(), A100, work(), Renewal(20 * rate), 120, seed=2)
    assert 0.7 * rate < over.programs / over.makespan_s < 1.3 * rate
    assert over.figures()["program_s"]["mean"] > 2 * idle.figures()["program_s"]["mean"]


def test_early_work_shortens_task_switches_where_prefill_is_nearly_free():
    plain = simulate(stock(), A100, work("code"), Renewal(0.3), 6, seed=1).figures()
    ours = simulate(OURS, A100, work("code"), Renewal(0.3), 6, seed=1).figures()
    assert ours["ahead_share"] > 0.5
    assert ours["switch_gap_ms"]["mean"] < 0.6 * plain["switch_gap_ms"]["mean"]
    assert plain["early_tokens"] == 0
    assert ours["wasted_tokens"] == 0


def test_predictions_that_are_wrong_are_wasted_and_told():
    wrong = simulate(OURS, A100, Workload(SHAPES["code"], 1, differ=1.0), Renewal(0.3), 6, seed=1)
    assert wrong.wasted_tokens > 0
    # The others had not come farther than what was right.
    assert wrong.outcomes["mismatch"] >= 20
    assert wrong.programs == 6


def test_longer_hops_make_longer_switches():
    figures = [
        simulate(
            stock(), A100, work("code"), Renewal(0.2), 4, seed=1, host=HostSettings(hop_s=hop_s)
        ).figures()["switch_gap_ms"]["mean"]
        for hop_s in (0.01, 0.11)
    ]
    assert figures[1] - figures[0] == pytest.approx(100, abs=15)


def test_heads_are_in_the_cache_at_the_start():
    cold, warmed = (
        simulate(stock(), A100, work("code"), Renewal(0.1), 1, heads=heads)
        for heads in ((), work("code").heads())
    )
    assert cold.cached_tokens == 0
    assert warmed.cached_tokens == 5 * 1024  # a role of 64 blocks for each of five calls


def test_utilisation_is_useful_work_over_what_the_gpu_could_have_done():
    rating = A100.rating
    assert rating is not None
    # The figures of an 8B model in bfloat16: two operations a weight, and 128 KiB of KV a token.
    assert rating.per_token + rating.per_logit == pytest.approx(2 * 7.5e9, rel=0.01)
    assert (rating.peak, rating.kv_bytes) == (312e12, 131072)
    alone = simulate(stock(), A100, work("code"), Renewal(0.1), 1)
    program = work("code").program(0)
    tokens = sum(task.prompt + task.output - 1 for task in program.tasks)
    assert alone.useful_tokens == tokens - alone.cached_tokens
    figures = alone.figures(rating)
    least = tokens * rating.per_token / (rating.peak * alone.makespan_s)
    assert least < figures["mfu"] < 1.2 * least
    assert figures["accelerator_s_per_success"] == pytest.approx(alone.makespan_s)
    most = max(task.prompt + task.output for task in program.tasks)
    assert most - 16 < figures["kv_bytes_peak"] / rating.kv_bytes < most + 16
    twice = alone.figures(rating, replicas=2)
    assert twice["mfu"] == pytest.approx(figures["mfu"] / 2)
    assert alone.figures()["mfu"] is None
    pair = machine("a100-40gb", "llama3-8b", tp=2).rating
    assert pair is not None
    assert (pair.devices, pair.peak, pair.kv_bytes) == (2, 624e12, 65536)


def test_noise_is_drawn_from_the_seed():
    noisy = ArmConfig("noisy", OURS.config, EngineSettings(noise=0.2))
    one, again, other = (
        simulate(noisy, A100, work(), Renewal(2.0), 6, seed=seed).figures() for seed in (1, 1, 2)
    )
    assert one == again
    assert one["agentic_itl_ms"] != other["agentic_itl_ms"]


def test_a_policy_that_learns_step_times_needs_none():
    learned = ArmConfig("learned", OURS.config, learned=True)
    figures = simulate(learned, A100, work("code"), Renewal(0.3), 6, seed=1).figures()
    assert figures["ahead_share"] > 0.5


def test_by_priority_the_order_is_that_of_vllm():
    engine = EngineSettings(by_priority=True)
    assert fitting(PolicyConfig(), engine).rule is Rule.FCFS
    assert not fitting(PolicyConfig(), engine).admission
    assert fitting(OURS.config, EngineSettings()) is OURS.config


def test_impossible_engines_are_refused():
    with pytest.raises(ConfigError, match=r"max_tokens >= 1.* not 0, 256 and 0\.0"):
        EngineSettings(max_tokens=0)
