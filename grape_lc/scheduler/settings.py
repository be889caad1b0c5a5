"""Settings of the policy. Each mechanism has a switch, so that it can be measured alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Self

_MOST = 1e9
"""No setting is larger: products of them stay finite."""


class Rule(StrEnum):
    """How waiting calls are ordered (see ``priority``)."""

    FCFS = "fcfs"
    HOPS = "hops"
    SERVICE = "service"
    ATTAINED = "attained"
    SHORTEST = "shortest"
    DEADLINE = "deadline"
    AUTO = "auto"


class Constraint(StrEnum):
    """What bounds the prefill of a step in which calls decode (see ``batching``)."""

    OFF = "off"
    CAP = "cap"
    ADAPTIVE = "adaptive"


class Eviction(StrEnum):
    """Who gives up KV when it runs short (see ``preemption``)."""

    TAIL = "tail"
    LRU = "lru"
    DISTANCE = "distance"
    RECOMPUTE = "recompute"
    COST = "cost"


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Settings of the policy and of the open prompt table; checked when made.

    Mechanisms, each of which can be switched off:

    incremental: open prompts grow while their upstream decodes.
    static: what an open prompt knows before its upstream began is prefilled early.
    rule: the order of waiting calls.
    constraint: what bounds prefill beside decodes: nothing, ``prefill_cap``, or the cost model.
    two_phase: first one micro-task of each program, then what is left; off: by rank alone.
    eviction: who gives up KV first; ``tail`` is vLLM's rule.
    admission: once preemptions cost much, a call starts only if running ones are expected to have
        the KV they need.
    governor: early work stops when it does not pay.
    handover: a step waits for, or makes way for, a call that follows one that just ended.

    Targets, for calls whose client named none; None: no target.

    ttft_s, tbt_s: seconds to the first token and between tokens.
    deadline_s: seconds for a whole program.

    Sizes and times:

    chunk: an open prompt runs beside real work once this many of its tokens are pending, or more
        where F says that fewer would not make up for the row they need (``chunk_weight``).
    lump: ... or this many, while its upstream is not about to end and tokens are not cheap.
    near_steps: an upstream that is expected to end within this many steps, and within those that
        the prompt's tokens take at ``open_cap`` a step, is about to end.
    prefill_cap: most prefill tokens of a step in which calls decode, under the fixed cap and
        wherever no trusted cost model exists; None: no cap.
    open_cap: most tokens of open prompts in any one step. A real call that arrives meanwhile
        waits for that step.
    stretch: a step with decodes may take this many times what they take alone, always.
    free_stretch: ... but takes only this many times as long, if that leaves room for at least half
        as many tokens: where reading the weights hides them, as on an accelerator.
    open_stretch: the same for early work: up to this its tokens count as nearly free.
    backlog_share: a step may also take this share of the prefill that waits.
    late_s: once the call that waits first has waited longer than this, that share grows with it, up
        to all: or, where every token has its price, prefill that comes faster than short steps take
        it would wait ever longer.
    slo_share: of the tightest TBT target, the part that a step may take.
    tight: while calls waited for KV in more than this share of steps, and nobody set targets,
        steps and order are vLLM's own.
    thrash: share of recomputed tokens above which preemptions cost much.
    rare: prefill is not bounded while fewer gaps than this share would hold any.
    adopted_first: an adopted call with at most this many tokens left goes before the prefill of
        calls that adopted nothing.
    hold_s: while a follower is due and comes within this time on the average, and within half a
        step, the engine waits for it rather than begin a step that it would have to sit out.
    grace_s, grace_tokens: for ``grace_s`` after a call that feeds others ended, the next call is
        on its way: a step then takes at most ``grace_tokens`` of prefill.
    horizon: how many more tokens a decoding call is expected to need KV for, if its limit allows
        them and nothing was learned about its task.
    margin: share of all KV blocks that early work leaves free beyond what real calls need.
    wide_margin: the same share that must be free before early work starts again after an open
        prompt had to give up its KV.
    aging: seconds of a waiting call's rank that a second of waiting is worth.
    in_flight_s, root_s: how soon a later call and a program's first call should start, seconds,
        where no target says so; the order of the ``deadline`` and ``auto`` rules.
    least_hits, most_misses: the governor allows only the next hop while a smaller share of early
        tokens was adopted, and nothing after this many useless open prompts in a row.
    crowd: early work for later hops stops while more calls than this wait, on the average.
    ttl_s: an open prompt that was not touched for this long is released.
    validate: check all state after every step (for tests).
    """

    incremental: bool = True
    static: bool = True
    rule: Rule = Rule.AUTO
    constraint: Constraint = Constraint.ADAPTIVE
    two_phase: bool = True
    eviction: Eviction = Eviction.COST
    admission: bool = True
    governor: bool = True
    handover: bool = True
    ttft_s: float | None = None
    tbt_s: float | None = None
    deadline_s: float | None = None
    chunk: int = 8
    lump: int = 64
    near_steps: int = 8
    prefill_cap: int | None = 96
    open_cap: int = 64
    stretch: float = 4.0
    free_stretch: float = 1.02
    open_stretch: float = 1.1
    backlog_share: float = 0.1
    late_s: float = 1.5
    slo_share: float = 0.98
    tight: float = 0.02
    thrash: float = 0.1
    rare: float = 0.005
    adopted_first: int = 256
    hold_s: float = 0.016
    grace_s: float = 0.025
    grace_tokens: int = 8
    horizon: int = 128
    margin: float = 0.02
    wide_margin: float = 0.25
    aging: float = 0.1
    in_flight_s: float = 0.25
    root_s: float = 1.5
    least_hits: float = 0.5
    most_misses: int = 8
    crowd: float = 4.0
    ttl_s: float = 600.0
    validate: bool = False

    def __post_init__(self) -> None:
        for name, kind in (("rule", Rule), ("constraint", Constraint), ("eviction", Eviction)):
            self._choose(name, kind)
        for name in (
            *("incremental", "static", "two_phase", "admission", "governor", "handover"),
            "validate",
        ):
            if type(getattr(self, name)) is not bool:
                raise ValueError(
                    f"grape setting {name!r} must be true or false: {getattr(self, name)!r}"
                )
        for name in ("chunk", "lump", "open_cap", "grace_tokens"):
            self._check(name, int, 1)
        for name in ("adopted_first", "horizon", "near_steps", "most_misses"):
            self._check(name, int, 0)
        for name in ("stretch", "free_stretch", "open_stretch"):
            self._check(name, (int, float), 1)
        for name in (
            *("grace_s", "hold_s", "margin", "wide_margin", "ttl_s", "aging", "rare", "tight"),
            *(
                "thrash",
                "backlog_share",
                "late_s",
                "slo_share",
                "in_flight_s",
                "root_s",
                "least_hits",
                "crowd",
            ),
        ):
            self._check(name, (int, float), 0)
        for name in ("ttft_s", "tbt_s", "deadline_s"):
            if getattr(self, name) is not None:
                self._check(name, (int, float), 0)
        if self.prefill_cap is not None:
            self._check("prefill_cap", int, 1)
        if not self.late_s:
            raise ValueError("grape setting 'late_s' must be a number above 0: 0")
        if not self.margin <= self.wide_margin < 1:
            raise ValueError(
                "grape settings must hold 0 <= margin <= wide_margin < 1: "
                f"margin={self.margin}, wide_margin={self.wide_margin}"
            )

    def _choose(self, name: str, kind: type[StrEnum]) -> None:
        value = getattr(self, name)
        try:
            object.__setattr__(self, name, kind(value))
        except ValueError:
            known = [member.value for member in kind]
            raise ValueError(f"grape setting {name!r} must be one of {known}: {value!r}") from None

    def _check(self, name: str, kind: type | tuple[type, ...], least: int) -> None:
        value: Any = getattr(self, name)
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        # Written so that NaN fails too.
        if not (is_number and value >= least):
            raise ValueError(f"grape setting {name!r} must be a number >= {least}: {value!r}")
        if value > _MOST:
            raise ValueError(f"grape setting {name!r} must be a number <= {_MOST:g}: {value!r:.40}")

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Self:
        """Settings from a plain mapping; what is absent keeps its default.

        Raises ValueError for an unknown name (the message lists the known ones) or a bad value.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ValueError(f"unknown grape settings {unknown}; known are {known}")
        return cls(**settings)

    def but(self, **settings: Any) -> Self:
        """The same settings with some of them changed."""
        return replace(self, **settings)


PLAIN: Mapping[str, Any] = {
    "incremental": False,
    "static": False,
    "rule": Rule.FCFS,
    "constraint": Constraint.OFF,
    "two_phase": False,
    "eviction": Eviction.TAIL,
    "admission": False,
    "governor": False,
    "handover": False,
}
"""Every mechanism off: what vLLM does by itself."""
