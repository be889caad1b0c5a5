"""What the scheduling policy sees and what it answers.

A driver (the subclass of vLLM's scheduler, the simulator, or a test) makes a ``Snapshot`` before
every step, ``policy.plan`` answers with a ``Plan``, and the driver carries it out as far as it
can. Tokens are counted in tokens, KV in blocks, time in seconds of any one clock.

A request's tokens, computed against known:

    prompt                              output
    |-----------------------------------|--------|
    |== computed, result seen ==|~ in flight ~|.. pending ..|
                                computed -----^             ^--- tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from grape_lc.scheduler.cost import StepCost


class Stage(StrEnum):
    """Where a request stands."""

    OPEN = "open"
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Hint:
    """What the client says about a call or an open prompt; all of it may be absent or wrong.

    program: the run that it belongs to. flow: names the graph, so that what is learned about a
        task of one run serves the next. task, tenant: names.
    depth: calls before it on the longest path, 0 for a root; None if the graph is unknown.
    after: tasks that follow it on the longest path to the end of the program, nearest first.
    hops: of an open prompt, calls between the one that decodes now and its own; 0 for a call.
    source: of an open prompt, the task whose output it waits for now.
    feeds: open prompts wait for this call's output.
    ttft_s, tbt_s: targets for the first token and for every further one, seconds.
    deadline_s: target for the whole program, seconds from the arrival of its first call.
    """

    program: str | None = None
    flow: str | None = None
    task: str | None = None
    tenant: str = ""
    depth: int | None = None
    after: tuple[str, ...] = ()
    hops: int = 0
    source: str | None = None
    feeds: bool = False
    ttft_s: float | None = None
    tbt_s: float | None = None
    deadline_s: float | None = None


NO_HINT = Hint()


@dataclass(slots=True, eq=False)
class RequestView:
    """One request as the policy sees it: kept by the driver, brought up to date before each step.

    seq: position in the order of arrival; unique, the last tie-breaker everywhere.
    arrived: when it came in. program_arrived: when its program's first call came in.
    tokens: known tokens, drafts excluded. computed: tokens computed, those in flight included.
    in_flight: of ``computed``, tokens of steps whose result is not in yet (asynchronous
        scheduling).
    step_tokens: tokens that a decode takes in the next step (1 + drafts).
    hold_back: tokens at the end that may not be computed (at least 1 for an open prompt).
    output, max_output: tokens sampled, and their limit.
    held_blocks: KV blocks it holds, over all KV groups.
    adopted: took over an open prompt. whole: must not be cut into chunks.
    blocked: waits for something else than its turn.
    early: of an open prompt, its program's first call did not come yet.
    final: of an open prompt, nothing more will be appended. stalled: its last try in an engine
        that did nothing else failed, and nothing changed since.
    static: of an open prompt, tokens known when it was opened.
    touched: when it last ran or grew. last_token: when its last token was sampled.
    remaining: expected further output tokens of this request (of an open prompt: of its source);
        None if nothing is known. sure: the part of ``remaining`` that nine out of ten exceed.
    path_s: expected seconds from its first token to the end of its program; 0 if unknown.
    tbt_s: target between its tokens, the client's or the settings'; None: no target.
    end_blocks: KV blocks of one group that it is expected to hold at its end.
    rank: sort key among waiting calls, set by ``priority.rank``; smaller goes first.
    """

    id: str
    seq: int
    arrived: float
    stage: Stage
    tokens: int
    hint: Hint = NO_HINT
    program_arrived: float | None = None
    computed: int = 0
    in_flight: int = 0
    step_tokens: int = 1
    hold_back: int = 0
    output: int = 0
    max_output: int = 1
    held_blocks: int = 0
    adopted: bool = False
    whole: bool = False
    blocked: bool = False
    early: bool = False
    final: bool = False
    stalled: bool = False
    static: int = 0
    touched: float = 0.0
    last_token: float | None = None
    remaining: float | None = None
    sure: float | None = None
    path_s: float = 0.0
    tbt_s: float | None = None
    end_blocks: int = 0
    rank: tuple[float, ...] = ()

    @property
    def pending(self) -> int:
        """Tokens that are known, may be computed, and are not."""
        left = self.tokens - self.hold_back - self.computed
        return max(0, left)


class Pool(NamedTuple):
    """The KV pool.

    free, total: blocks; a free one may still be cached. block_size: tokens. groups: KV groups,
    each of which needs its own block for the same tokens. growth: blocks that running requests
    will need for the tokens they are expected to decode. waiting: blocks that waiting calls need
    to start.
    """

    free: int
    total: int
    block_size: int
    groups: int = 1
    growth: int = 0
    waiting: int = 0

    def blocks(self, tokens: int) -> int:
        """Blocks that hold this many tokens, over all groups."""
        return -(-tokens // self.block_size) * self.groups


NO_SLACK_S = 1e9
"""Slack where there are targets and none of them can be kept: no limit, but gaps matter."""


class Decodes(NamedTuple):
    """All running requests that decode, summed up.

    rows: how many. tokens: what they take in this step, drafts included. kv_tokens: the context
        they read. blocks: new blocks they need in this step. slack_s: time until the first of
        them misses its TBT target; None if none has one, ``NO_SLACK_S`` if none can be kept.
    """

    rows: int = 0
    tokens: int = 0
    kv_tokens: int = 0
    blocks: int = 0
    slack_s: float | None = None


NO_DECODES = Decodes()


class Level(StrEnum):
    """How much early work the governor allows."""

    FULL = "full"
    NEAR = "near"
    OFF = "off"


class Signals(NamedTuple):
    """What was measured lately; the governor and the batch constraint judge by it.

    step_s: mean duration of a step. error: P95 of the cost model's relative error, None if
        there is no model.
    pressed: an open prompt had to give up its KV and the pool did not recover since.
    thrashing: a running call was preempted and the pool did not recover since.
    hit_rate: share of early tokens that were adopted, of those that ended lately; 1 at first.
    misses: calls in a row whose open prompt was of no use.
    queue: mean number of waiting calls. behind: seconds for which the first of them waits.
    tight: share of steps in which calls waited for KV. recomputed: share of tokens computed that
        had been computed before and were lost to a preemption.
    spikes: mean number of real prefills that begin in a step with decodes: the share of gaps
        that would hold one if each took a single step.
    since_feeder: seconds since a call that feeds others ended and its follower did not arrive;
        None if none is due. follower_s: how long followers take to arrive, on the average.
    switched: the step before this one was kept short for a follower.
    weight: tokens of an open prompt whose price makes up for the row they need (``chunk_weight``);
        0 while there is no model.
    """

    step_s: float = 0.0
    error: float | None = None
    pressed: bool = False
    thrashing: bool = False
    hit_rate: float = 1.0
    misses: int = 0
    queue: float = 0.0
    behind: float = 0.0
    tight: float = 0.0
    recomputed: float = 0.0
    spikes: float = 0.0
    since_feeder: float | None = None
    follower_s: float = 0.0
    switched: bool = False
    weight: int = 0


NO_SIGNALS = Signals()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that the policy may know before a step. The views in it are valid for that step only.

    step: its number. max_tokens: most tokens the engine computes in one step.
    free_rows: run slots that no request has. least_call_tokens: tokens that the engine schedules
        at least when it starts a call (1 + drafts).
    prefills: running calls whose prompt is not computed yet. running: all running requests, if
        KV may run short in this step; else empty.
    waiting: calls that wait. opens: open prompts. (The order of none of these matters.)
    cost: predicts a step's seconds; None while no trusted model exists.
    served: tokens computed for each tenant, decayed; for fairness.
    """

    step: int
    now: float
    max_tokens: int
    free_rows: int
    pool: Pool
    decodes: Decodes = NO_DECODES
    prefills: Sequence[RequestView] = ()
    running: Sequence[RequestView] = ()
    waiting: Sequence[RequestView] = ()
    opens: Sequence[RequestView] = ()
    signals: Signals = NO_SIGNALS
    cost: StepCost | None = None
    served: Mapping[str, float] = field(default_factory=dict)
    least_call_tokens: int = 1

    @property
    def idle(self) -> bool:
        """Whether no real request is there at all."""
        return not (self.decodes.rows or self.prefills or self.waiting)


class Limit(StrEnum):
    """Why a step is as long as it is."""

    NONE = "the engine's own budget"
    CAP = "fixed cap beside decodes"
    STRETCH = "decodes dominate"
    BACKLOG = "prefill backlog"
    SLO = "token target of a decode"
    TIGHT = "calls wait for KV"
    RARE = "too few gaps hold prefill"
    GRACE = "a follower may come"
    HOLD = "a follower is due"
    SWITCH = "a follower is here"


class Reason(StrEnum):
    """Why a request may compute tokens in a step."""

    SWITCH = "short rest of an adopted call"
    FAIR = "first of its program"
    PREVISION = "room was left"
    READY = "its upstream ends soon"
    LUMP = "a full lump is pending"
    CHEAP = "tokens are nearly free"
    FINAL = "its text is complete"
    IDLE = "the engine is idle"


class Refusal(StrEnum):
    """Why a request does not run in a step."""

    COMPLETE = "complete"
    CHUNK = "less than a chunk pending"
    PACED = "not due yet"
    GRACE = "a call is about to arrive"
    ROOT = "its program's first call comes first"
    ROWS = "no free run slot"
    BUDGET = "no room in the step"
    KV = "KV reserve"
    ADMISSION = "running calls need the KV"
    GOVERNOR = "early work does not pay now"
    OFF = "switched off"
    STALLED = "stalled"
    VICTIM = "gives up its KV"
    ENGINE = "the engine did not run it"


class Item(NamedTuple):
    """A request that may compute up to ``tokens`` in this step, and why."""

    id: str
    tokens: int
    reason: Reason


class Victim(NamedTuple):
    """A request that gives up its KV, the blocks it holds, and the rule that chose it."""

    id: str
    blocks: int
    rule: str


class Plan(NamedTuple):
    """What one step should do.

    budget: most tokens of the step, decodes included. limit: why.
    prefills: running calls in prefill, with the most tokens of each; one that is not named is
        not capped.
    starts: waiting calls to start, in this order; calls that are not named do not start.
        None: the engine's own order, no bound but the budget.
    opens: open prompts that may run, in order.
    preempt: requests that give up their KV in this order, as far as the step needs it.
    refused: every other request that was considered, and why it does not run.
    reserve: blocks that open prompts must leave free.
    level, level_reason: the governor's decision.
    predicted_s: expected duration if everything runs as planned; None without a cost model.
    """

    budget: int
    limit: Limit
    prefills: tuple[Item, ...] = ()
    starts: tuple[Item, ...] | None = None
    opens: tuple[Item, ...] = ()
    preempt: tuple[Victim, ...] = ()
    refused: Mapping[str, Refusal] = {}
    reserve: int = 0
    level: Level = Level.FULL
    level_reason: str = ""
    predicted_s: float | None = None
