import json
from collections import defaultdict
from itertools import pairwise

from grape_lc.bench.chrome import chrome_trace
from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord

PLAIN = RunRecord(
    "vllm",
    (
        ProgramRecord(
            "alpha",
            100.0,
            106.0,
            (
                CallRecord(1, "plan", 100.5, ((101.0, 1), (102.0, 1)), prompt_tokens=40),
                CallRecord(2, "code", 102.25, ((103.0, 1), (105.0, 2)), prompt_tokens=60),
            ),
        ),
        ProgramRecord("beta", 101.0, 103.0, (CallRecord(3, None, 101.0, ((102.0, 1),)),)),
    ),
)
AHEAD = RunRecord(
    "grape",
    (
        ProgramRecord(
            "alpha",
            50.0,
            60.0,
            (
                CallRecord(1, "plan", 50.0, ((51.0, 1), (54.0, 1)), prompt_tokens=40),
                CallRecord(
                    2,
                    "code",
                    54.125,
                    ((54.25, 1), (55.0, 1)),
                    prompt_tokens=60,
                    ahead_tokens=58,
                    ahead_outcome="adopted",
                ),
            ),
        ),
    ),
)


def spans(trace: dict) -> list[dict]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_the_file_has_the_structure_of_the_format():
    trace = json.loads(json.dumps(chrome_trace([PLAIN, AHEAD])))
    assert trace["displayTimeUnit"] == "ms"
    named = set()
    for event in trace["traceEvents"]:
        assert event["ph"] in {"X", "M"}
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert event["name"]
            assert event["ts"] >= 0
            assert event["dur"] >= 0
        elif event["name"] == "thread_name":
            named.add((event["pid"], event["tid"]))
    # Every row that has spans has a name.
    assert {(event["pid"], event["tid"]) for event in spans(trace)} == named


def test_runs_are_processes_and_programs_are_rows():
    trace = chrome_trace([PLAIN, AHEAD, PLAIN])
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"]
        for event in trace["traceEvents"]
        if event["ph"] == "M" and "name" in event["args"]
    }
    assert names["process_name", 1, 0] == "vllm 1"
    assert names["process_name", 2, 0] == "grape 1"
    assert names["process_name", 3, 0] == "vllm 2"
    assert names["thread_name", 1, 1] == "alpha"
    assert names["thread_name", 1, 3] == "beta"
    assert names["thread_name", 2, 2] == "alpha: open prompts"


def test_spans_lie_where_the_tokens_were():
    found = [(e["name"], e["tid"], e["ts"], e["dur"]) for e in spans(chrome_trace([PLAIN]))]
    assert found == [
        ("plan: prefill", 1, 0.5e6, 0.5e6),
        ("plan", 1, 1e6, 1e6),
        ("code: prefill", 1, 2.25e6, 0.75e6),
        ("code", 1, 3e6, 2e6),
        ("call 1: prefill", 3, 1e6, 1e6),
        ("call 1", 3, 2e6, 0.0),
    ]


def test_what_was_prefilled_ahead_is_drawn_under_the_upstream_call():
    (ahead,) = [e for e in spans(chrome_trace([AHEAD])) if e["cat"] == "ahead"]
    assert ahead["name"] == "code: 58 tokens ahead"
    assert (ahead["tid"], ahead["ts"], ahead["dur"]) == (2, 1e6, 3e6)
    assert ahead["args"]["ahead_outcome"] == "adopted"


def test_spans_of_a_row_do_not_overlap():
    rows = defaultdict(list)
    for event in spans(chrome_trace([PLAIN, AHEAD])):
        rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for intervals in rows.values():
        intervals.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(intervals))


def test_calls_without_tokens_and_empty_runs_are_left_out():
    silent = RunRecord("vllm", (ProgramRecord("p", 0.0, 1.0, (CallRecord(1, None, 0.0, ()),)),))
    assert spans(chrome_trace([silent, RunRecord("grape", ())])) == []
