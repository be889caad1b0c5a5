from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.metrics import (
    CallRecord,
    ProgramRecord,
    RunRecord,
    makespan,
    measure,
    percentile,
    switch_gaps,
    time_to_first_token,
    token_gaps,
    upstream_of,
)


def call(call_id: int, *times: float | tuple[float, int], **fields: Any) -> CallRecord:
    """A call with tokens at ``times``, submitted at its first token unless told otherwise."""
    tokens = tuple(t if isinstance(t, tuple) else (t, 1) for t in times)
    submitted = tokens[0][0] if tokens else 0.0
    return CallRecord(call_id, None, submitted, tokens)._replace(**fields)


def program(*calls: CallRecord, arrived: float = 0.0, finished: float = 10.0) -> ProgramRecord:
    return ProgramRecord("p", arrived, finished, calls)


# Times on a grid of 1/8 s: sums and differences of them are exact.
grid = st.integers(min_value=0, max_value=4000).map(lambda n: n / 8)
counts = st.integers(min_value=1, max_value=4)


@st.composite
def chains(draw: st.DrawFn) -> ProgramRecord:
    """A program whose calls follow one another without overlap."""
    pairs = draw(st.lists(st.tuples(grid, counts), min_size=1, max_size=40))
    pairs.sort()
    cuts = sorted(draw(st.sets(st.integers(1, len(pairs)), max_size=5)) | {len(pairs)})
    calls = [
        CallRecord(number, None, pairs[begin][0], tuple(pairs[begin:end]))
        for number, (begin, end) in enumerate(pairwise([0, *cuts]))
    ]
    arrived = pairs[0][0] - draw(grid)
    return ProgramRecord("p", arrived, pairs[-1][0] + draw(grid), tuple(calls))


def test_percentile_interpolates_linearly_between_ranks():
    values = [40.0, 10.0, 20.0, 30.0]
    assert percentile(values, 0) == 10.0
    assert percentile(values, 50) == 25.0
    assert percentile(values, 95) == pytest.approx(38.5)
    assert percentile(values, 100) == 40.0
    assert percentile([7.0], 99) == 7.0


def test_percentile_refuses_what_has_no_answer():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)
    with pytest.raises(ValueError, match="101"):
        percentile([1.0], 101)


@given(st.lists(grid, min_size=1), st.floats(0, 100), st.floats(0, 100))
def test_percentile_is_monotone_and_within_the_values(values: list[float], p: float, q: float):
    low, high = sorted((p, q))
    assert min(values) <= percentile(values, low) <= percentile(values, high) + 1e-9
    assert percentile(values, high) <= max(values) + 1e-9


def test_token_gaps_span_calls_and_count_drafted_tokens_one_by_one():
    record = program(call(1, 1.0, (1.5, 3)), call(2, 4.0))
    assert token_gaps(record) == [0.5, 0.0, 0.0, 2.5]


def test_token_gaps_of_parallel_calls_form_one_series():
    record = program(call(1, 1.0, 3.0), call(2, 2.0, 5.0))
    assert token_gaps(record) == [1.0, 1.0, 2.0]


def test_switch_gap_is_last_token_to_first_token():
    record = program(call(1, 1.0, 2.0), call(2, 2.5, 3.0), call(3, 4.0))
    assert switch_gaps(record) == [0.5, 1.0]


def test_the_upstream_of_a_join_is_the_branch_that_ended_last():
    root = call(1, 1.0)
    left, right = call(2, 2.0, 2.25), call(3, 2.5, 4.0, submitted=1.5)
    join = call(4, 6.0, submitted=4.0)
    record = program(root, left, right, join)
    assert upstream_of(left, record.calls) == root
    assert upstream_of(right, record.calls) == root
    assert upstream_of(join, record.calls) == right
    assert upstream_of(root, record.calls) is None
    assert switch_gaps(record) == [1.0, 1.5, 2.0]


def test_calls_at_one_time_are_ordered_by_their_ids():
    first, second = call(1, 1.0), call(2, 1.0)
    record = program(second, first)
    assert upstream_of(second, record.calls) == first
    assert upstream_of(first, record.calls) is None


def test_calls_without_tokens_have_no_part_in_gaps():
    record = program(call(1, 1.0), call(2), call(3, 3.0))
    assert switch_gaps(record) == [2.0]
    assert token_gaps(record) == [2.0]


def test_time_to_first_token_counts_from_the_arrival():
    assert time_to_first_token(program(call(1, 3.0), call(2, 4.0), arrived=1.0)) == 2.0
    assert time_to_first_token(program(call(1))) is None


def test_makespan_is_from_the_first_arrival_to_the_last_finish():
    run = RunRecord(
        "vllm", (program(arrived=5.0, finished=9.0), program(arrived=2.0, finished=7.0))
    )
    assert makespan(run) == 7.0
    assert makespan(RunRecord("vllm", ())) == 0.0


def test_measure_pools_runs():
    fast = RunRecord(
        "grape",
        (
            program(
                call(1, 1.0, 1.5, prompt_tokens=30),
                call(2, 2.0, prompt_tokens=50, ahead_tokens=20),
                arrived=0.0,
                finished=2.5,
            ),
        ),
    )
    slow = RunRecord(
        "grape",
        (program(call(1, 2.0, (6.0, 2), prompt_tokens=20), arrived=0.0, finished=7.5),),
    )
    metrics = measure([fast, slow])
    assert metrics == {
        "agentic_itl_ms": {
            "mean": 1250.0,
            "p50": 500.0,
            "p95": pytest.approx(3475.0),
            "p99": pytest.approx(3895.0),
            "max": 4000.0,
        },
        "switch_gap_ms": {"mean": 500.0, "p95": 500.0, "max": 500.0},
        "ttft_ms": {"mean": 1500.0, "p95": pytest.approx(1950.0)},
        "program_s": {"mean": 5.0, "p95": pytest.approx(7.25)},
        "makespan_s": 5.0,
        "tokens_per_s": 0.6,
        "ahead_share": 0.2,
    }


def test_measure_of_nothing_is_none_everywhere():
    metrics = measure([])
    assert metrics["agentic_itl_ms"] == dict.fromkeys(["mean", "p50", "p95", "p99", "max"])
    assert metrics["switch_gap_ms"] == dict.fromkeys(["mean", "p95", "max"])
    assert metrics["ttft_ms"] == metrics["program_s"] == {"mean": None, "p95": None}
    assert metrics["makespan_s"] is metrics["tokens_per_s"] is metrics["ahead_share"] is None


@given(chains())
def test_gaps_of_a_chain_add_up_to_its_span(record: ProgramRecord):
    times = [at for c in record.calls for at, _ in c.tokens]
    gaps = token_gaps(record)
    assert len(gaps) == sum(c.output_tokens for c in record.calls) - 1
    assert all(gap >= 0 for gap in gaps)
    assert sum(gaps) == max(times) - min(times)


@given(chains())
def test_a_chain_has_one_switch_between_two_calls(record: ProgramRecord):
    gaps = switch_gaps(record)
    assert gaps == [after.first - before.last for before, after in pairwise(record.calls)]
    # Every switch gap is one of the gaps between tokens of the program.
    remaining = token_gaps(record)
    for gap in gaps:
        remaining.remove(gap)


@given(st.lists(chains(), min_size=1, max_size=4), grid)
def test_figures_do_not_depend_on_the_zero_of_the_clock(
    programs: list[ProgramRecord], shift: float
):
    def shifted(record: ProgramRecord) -> ProgramRecord:
        calls = tuple(
            c._replace(
                submitted=c.submitted + shift,
                tokens=tuple((at + shift, count) for at, count in c.tokens),
            )
            for c in record.calls
        )
        return ProgramRecord("p", record.arrived + shift, record.finished + shift, calls)

    run = RunRecord("vllm", tuple(programs))
    moved = RunRecord("vllm", tuple(map(shifted, programs)))
    assert measure([moved]) == measure([run])


@given(st.lists(chains(), min_size=1, max_size=4))
def test_a_run_measured_twice_has_the_same_means_and_rate(programs: list[ProgramRecord]):
    run = RunRecord("vllm", tuple(programs))
    once, twice = measure([run]), measure([run, run])
    assert twice["makespan_s"] == once["makespan_s"]
    assert twice["agentic_itl_ms"]["mean"] == pytest.approx(once["agentic_itl_ms"]["mean"])
    assert twice["agentic_itl_ms"]["max"] == once["agentic_itl_ms"]["max"]
    assert twice["tokens_per_s"] == pytest.approx(once["tokens_per_s"])
