"""Runs as a timeline in the Chrome trace format (chrome://tracing, Perfetto).

One process a run and one row a program; below a program's row, one for its open prompts::

    vllm 1   tram-tickets                [prefill][ product_planner   ][prefill][ framework_de
    grape 1  tram-tickets                [prefill][ product_planner   ][][ framework_designer
             tram-tickets: open prompts           [ 512 tokens ahead  ]

The format: JSON, ``traceEvents`` with complete events (``ph`` X: begin ``ts`` and length
``dur``, in microseconds) and metadata (``ph`` M: names of processes and rows).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord, upstream_of

Event = dict[str, Any]


def chrome_trace(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """A trace of ``runs``, each beginning at zero, in the JSON object form of the format.

    A call has two spans: ``prefill`` from its submission to its first token, waiting included,
    and its decoding, to its last token. What was prefilled ahead for a call is drawn over the
    time in which its upstream decoded, since that is when it was fed; the engine does not tell
    when each piece was computed.
    """
    events: list[Event] = []
    numbers: dict[str, int] = {}
    for process, run in enumerate(runs, start=1):
        numbers[run.arm] = numbers.get(run.arm, 0) + 1
        events.append(_name("process_name", process, 0, f"{run.arm} {numbers[run.arm]}"))
        events.append({"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0})
        events[-1]["args"] = {"sort_index": process}
        zero = min((program.arrived for program in run.programs), default=0.0)
        for row, program in enumerate(run.programs):
            events.extend(_program(program, process, 2 * row + 1, zero))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _program(program: ProgramRecord, process: int, row: int, zero: float) -> Iterator[Event]:
    yield _name("thread_name", process, row, program.program)
    ahead = [call for call in program.calls if call.ahead_tokens and call.tokens]
    if ahead:
        yield _name("thread_name", process, row + 1, f"{program.program}: open prompts")
    for number, call in enumerate(program.calls, start=1):
        if not call.tokens:
            continue
        name = call.task or f"call {number}"
        upstream = upstream_of(call, program.calls)
        facts = _facts(call)
        begin, length = call.submitted - zero, call.first - call.submitted
        yield _span(f"{name}: prefill", "prefill", process, row, begin, length)
        yield _span(name, "decode", process, row, call.first - zero, call.last - call.first, facts)
        if call in ahead and upstream is not None:
            length = upstream.last - upstream.first
            label = f"{name}: {call.ahead_tokens} tokens ahead"
            yield _span(label, "ahead", process, row + 1, upstream.first - zero, length, facts)


def _facts(call: CallRecord) -> dict[str, Any]:
    return {
        "call": call.call_id,
        "prompt_tokens": call.prompt_tokens,
        "cached_tokens": call.cached_tokens,
        "ahead_tokens": call.ahead_tokens,
        "ahead_outcome": call.ahead_outcome,
        "output_tokens": call.output_tokens,
    }


def _name(kind: str, process: int, row: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": row, "args": {"name": name}}


def _span(
    name: str,
    category: str,
    process: int,
    row: int,
    begin_s: float,
    length_s: float,
    args: dict[str, Any] | None = None,
) -> Event:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "pid": process,
        "tid": row,
        "ts": round(1e6 * begin_s, 1),
        "dur": round(1e6 * max(length_s, 0.0), 1),
        "args": args or {},
    }
