"""What a run costs the machine and what it is good for; a part of ``outcomes``. Pure.

- *MFU*, model FLOPs utilisation: useful operations over what the devices could have done in the
  makespan. Useful is each prompt and output token once: what calls did not find in the cache,
  what they took over from open prompts and these had computed, and each output token but the last
  of a call, which the model never reads. Not useful: what is computed again, what is prefilled
  early for nobody, and drafts that are rejected. For a token with k tokens before it the model
  does ``per_token + per_context * (k + 1)`` operations, and ``per_logit`` for each sampled one.
  After A. Chowdhery et al., PaLM: Scaling Language Modeling with Pathways, 2022, appendix B: two
  operations a weight, and attention's products; here forward only, and causal.
- *device seconds for each success*: makespan times devices, over programs that succeeded: those
  that ended without an error and, where an SLO is set, met it by the strict rule.
- *wasted*: early tokens that no call took over. At least so many: what was adopted may have come
  out of the prefix cache and not out of early work.
- *prompt tokens computed*: what calls did not find in the cache, and all early tokens. What is
  computed again is not in it.
- *KV*, *evictions*, *recomputed tokens*: counters of the engine, see ``engine.vllm_counts``.
- *task success*: of the programs with a known answer, how many gave it.
- *duplicate tool calls*: of all calls of tools, how many repeat an earlier one of their program
  with the same arguments.

A run that failed counts in as many seconds a program as the others took, and its programs neither
succeed nor answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from grape_lc.bench.metrics import CallRecord, RunRecord, span
from grape_lc.bench.slo import Slo, program_meets

Counters = Mapping[str, float]
Facts = Mapping[str, Any]
"""What an engine tells of itself; read are ``devices``, ``model_flops`` and ``peak_flops``."""

ANSWERS = (("answers_containing", "answers_checked"), ("programs_solved", "programs_tested"))
"""Counters of a scorer: programs whose answer is right, and programs with a known one."""


class CostMetrics(TypedDict):
    """Costs and use; None where the engine or the workload does not tell.

    mfu, task_success, duplicate_tool_calls: shares. accelerator_s_per_success: seconds.
    kv_bytes_peak: bytes on one device, the most of all runs. All others: counts, over all runs.
    """

    mfu: float | None
    accelerator_s_per_success: float | None
    kv_bytes_peak: float | None
    wasted_tokens: float | None
    prefilled_tokens: float | None
    evictions: float | None
    recomputed_tokens: float | None
    task_success: float | None
    duplicate_tool_calls: float | None


class Work(NamedTuple):
    """Forward passes that were of use.

    tokens: that the model read. contexts: tokens that they attended to, each itself included, added
    up. logits: tokens that were sampled.
    """

    tokens: float
    contexts: float
    logits: float

    def flops(self, model: Mapping[str, float]) -> float:
        """Operations; ``model`` has those of ``engine.vllm_figures.model_flops``."""
        return (
            self.tokens * model["per_token"]
            + self.contexts * model["per_context"]
            + self.logits * model["per_logit"]
        )


def costs(
    runs: Sequence[RunRecord],
    slo: Slo,
    *,
    lost: int = 0,
    counters: Sequence[Counters] = (),
    facts: Facts | None = None,
) -> CostMetrics:
    """The figures of one arm, its runs pooled.

    lost: programs of runs that failed. counters: of each run, by how much they rose.
    """
    known = facts or {}
    early, adopted = (total(counters, name) for name in ("open_tokens", "adopted_tokens"))
    peaks = [each["peak_kv_bytes"] for each in counters if "peak_kv_bytes" in each]
    return {
        "mfu": _mfu(runs, known, early or 0.0),
        "accelerator_s_per_success": _seconds_per_success(runs, slo, lost, known.get("devices")),
        "kv_bytes_peak": max(peaks, default=None),
        "wasted_tokens": None if early is None else max(early - (adopted or 0.0), 0.0),
        "prefilled_tokens": _prefilled(runs, early or 0.0),
        "evictions": total(counters, "evictions"),
        "recomputed_tokens": total(counters, "recomputed_tokens"),
        "task_success": _task_success(counters, lost),
        "duplicate_tool_calls": _share(
            total(counters, "tool_duplicates"), total(counters, "tool_calls")
        ),
    }


def facts_of(infos: Mapping[str, Facts], arm: str) -> Facts:
    """What the engine of an arm told, with the highest peak that any arm's engine found.

    A measured peak differs from engine to engine by what else the machine did; arms are to be held
    against the same one.
    """
    peaks = [info["peak_flops"] for info in infos.values() if info.get("peak_flops")]
    return {**infos.get(arm, {}), "peak_flops": max(peaks, default=None)}


def total(counters: Iterable[Counters], name: str) -> float | None:
    """A counter added up over runs; None where none of them has it."""
    values = [each[name] for each in counters if name in each]
    return sum(values) if values else None


def useful_work(runs: Iterable[RunRecord], early: float) -> Work:
    """What the model had to do for the calls of some runs, each token counted once at most.

    early: tokens that open prompts computed. Of the tokens that calls took over no more than
    these count, since the others came out of the prefix cache.
    """
    calls = [
        call for run in runs for program in run.programs for call in program.calls if call.tokens
    ]
    adopted = sum(call.ahead_tokens for call in calls)
    share = min(1.0, early / adopted) if adopted else 0.0
    works = [_own_work(call) for call in calls]
    taken = [(call.ahead_tokens, _contexts(call.ahead_tokens)) for call in calls]
    return Work(
        sum(work.tokens for work in works) + share * sum(tokens for tokens, _ in taken),
        sum(work.contexts for work in works) + share * sum(contexts for _, contexts in taken),
        sum(work.logits for work in works),
    )


def _own_work(call: CallRecord) -> Work:
    """What a call computed itself: its tokens from the first that no cache had to the last read."""
    end = call.prompt_tokens + call.output_tokens - 1
    begin = min(call.cached_tokens, end)
    return Work(end - begin, _contexts(end) - _contexts(begin), call.output_tokens)


def _contexts(tokens: int) -> int:
    """What the first ``tokens`` tokens of a text attend to, added up: 1 + 2 + ... + tokens."""
    return tokens * (tokens + 1) // 2


def _mfu(runs: Sequence[RunRecord], facts: Facts, early: float) -> float | None:
    model, peak, devices = (facts.get(key) for key in ("model_flops", "peak_flops", "devices"))
    seconds = sum(map(span, runs))
    if not (model and peak and devices and seconds > 0):
        return None
    possible: float = peak * devices * seconds
    return useful_work(runs, early).flops(model) / possible


def _seconds_per_success(
    runs: Sequence[RunRecord], slo: Slo, lost: int, devices: int | None
) -> float | None:
    programs = [program for run in runs for program in run.programs]
    good = sum(not slo or program_meets(program, slo, "strict") for program in programs)
    if not (good and devices):
        return None
    # Nobody knows how long a failed run would have taken.
    seconds = sum(map(span, runs)) * (len(programs) + lost) / len(programs)
    return seconds * devices / good


def _prefilled(runs: Sequence[RunRecord], early: float) -> float | None:
    calls = [call for run in runs for program in run.programs for call in program.calls]
    own = sum(call.prompt_tokens - call.cached_tokens for call in calls)
    return own + early if calls else None


def _task_success(counters: Sequence[Counters], lost: int) -> float | None:
    for passed, checked in ANSWERS:
        judged = total(counters, checked)
        if judged:
            return (total(counters, passed) or 0.0) / (judged + lost)
    return None


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
