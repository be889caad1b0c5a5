"""Figures of whole programs, beside those of ``metrics``. Pure.

    due        call 1 decodes          call 2 decodes        finished
     |  idle    | | | | | |    idle     | | | | | |  client     |
     |<-------------------- final answer -------->|
     |<------------------------ finish ----------------------->|

All times count from when a program was *due*: its scheduled arrival, so that a client that falls
behind does not hide it. In a closed loop that is when it began.

- *final answer*: to the last token of the program's last call.
- *finish*: to the end of the program, the client's own work after the last token included.
- *idle*: the time on the critical path in which no call of it makes tokens. The path is followed
  back from the call that ended last, each time to the call that ended last before it was made.
- *goodput*: programs that meet the SLO, a second of makespan, and their share of all programs.
  Programs of runs that failed are among all, and have met nothing; such a run counts with as many
  seconds a program as the others took.
- *fairness*: Jain's index (sum x)^2 / (n sum x^2) over tenants, with x the output tokens of a
  tenant for each second that a program of it was there. 1: all alike; 1/n: one has everything.
  R. Jain, D. Chiu, W. Hawe, A Quantitative Measure of Fairness, DEC TR-301, 1984.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TypedDict

from grape_lc.bench.costs import CostMetrics, Counters, Facts, costs
from grape_lc.bench.metrics import (
    CallRecord,
    Metrics,
    ProgramRecord,
    RunRecord,
    TailMetrics,
    mean_of,
    measure,
    span,
    tail_of,
    upstream_of,
)
from grape_lc.bench.report import FIGURES, Figure, number
from grape_lc.bench.slo import NO_SLO, Slo, call_meets, program_meets


class LatencyMetrics(TypedDict):
    """Median and tails, in seconds."""

    p50: float | None
    p95: float | None
    p99: float | None


class GoodputMetrics(TypedDict):
    """Programs, or calls, that met the SLO: a second, and their share. None without an SLO.

    mean_calls_per_s: calls by the rule ``mean``, what vLLM calls request goodput.
    """

    strict_per_s: float | None
    strict_share: float | None
    mean_per_s: float | None
    mean_share: float | None
    mean_calls_per_s: float | None


class Outcomes(Metrics, CostMetrics):
    """The figures of ``metrics``, those of whole programs, and what they cost."""

    answer_s: LatencyMetrics
    finish_s: LatencyMetrics
    idle_s: TailMetrics
    goodput: GoodputMetrics
    fairness: float | None


PROGRAM_FIGURES = (
    Figure("final answer, p50 (s)", ("answer_s", "p50"), 2, True),
    Figure("final answer, p95 (s)", ("answer_s", "p95"), 2, True),
    Figure("final answer, p99 (s)", ("answer_s", "p99"), 2, True),
    Figure("finish, p50 (s)", ("finish_s", "p50"), 2, True),
    Figure("finish, p95 (s)", ("finish_s", "p95"), 2, True),
    Figure("finish, p99 (s)", ("finish_s", "p99"), 2, True),
    Figure("idle on the critical path, mean (s)", ("idle_s", "mean"), 2, True),
    Figure("idle on the critical path, p95 (s)", ("idle_s", "p95"), 2, True),
    Figure("goodput, strict (programs/s)", ("goodput", "strict_per_s"), 4, False),
    Figure("met the SLO, strict (share)", ("goodput", "strict_share"), 3, False),
    Figure("goodput, by means (programs/s)", ("goodput", "mean_per_s"), 4, False),
    Figure("met the SLO, by means (share)", ("goodput", "mean_share"), 3, False),
    Figure("goodput, by means (calls/s)", ("goodput", "mean_calls_per_s"), 4, False),
    Figure("fairness of tenants (Jain)", ("fairness",), 3, False),
)
COST_FIGURES = (
    Figure("MFU (share)", ("mfu",), 4, False),
    Figure("device seconds for each success", ("accelerator_s_per_success",), 2, True),
    Figure("KV in use, peak", ("kv_bytes_peak",), 1, None),
    Figure("early tokens wasted, at least", ("wasted_tokens",), 0, True),
    Figure("prompt tokens computed", ("prefilled_tokens",), 0, None),
    Figure("evictions", ("evictions",), 0, True),
    Figure("tokens recomputed", ("recomputed_tokens",), 0, True),
    Figure("task success (share)", ("task_success",), 3, False),
    Figure("duplicate tool calls (share)", ("duplicate_tool_calls",), 3, True),
)
BENCH_FIGURES = (*FIGURES, *PROGRAM_FIGURES, *COST_FIGURES)
_COUNTED = frozenset(
    {
        *("goodput", "evictions", "recomputed_tokens", "wasted_tokens"),
        *("task_success", "duplicate_tool_calls"),
    }
)
COUNTS = frozenset(figure for figure in BENCH_FIGURES if figure.path[0] in _COUNTED)
"""Figures that count something, and may well be zero."""


def shown(figure: Figure, value: float | None) -> str:
    """A figure as text, with its digits; one in bytes as MiB, or GiB from 1 GiB on."""
    if value is None or figure.path != ("kv_bytes_peak",):
        return number(value, figure.digits)
    mib = value / 2**20
    return f"{mib:.1f} MiB" if mib < 1024 else f"{mib / 1024:.2f} GiB"


def outcomes(
    runs: Sequence[RunRecord],
    slo: Slo = NO_SLO,
    *,
    lost: int = 0,
    counters: Sequence[Counters] = (),
    facts: Facts | None = None,
) -> Outcomes:
    """All figures of one arm, its runs pooled.

    lost: programs of runs that failed. counters: of each run, by how much they rose; facts: what
    the engine told of itself. Without these two there are no figures of ``costs`` that need them.
    """
    programs = [program for run in runs for program in run.programs]
    answers = [t for t in map(final_answer, programs) if t is not None]
    idle = [t for t in map(critical_idle, programs) if t is not None]
    return {
        **measure(runs),
        "answer_s": _latency(answers),
        "finish_s": _latency([program.finished - program.due for program in programs]),
        "idle_s": {"mean": mean_of(idle), "p95": tail_of(idle, 95)},
        "goodput": _goodput(runs, slo, lost),
        "fairness": fairness(programs),
        **costs(runs, slo, lost=lost, counters=counters, facts=facts),
    }


def final_answer(program: ProgramRecord) -> float | None:
    """Seconds from when a program was due to its last token; None if it has none."""
    last = _last_call(program)
    return None if last is None else last.last - program.due


def critical_idle(program: ProgramRecord) -> float | None:
    """Seconds on the critical path in which nothing was decoded; None without a token."""
    call = _last_call(program)
    if call is None:
        return None
    idle = 0.0
    while (upstream := upstream_of(call, program.calls)) is not None:
        idle += call.first - upstream.last
        call = upstream
    return idle + call.first - program.due


def fairness(programs: Sequence[ProgramRecord]) -> float | None:
    """Jain's index over tenants; None for fewer than two, or when nobody was served."""
    tokens: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    for program in programs:
        tokens[program.tenant] += sum(call.output_tokens for call in program.calls)
        seconds[program.tenant] += program.finished - program.due
    if len(tokens) < 2 or not any(tokens.values()):
        return None
    shares = [tokens[name] / seconds[name] for name in sorted(tokens) if seconds[name] > 0]
    if not any(shares):
        return None
    return math.fsum(shares) ** 2 / (len(shares) * math.fsum(x * x for x in shares))


def _goodput(runs: Sequence[RunRecord], slo: Slo, lost: int) -> GoodputMetrics:
    found: GoodputMetrics = {
        "strict_per_s": None,
        "strict_share": None,
        "mean_per_s": None,
        "mean_share": None,
        "mean_calls_per_s": None,
    }
    programs = [program for run in runs for program in run.programs]
    offered = len(programs) + lost
    if not slo or not offered:
        return found
    strict = sum(program_meets(program, slo, "strict") for program in programs)
    mean = sum(program_meets(program, slo, "mean") for program in programs)
    calls = sum(call_meets(call, slo, "mean") for p in programs for call in p.calls)
    found["strict_share"], found["mean_share"] = strict / offered, mean / offered
    # Nobody knows how long a failed run would have taken.
    seconds = sum(map(span, runs)) * offered / len(programs) if programs else 0.0
    found["strict_per_s"] = _per_second(strict, seconds)
    found["mean_per_s"] = _per_second(mean, seconds)
    found["mean_calls_per_s"] = _per_second(calls, seconds)
    return found


def _per_second(count: int, seconds: float) -> float | None:
    if not count:
        return 0.0
    return count / seconds if seconds > 0 else None


def _last_call(program: ProgramRecord) -> CallRecord | None:
    ended = [call for call in program.calls if call.tokens]
    return max(ended, key=lambda call: (call.last, call.call_id), default=None)


def _latency(values: Sequence[float]) -> LatencyMetrics:
    return {"p50": tail_of(values, 50), "p95": tail_of(values, 95), "p99": tail_of(values, 99)}
