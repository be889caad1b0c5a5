"""What a simulation counts, in bounded memory whatever its length."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from grape_lc.engine.simulator.hardware import Rating
from grape_lc.engine.simulator.histogram import Histogram

LATE_SHARE = 0.01
"""A call keeps its TBT target if at most this share of its gaps is longer: its P99 does."""


@dataclass(slots=True)
class Statistics:
    """Counts and distributions; times in seconds of the simulated clock.

    The definitions are those of ``grape_lc.bench.metrics``.

    itl: gaps between consecutive output tokens of one program. switch: from the last token of the
        call that ended last before a call was made to that call's first token. ttft: from a
        program's arrival to its first token. program: from arrival to final answer.
        waiting: from a call's arrival in the engine to its first step.
    calls, calls_met: calls that ended, and those that kept their targets for the first token and
        for 99% of the gaps. programs_met: programs all of whose calls did and that kept their
        deadline. Without a target every call meets it.
    output_tokens, prompt_tokens, cached_tokens, adopted_tokens: of the calls that ended.
    computed_tokens: in all steps. recomputed_tokens: of these, those computed before and lost to
        a preemption or a drop. early_tokens: those of open prompts.
        wasted_tokens: of these, such as no call took over.
    outcomes: how calls with an open prompt took it over, by name.
    useful_tokens: what calls computed, or what was computed for them early: each of their tokens
        once at most, and neither what the cache held nor what was computed again or for nobody.
        useful_contexts: the tokens that these attended to, themselves among them, added up.
    drafted_tokens, accepted_tokens: computed as drafts, and of these the right ones.
    preemptions, dropped, stripped: running calls, open prompts, and waiting calls with KV that they
        had taken over, that gave up their KV.
    peak_blocks: most KV blocks that were in use in one engine; cached ones are not.
    steps, held: steps that computed something, and empty ones that waited for a follower.
    busy_s: added up over steps. begun, ended: first arrival and last end of a program.
    """

    itl: Histogram = field(default_factory=Histogram)
    switch: Histogram = field(default_factory=Histogram)
    ttft: Histogram = field(default_factory=Histogram)
    program: Histogram = field(default_factory=Histogram)
    waiting: Histogram = field(default_factory=Histogram)
    calls: int = 0
    calls_met: int = 0
    programs: int = 0
    programs_met: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    adopted_tokens: int = 0
    computed_tokens: int = 0
    recomputed_tokens: int = 0
    early_tokens: int = 0
    wasted_tokens: int = 0
    useful_tokens: int = 0
    useful_contexts: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    dropped: int = 0
    stripped: int = 0
    peak_blocks: int = 0
    steps: int = 0
    held: int = 0
    busy_s: float = 0.0
    begun: float = float("inf")
    ended: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)

    @property
    def makespan_s(self) -> float:
        """From the first arrival to the last end; 0 without programs."""
        return max(0.0, self.ended - self.begun) if self.programs else 0.0

    def utilisation(self, rating: Rating, replicas: int = 1) -> float | None:
        """MFU: useful operations over what the devices could have done; as ``bench.costs``."""
        useful = (
            self.useful_tokens * rating.per_token
            + self.useful_contexts * rating.per_context
            + self.output_tokens * rating.per_logit
        )
        could = rating.peak * replicas * self.makespan_s
        return useful / could if could else None

    def figures(
        self, rating: Rating | None = None, *, replicas: int = 1, block_size: int = 16
    ) -> dict[str, Any]:
        """All figures as plain data, times in ms or s as their names say; None: nothing to say.

        rating: of a replica. Without one a replica counts as one device, and MFU and bytes of KV
        are None.
        """
        devices = replicas * (1 if rating is None else rating.devices)

        def spread(histogram: Histogram, scale: float) -> dict[str, float | None]:
            found: dict[str, float | None] = {"mean": histogram.mean}
            for p in (50, 95, 99):
                found[f"p{p}"] = histogram.percentile(p)
            found["max"] = histogram.max if histogram.count else None
            return {name: None if v is None else v * scale for name, v in found.items()}

        def ratio(part: float, whole: float) -> float | None:
            return part / whole if whole else None

        return {
            "agentic_itl_ms": spread(self.itl, 1e3),
            "switch_gap_ms": spread(self.switch, 1e3),
            "ttft_ms": spread(self.ttft, 1e3),
            "program_s": spread(self.program, 1.0),
            "waiting_ms": spread(self.waiting, 1e3),
            "makespan_s": self.makespan_s,
            "tokens_per_s": ratio(self.output_tokens, self.makespan_s),
            "calls_met": ratio(self.calls_met, self.calls),
            "programs_met": ratio(self.programs_met, self.programs),
            "goodput_per_s": ratio(self.programs_met, self.makespan_s),
            "programs": self.programs,
            "calls": self.calls,
            "steps": self.steps,
            "held": self.held,
            "busy": ratio(self.busy_s, self.makespan_s),
            "computed_tokens": self.computed_tokens,
            "prompt_tokens": self.prompt_tokens,
            "cached_share": ratio(self.cached_tokens, self.prompt_tokens),
            "ahead_share": ratio(self.adopted_tokens, self.prompt_tokens),
            "mfu": None if rating is None else self.utilisation(rating, replicas),
            "accelerator_s_per_success": ratio(self.makespan_s * devices, self.programs_met),
            "kv_bytes_peak": (
                None if rating is None else self.peak_blocks * block_size * rating.kv_bytes
            ),
            "evictions": self.preemptions + self.dropped + self.stripped,
            "preemptions": self.preemptions,
            "dropped": self.dropped,
            "recomputed_tokens": self.recomputed_tokens,
            "early_tokens": self.early_tokens,
            "wasted_tokens": self.wasted_tokens,
            "drafted_tokens": self.drafted_tokens,
            "accepted_share": ratio(self.accepted_tokens, self.drafted_tokens),
            "outcomes": dict(sorted(self.outcomes.items())),
        }
