from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord, measure
from grape_lc.bench.outcomes import (
    BENCH_FIGURES,
    critical_idle,
    fairness,
    final_answer,
    outcomes,
    shown,
)
from grape_lc.bench.report import value_of
from grape_lc.bench.slo import Slo


def call(number: int, *times: float, submitted: float | None = None) -> CallRecord:
    tokens = tuple((at, 1) for at in times)
    begin = (times[0] if times else 0.0) if submitted is None else submitted
    return CallRecord(number, None, begin, tokens)


def program(*calls: CallRecord, finished: float = 10.0, **fields: Any) -> ProgramRecord:
    return ProgramRecord("p", 0.0, finished, calls)._replace(**fields)


CHAIN = program(call(1, 1.0, 2.0), call(2, 2.5, 3.0, submitted=2.0), finished=3.25)


def test_latencies_count_from_the_scheduled_arrival():
    late = CHAIN._replace(scheduled=-1.0)
    assert (final_answer(CHAIN), final_answer(late)) == (3.0, 4.0)
    found = outcomes([RunRecord("a", (late,))])
    assert found["answer_s"] == {"p50": 4.0, "p95": 4.0, "p99": 4.0}
    assert found["finish_s"] == {"p50": 4.25, "p95": 4.25, "p99": 4.25}
    assert final_answer(program(call(1))) is None


def test_idle_time_is_what_the_path_does_not_decode():
    assert critical_idle(CHAIN) == 1.5
    assert critical_idle(CHAIN._replace(scheduled=-1.0)) == 2.5
    assert critical_idle(program()) is None


def test_the_critical_path_goes_through_the_branch_that_ended_last():
    root = call(1, 1.0, 2.0)
    short = call(2, 2.5, 3.0, submitted=2.0)
    long = call(3, 4.0, 6.0, submitted=2.0)
    join = call(4, 6.5, 7.0, submitted=6.0)
    side = call(5, 6.25, 6.5, submitted=6.0)
    assert critical_idle(program(root, short, long, join, side)) == 1.0 + 2.0 + 0.5


def test_idle_and_decoding_make_up_the_final_answer():
    decoding = sum(c.last - c.first for c in CHAIN.calls)
    assert critical_idle(CHAIN) == final_answer(CHAIN) - decoding  # type: ignore[operator]


def test_goodput_counts_programs_that_meet_the_targets():
    slow = program(call(1, 5.0, 6.0), finished=7.0, scheduled=0.0)
    run = RunRecord("a", (CHAIN, slow))
    found = outcomes([run], Slo(ttft=1000, program=4000))["goodput"]
    assert found["strict_share"] == found["mean_share"] == 0.5
    assert found["strict_per_s"] == pytest.approx(1 / 7)
    # All three calls are quick; it is the program that took too long.
    assert found["mean_calls_per_s"] == pytest.approx(3 / 7)


def test_programs_of_failed_runs_have_met_nothing():
    run = RunRecord("a", (CHAIN,))
    assert outcomes([run], Slo(program=1e6), lost=3)["goodput"]["strict_share"] == 0.25
    assert outcomes([], Slo(program=1e6), lost=3)["goodput"]["strict_share"] == 0.0
    assert outcomes([], Slo(program=1e6), lost=3)["goodput"]["strict_per_s"] == 0.0
    # A failed run of as many programs is taken to have lasted as long.
    whole = outcomes([run], Slo(program=1e6))["goodput"]["strict_per_s"]
    half = outcomes([run], Slo(program=1e6), lost=1)["goodput"]["strict_per_s"]
    assert whole is not None
    assert half == pytest.approx(whole / 2)
    assert set(outcomes([], Slo(program=1e6))["goodput"].values()) == {None}


def test_without_targets_nothing_is_judged():
    assert set(outcomes([RunRecord("a", (CHAIN,))])["goodput"].values()) == {None}


def test_fairness_is_jains_index_of_tokens_a_second():
    def of(tenant: str, tokens: int, seconds: float) -> ProgramRecord:
        times = [seconds * (n + 1) / tokens for n in range(tokens)]
        return program(call(1, *times), finished=seconds, tenant=tenant)

    assert fairness([of("a", 4, 2.0), of("b", 8, 4.0)]) == pytest.approx(1.0)
    assert fairness([of("a", 3, 1.0), of("b", 1, 1.0)]) == pytest.approx(16 / 20)
    # Programs of a tenant are added up: 4 tokens in 4 s, against 1 in 1 s.
    many = [of("a", 3, 1.0), of("a", 1, 3.0), of("b", 1, 1.0)]
    assert fairness(many) == pytest.approx(1.0)
    assert fairness([of("a", 3, 1.0)]) is None
    assert fairness([]) is None
    starved = program(tenant="b")
    assert fairness([of("a", 3, 1.0), starved]) == pytest.approx(0.5)
    assert fairness([program(tenant="a"), starved]) is None


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.1, 50)), min_size=2, max_size=8))
def test_fairness_lies_between_one_over_n_and_one(served: list[tuple[int, float]]):
    programs = [
        program(call(1, *([seconds] * tokens)), finished=seconds, tenant=str(n))
        for n, (tokens, seconds) in enumerate(served)
    ]
    found = fairness(programs)
    assert found is not None
    assert 1 / len(served) - 1e-9 <= found <= 1 + 1e-9


def test_computed_and_wasted_prompt_tokens():
    calls = (
        call(1, 1.0)._replace(prompt_tokens=100, cached_tokens=64),
        call(2, 2.0)._replace(prompt_tokens=50, cached_tokens=40),
    )

    def told(*counters: Mapping[str, float]) -> tuple[float | None, float | None]:
        found = outcomes([RunRecord("a", (program(*calls),))], counters=counters)
        return found["prefilled_tokens"], found["wasted_tokens"]

    assert told({"open_tokens": 30.0, "adopted_tokens": 24.0}) == (36 + 10 + 30, 6)
    assert told({"open_tokens": 20.0, "adopted_tokens": 4.0}, {"adopted_tokens": 1.0}) == (66, 15)
    # Much of what was adopted was in the cache.
    assert told({"open_tokens": 30.0, "adopted_tokens": 64.0}) == (76, 0)
    assert told({"preemptions": 0.0}) == (46, None)


def test_the_figures_of_metrics_are_among_them_and_every_figure_has_its_place():
    found = outcomes([RunRecord("a", (CHAIN,))])
    assert {name: found[name] for name in measure([])} == measure(  # type: ignore[literal-required]
        [RunRecord("a", (CHAIN,))]
    )
    for figure in BENCH_FIGURES:
        value_of(found, figure.path)
    nothing = outcomes([])
    assert all(value_of(nothing, figure.path) is None for figure in BENCH_FIGURES)


def test_a_figure_in_bytes_is_shown_as_what_it_is():
    figures = {figure.path: figure for figure in BENCH_FIGURES}
    kv, share = figures["kv_bytes_peak",], figures["mfu",]
    assert shown(kv, 300 * 2**20) == "300.0 MiB"
    assert shown(kv, 1.5 * 2**30) == "1.50 GiB"
    assert shown(kv, None) == shown(share, None) == "-"
    assert shown(share, 0.12345) == "0.1235"


def test_costs_are_among_the_outcomes():
    facts = {"devices": 3}
    told = outcomes([RunRecord("a", (CHAIN,))], counters=[{"evictions": 2.0}], facts=facts)
    assert told["evictions"] == 2.0
    assert told["accelerator_s_per_success"] == 3 * 3.25
