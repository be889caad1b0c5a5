from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.costs import CostMetrics, Counters, Work, costs, facts_of, useful_work
from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord
from grape_lc.bench.slo import NO_SLO, Slo

MODEL = {"per_token": 1000, "per_context": 10, "per_logit": 100}
FACTS = {"model_flops": MODEL, "peak_flops": 5000.0, "devices": 2}


def call(prompt: int, cached: int, ahead: int, output: int, number: int = 1) -> CallRecord:
    tokens = tuple((float(n + 1), 1) for n in range(output))
    return CallRecord(number, None, 0.0, tokens, "", prompt, cached, ahead)


def run(*calls: CallRecord, finished: float = 10.0, **fields: Any) -> RunRecord:
    return RunRecord("a", (ProgramRecord("p", 0.0, finished, calls)._replace(**fields),))


def found(runs: list[RunRecord], *counters: Counters, **fields: Any) -> CostMetrics:
    return costs(runs, fields.pop("slo", NO_SLO), counters=counters, **fields)


def test_work_is_the_tokens_that_the_model_reads():
    # The model reads 4 prompt tokens and 2 of the 3 output tokens: tokens 1 to 6.
    assert useful_work([run(call(4, 0, 0, 3))], 0) == (6, 1 + 2 + 3 + 4 + 5 + 6, 3)
    # Half of the prompt was in the cache.
    assert useful_work([run(call(4, 2, 0, 3))], 0) == (4, 3 + 4 + 5 + 6, 3)


def test_early_work_counts_as_far_as_calls_took_it_over():
    runs = [run(call(4, 3, 3, 1))]
    assert useful_work(runs, 3) == (1 + 3, 4 + (1 + 2 + 3), 1)
    # More was prefilled early than anybody wanted.
    assert useful_work(runs, 100) == useful_work(runs, 3)
    # A third of what was taken over was computed early, the rest had been in the cache.
    assert useful_work(runs, 1) == pytest.approx((1 + 1, 4 + (1 + 2 + 3) / 3, 1))
    assert useful_work(runs, 0) == (1, 4, 1)


def test_a_call_without_tokens_was_of_no_use():
    assert useful_work([run(call(100, 0, 50, 0))], 50) == (0, 0, 0)


def test_utilisation_is_useful_operations_over_possible_ones():
    work = Work(6, 21, 3)
    assert work.flops(MODEL) == 6000 + 210 + 300
    runs = [run(call(4, 0, 0, 3))]
    assert found(runs, facts=FACTS)["mfu"] == pytest.approx(6510 / (2 * 5000 * 10))
    for lacking in FACTS:
        facts = {name: value for name, value in FACTS.items() if name != lacking}
        assert found(runs, facts=facts)["mfu"] is None
    assert found(runs, facts={**FACTS, "peak_flops": None})["mfu"] is None
    assert found([], facts=FACTS)["mfu"] is None


def test_early_tokens_are_those_that_the_counters_tell():
    runs = [run(call(4, 3, 3, 1))]
    without, some = found(runs, facts=FACTS), found(runs, {"open_tokens": 3.0}, facts=FACTS)
    assert without["mfu"] == pytest.approx((1000 + 40 + 100) / 1e5)
    assert some["mfu"] == pytest.approx((4000 + 100 + 100) / 1e5)


CALLS = st.lists(
    st.builds(
        lambda prompt, cached, ahead, output: call(
            prompt, min(cached, prompt - 1), min(ahead, cached, prompt - 1), output
        ),
        *(st.integers(1, 60), st.integers(0, 60), st.integers(0, 60), st.integers(1, 9)),
    ),
    min_size=1,
    max_size=6,
)


@given(CALLS, st.integers(0, 400))
def test_no_token_is_counted_twice(calls: list[CallRecord], early: int):
    work = useful_work([run(*calls)], early)
    most = useful_work([run(*(c._replace(cached_tokens=0, ahead_tokens=0) for c in calls))], 0)
    assert most.tokens == sum(c.prompt_tokens + c.output_tokens - 1 for c in calls)
    assert work.tokens <= most.tokens + 1e-9
    assert work.contexts <= most.contexts + 1e-9
    assert work.logits == most.logits
    # No more of the early work than there was.
    own = useful_work([run(*calls)], 0)
    assert work.tokens - own.tokens <= early + 1e-9


@given(CALLS)
def test_early_work_that_was_taken_over_counts_like_the_calls_own(calls: list[CallRecord]):
    ahead = [c._replace(cached_tokens=c.ahead_tokens) for c in calls]
    own = [c._replace(cached_tokens=0, ahead_tokens=0) for c in calls]
    early = sum(c.ahead_tokens for c in ahead)
    assert useful_work([run(*ahead)], early) == useful_work([run(*own)], 0)


def test_seconds_of_all_devices_are_shared_by_the_programs_that_succeed():
    good, slow = run(call(1, 0, 0, 3)), run(call(1, 0, 0, 3), finished=30.0)

    def seconds(runs: list[RunRecord], **fields: Any) -> float | None:
        return found(runs, **{"facts": FACTS, **fields})["accelerator_s_per_success"]

    assert seconds([good]) == 20.0
    assert seconds([good, slow]) == 2 * 40 / 2
    assert seconds([good, slow], slo=Slo(program=15000)) == 2 * 40
    assert seconds([slow], slo=Slo(program=15000)) is None
    # A run that failed is taken to have lasted as long as the others.
    assert seconds([good], lost=1) == 40.0
    assert seconds([good], facts={}) is None
    assert seconds([], lost=1) is None


def test_seconds_count_from_when_a_program_was_due():
    late = run(call(1, 0, 0, 3), scheduled=-5.0)
    assert found([late], facts=FACTS)["accelerator_s_per_success"] == 30.0


def test_counters_are_added_up_and_peaks_are_not():
    one = {"peak_kv_bytes": 300.0, "evictions": 2.0, "recomputed_tokens": 50.0}
    two = {"peak_kv_bytes": 200.0, "evictions": 0.0, "recomputed_tokens": 0.0}
    told = found([], one, {}, two)
    assert told["kv_bytes_peak"] == 300.0
    assert (told["evictions"], told["recomputed_tokens"]) == (2.0, 50.0)
    silent = found([], {})
    assert {silent["kv_bytes_peak"], silent["evictions"], silent["recomputed_tokens"]} == {None}


def test_tasks_and_tools_are_judged_by_what_was_counted():
    search = {"answers_checked": 4.0, "answers_exact": 1.0, "answers_containing": 2.0}
    code = {"programs_tested": 2.0, "programs_solved": 0.0}
    assert found([], search)["task_success"] == 0.5
    assert found([], code, code)["task_success"] == 0.0
    assert found([], search, lost=4)["task_success"] == 0.25
    assert found([], {"answers_checked": 0.0})["task_success"] is None
    tools = {"tool_calls": 8.0, "tool_duplicates": 2.0, "tool_failures": 1.0}
    assert found([], tools, tools)["duplicate_tool_calls"] == 0.25
    assert found([], {"tool_calls": 0.0, "tool_duplicates": 0.0})["duplicate_tool_calls"] is None
    assert found([])["duplicate_tool_calls"] is None


def test_all_arms_are_held_against_the_highest_peak():
    infos = {"a": {"devices": 1, "peak_flops": 2.0}, "b": {"peak_flops": 3.0}, "c": {}}
    assert facts_of(infos, "a") == {"devices": 1, "peak_flops": 3.0}
    assert facts_of({"c": {}}, "c") == {"peak_flops": None}
    assert facts_of({}, "c") == {"peak_flops": None}
