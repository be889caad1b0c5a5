"""Records of calls, and the figures computed from them. Pure: no clock, no input or output.

A *run* is one pass over a workload: several programs, each of several calls.

    arrived        call 1 decodes        call 2 decodes             finished
       |  ttft      | | | | | |  switch   | | | | | |                  |
       |<---------->|<itl       |<------->|                            |
       |<------------------------ program ---------------------------->|

Times are seconds on one clock, whose zero does not matter. Definitions:

- *agentic ITL*: gap between consecutive output tokens of one program. Tokens of intermediate
  and final calls form one series, so the gaps at task switches are among them. Several tokens
  that arrive at once (drafting) count one by one, with gaps of zero between them.
- *switch gap*: from the last token of the upstream call to the first token of the downstream
  call. The upstream of a call is the call of its program that ended last before this one was
  submitted.
- *TTFT*: from the arrival of a program to its first token.
- *makespan*: from the first arrival of a run to the end of its last program; the mean over
  runs, where there are several.
- *program time*: from the arrival of a program to its final answer.
- *tokens per second*: output tokens of all runs over the sum of their makespans.
- *ahead share*: the part of all prompt tokens, over all calls, that calls took over from open
  prompts.

Gaps, TTFTs and program times of several runs are pooled. Percentiles interpolate linearly
between the two closest ranks: the p-th percentile of n sorted values lies at rank
p / 100 * (n - 1), counted from zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypedDict


class CallRecord(NamedTuple):
    """What one call did.

    call_id: unique in a run, and higher for later calls.
    submitted: time at which the program made the call.
    tokens: pairs of (time in seconds, number of tokens that arrived then), in order of time;
        no pair has zero tokens.
    ahead_tokens: prompt tokens taken over from an open prompt.
    text: the whole answer.
    """

    call_id: int
    task: str | None
    submitted: float
    tokens: tuple[tuple[float, int], ...]
    text: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ahead_tokens: int = 0
    ahead_outcome: str = "none"

    @property
    def output_tokens(self) -> int:
        """Number of tokens of the answer."""
        return sum(count for _, count in self.tokens)

    @property
    def first(self) -> float:
        """Time of the first token; only for a call that has one."""
        return self.tokens[0][0]

    @property
    def last(self) -> float:
        """Time of the last token; only for a call that has one."""
        return self.tokens[-1][0]


class ProgramRecord(NamedTuple):
    """One program: its name, when it arrived and when its final answer was there.

    scheduled: when it should have arrived, before the threads of the client had a part in it;
        None where nothing was scheduled.
    tenant: whose it is; empty where there are no tenants.
    """

    program: str
    arrived: float
    finished: float
    calls: tuple[CallRecord, ...]
    scheduled: float | None = None
    tenant: str = ""

    @property
    def due(self) -> float:
        """When it should have arrived, or did where nothing was scheduled."""
        return self.arrived if self.scheduled is None else self.scheduled


class RunRecord(NamedTuple):
    """One pass over the workload on one arm, such as ``vllm`` or ``grape``."""

    arm: str
    programs: tuple[ProgramRecord, ...]


class SpreadMetrics(TypedDict):
    """Mean, median, tails and maximum."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None


class GapMetrics(TypedDict):
    """Mean, tail and maximum."""

    mean: float | None
    p95: float | None
    max: float | None


class TailMetrics(TypedDict):
    """Mean and tail."""

    mean: float | None
    p95: float | None


class Metrics(TypedDict):
    """All figures of one arm; None where there was nothing to measure."""

    agentic_itl_ms: SpreadMetrics
    switch_gap_ms: GapMetrics
    ttft_ms: TailMetrics
    program_s: TailMetrics
    makespan_s: float | None
    tokens_per_s: float | None
    ahead_share: float | None


def percentile(values: Sequence[float], p: float) -> float:
    """The p-th percentile (0 <= p <= 100), by linear interpolation between closest ranks.

    Raises ValueError when ``values`` is empty or ``p`` out of range.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    if not 0 <= p <= 100:
        raise ValueError(f"a percentile lies between 0 and 100, not at {p}")
    ordered = sorted(values)
    rank = p / 100 * (len(ordered) - 1)
    below = math.floor(rank)
    low, high = ordered[below], ordered[math.ceil(rank)]
    return low + (high - low) * (rank - below)


def mean_of(values: Sequence[float]) -> float | None:
    """The mean; None where there are no values."""
    return math.fsum(values) / len(values) if values else None


def tail_of(values: Sequence[float], p: float) -> float | None:
    """The p-th percentile; None where there are no values."""
    return percentile(values, p) if values else None


def token_gaps(program: ProgramRecord) -> list[float]:
    """Gaps in seconds between consecutive output tokens of a program, over all its calls."""
    times = sorted(at for call in program.calls for at, count in call.tokens for _ in range(count))
    return [after - before for before, after in pairwise(times)]


def upstream_of(call: CallRecord, calls: Iterable[CallRecord]) -> CallRecord | None:
    """The call that ended last before ``call`` was submitted; None for a root.

    Calls without tokens are passed over. Of calls that ended at the same time the one with the
    highest id counts.
    """
    before = (
        other
        for other in calls
        if other.call_id < call.call_id and other.tokens and other.last <= call.submitted
    )
    return max(before, key=lambda other: (other.last, other.call_id), default=None)


def switch_gaps(program: ProgramRecord) -> list[float]:
    """Task-switch gaps of a program in seconds, one for each call that has an upstream."""
    gaps = []
    for call in program.calls:
        if not call.tokens:
            continue
        upstream = upstream_of(call, program.calls)
        if upstream is not None:
            gaps.append(call.first - upstream.last)
    return gaps


def time_to_first_token(program: ProgramRecord) -> float | None:
    """Seconds from the arrival of a program to its first token; None if it has none."""
    firsts = [call.first for call in program.calls if call.tokens]
    return min(firsts) - program.arrived if firsts else None


def makespan(run: RunRecord) -> float:
    """Seconds from the first arrival to the end of the last program; 0.0 for an empty run."""
    if not run.programs:
        return 0.0
    return max(p.finished for p in run.programs) - min(p.arrived for p in run.programs)


def span(run: RunRecord) -> float:
    """Seconds from when the first program was due to the end of the last; 0.0 for an empty run."""
    if not run.programs:
        return 0.0
    return max(p.finished for p in run.programs) - min(p.due for p in run.programs)


def measure(runs: Sequence[RunRecord]) -> Metrics:
    """The figures of one arm from all its runs, pooled as the module's docstring says."""
    programs = [program for run in runs for program in run.programs]
    calls = [call for program in programs for call in program.calls]
    itl = [1000 * gap for program in programs for gap in token_gaps(program)]
    switch = [1000 * gap for program in programs for gap in switch_gaps(program)]
    first = [1000 * t for t in map(time_to_first_token, programs) if t is not None]
    program_s = [program.finished - program.arrived for program in programs]
    spans = [makespan(run) for run in runs if run.programs]
    prompt_tokens = sum(call.prompt_tokens for call in calls)
    return {
        "agentic_itl_ms": {
            "mean": mean_of(itl),
            "p50": tail_of(itl, 50),
            "p95": tail_of(itl, 95),
            "p99": tail_of(itl, 99),
            "max": max(itl, default=None),
        },
        "switch_gap_ms": {
            "mean": mean_of(switch),
            "p95": tail_of(switch, 95),
            "max": max(switch, default=None),
        },
        "ttft_ms": {"mean": mean_of(first), "p95": tail_of(first, 95)},
        "program_s": {"mean": mean_of(program_s), "p95": tail_of(program_s, 95)},
        "makespan_s": mean_of(spans),
        "tokens_per_s": _ratio(sum(call.output_tokens for call in calls), sum(spans)),
        "ahead_share": _ratio(sum(call.ahead_tokens for call in calls), prompt_tokens),
    }


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
