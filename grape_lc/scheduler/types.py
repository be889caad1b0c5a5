"""What the scheduling policy sees and what it answers.

The driver (a subclass of vLLM's scheduler, or a test) makes a ``StepView`` before every step,
``policy.plan_step`` answers with a ``StepPlan``, and the driver carries it out as far as it can.
Tokens are counted in tokens, KV in blocks, time in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Settings of the policy and of the open prompt table; checked when made.

    chunk: an open prompt runs beside real work once this many of its tokens are pending.
    prefill_cap: most prefill tokens, real and early together, of a step in which a request
        decodes; ``None`` leaves steps as long as vLLM makes them.
    open_cap: most tokens of open prompts in any one step. A real call that arrives meanwhile
        waits for that step.
    adopted_first: an adopted call with at most this many tokens left goes before the prefill of
        calls that adopted nothing.
    hold_s: while a follower is due and comes within this time on the average, and within half a
        step, the engine waits for it rather than begin a step that it would have to sit out. 0
        turns it off.
    grace_s, grace_tokens: for ``grace_s`` after a call that feeds others ended, the next call is
        on its way: a step then takes at most ``grace_tokens`` of prefill.
    horizon: how many more tokens a decoding request is expected to need KV for, if its limit
        allows them.
    margin: share of all KV blocks that early work leaves free beyond what real requests need.
    wide_margin: the same share that must be free before early work starts again after an open
        prompt had to give up its KV.
    ttl_s: an open prompt that was not touched for this long is released.
    validate: check the whole table after every step (for tests).
    """

    chunk: int = 8
    prefill_cap: int | None = 96
    open_cap: int = 128
    adopted_first: int = 256
    hold_s: float = 0.016
    grace_s: float = 0.025
    grace_tokens: int = 8
    horizon: int = 128
    margin: float = 0.02
    wide_margin: float = 0.25
    ttl_s: float = 600.0
    validate: bool = False

    def __post_init__(self) -> None:
        for name in ("chunk", "open_cap", "grace_tokens"):
            self._check(name, int, 1)
        for name in ("adopted_first", "horizon"):
            self._check(name, int, 0)
        for name in ("grace_s", "hold_s", "margin", "wide_margin", "ttl_s"):
            self._check(name, (int, float), 0)
        if self.prefill_cap is not None:
            self._check("prefill_cap", int, 1)
        if type(self.validate) is not bool:
            raise ValueError(f"grape setting 'validate' must be true or false: {self.validate!r}")
        if not self.margin <= self.wide_margin < 1:
            raise ValueError(
                "grape settings must hold 0 <= margin <= wide_margin < 1: "
                f"margin={self.margin}, wide_margin={self.wide_margin}"
            )

    def _check(self, name: str, kind: type | tuple[type, ...], least: int) -> None:
        value: Any = getattr(self, name)
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        # Written so that NaN fails too.
        if not (is_number and value >= least):
            raise ValueError(f"grape setting {name!r} must be a number >= {least}: {value!r}")

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> PolicyConfig:
        """Settings from a plain mapping; what is absent keeps its default.

        Raises ValueError for an unknown name (the message lists the known ones) or a bad value.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(settings) - set(known))
        if unknown:
            raise ValueError(f"unknown grape settings {unknown}; known are {known}")
        return cls(**settings)


@dataclass(frozen=True, slots=True)
class OpenView:
    """One open prompt before a step.

    hops: calls between the one that decodes now and the one this prompt is for.
    opened: position in the order of opening; unique.
    pending: tokens known, not computed, and allowed to be computed (the last one never is).
    computed: tokens whose KV it holds.
    tokens: tokens known.
    held_blocks: KV blocks it holds, over all KV groups.
    urgent: nothing more will be appended, so waiting for a full chunk gains nothing.
    stalled: the last attempt to run it, when nothing else ran, failed; nothing changed since.
    """

    key: str
    hops: int
    opened: int
    tokens: int
    computed: int
    pending: int
    held_blocks: int
    urgent: bool = False
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class PrefillView:
    """A running real request whose prompt is not computed yet.

    tokens: tokens left; adopted: it took over an open prompt.
    """

    request_id: str
    tokens: int
    adopted: bool


@dataclass(frozen=True, slots=True)
class StepView:
    """All that the policy may know before a step.

    max_tokens: most tokens that the engine computes in one step.
    decodes, decode_tokens: running requests that decode; their tokens in this step, drafts
        included.
    prefills: running real requests still in prefill, in the order in which vLLM scans them.
    adopted_waiting: tokens left of each adopted call that waits and could run now.
    waiting, waiting_tokens: other requests that wait, and their tokens not yet computed.
    least_call_tokens: tokens that vLLM schedules at least when it starts a call (1 + drafts).
    whole_tokens: tokens of the call whose turn it is to start, if it must not be cut; else 0.
    free_rows: run slots that no request has.
    free_blocks, total_blocks, block_size (tokens), groups: the KV pool. ``groups`` is the number
        of KV groups, each of which needs its own block for the same tokens.
    needed_blocks: blocks that real requests are about to need.
    pressed: an open prompt gave up its KV and the pool did not recover since.
    since_feeder: seconds since a call that feeds others ended and its follower did not arrive.
    follower_s: how long followers take to arrive, on the average (seconds).
    step_s: how long a step takes, on the average (seconds).
    switched: the step before this one was kept short for a follower.
    """

    max_tokens: int
    decodes: int
    decode_tokens: int
    prefills: tuple[PrefillView, ...]
    adopted_waiting: tuple[int, ...]
    waiting: int
    waiting_tokens: int
    least_call_tokens: int
    whole_tokens: int
    free_rows: int
    free_blocks: int
    total_blocks: int
    block_size: int
    groups: int
    needed_blocks: int
    pressed: bool
    since_feeder: float | None
    follower_s: float
    step_s: float
    switched: bool
    opens: tuple[OpenView, ...]

    @property
    def idle(self) -> bool:
        """Whether no real request is there at all."""
        return not (self.decodes or self.prefills or self.adopted_waiting or self.waiting)


class Limit(StrEnum):
    """Why a step is shorter than the engine would make it."""

    NONE = "none"
    DECODES = "decodes"
    GRACE = "grace"
    HOLD = "hold"
    SWITCH = "switch"


class Refusal(StrEnum):
    """Why an open prompt does not run in a step."""

    COMPLETE = "complete"
    CHUNK = "less than a chunk pending"
    GRACE = "a call is about to arrive"
    ROWS = "no free run slot"
    BUDGET = "no room in the step"
    KV = "KV reserve"
    PRESSED = "KV was short"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True)
class Grant:
    """An open prompt may compute up to ``tokens`` in this step."""

    key: str
    tokens: int


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step should do.

    budget: most tokens of the step, decodes included.
    limit: why the budget is what it is.
    caps: most tokens of this step for running real prefills, by request id; who is not named
        is not capped.
    grants: open prompts that may run, in order.
    refusals: why each other open prompt may not.
    reserve: blocks that open prompts must leave free.
    pressed: the flag to hand to the next view (unless a drop sets it again).
    """

    budget: int
    limit: Limit
    caps: Mapping[str, int]
    grants: tuple[Grant, ...]
    refusals: Mapping[str, Refusal]
    reserve: int
    pressed: bool
