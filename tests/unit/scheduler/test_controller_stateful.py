"""Random programs on a small engine under random settings: all end, in bounded time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from grape_lc.scheduler.controller import KnownCost
from grape_lc.scheduler.settings import PLAIN, Constraint, Eviction, PolicyConfig, Rule
from grape_lc.scheduler.types import Hint, RequestView
from tests.unit.scheduler.factories import CPU, GPU, configs
from tests.unit.scheduler.toy_engine import BLOCK, ToyEngine

PROGRAMS = ("p1", "p2", "p3")
MOST = 80  # tokens of the largest request, prompt and answer

hints = st.builds(
    Hint,
    program=st.sampled_from((None, *PROGRAMS)),
    flow=st.sampled_from((None, "flow")),
    task=st.sampled_from((None, "plan", "write")),
    tenant=st.sampled_from(("", "a", "b")),
    depth=st.sampled_from((None, 0, 1, 3)),
    after=st.sampled_from(((), ("write",), ("plan", "write"))),
    feeds=st.booleans(),
    ttft_s=st.sampled_from((None, 0.05)),
    tbt_s=st.sampled_from((None, 0.02, 1.0)),
    deadline_s=st.sampled_from((None, 1.0)),
)
lengths = st.integers(1, 20)

mostly = st.sampled_from((True, True, False))
# Sizes that suit an engine this small.
small = st.builds(
    PolicyConfig,
    **dict.fromkeys(
        ("incremental", "static", "two_phase", "admission", "governor", "handover"), mostly
    ),
    rule=st.sampled_from(Rule),
    constraint=st.sampled_from(Constraint),
    eviction=st.sampled_from(Eviction),
    tbt_s=st.sampled_from((None, None, 0.03)),
    chunk=st.sampled_from((1, 4)),
    lump=st.sampled_from((4, 16)),
    prefill_cap=st.sampled_from((None, 4, 24)),
    open_cap=st.sampled_from((4, 64)),
    margin=st.sampled_from((0.0, 0.05)),
    wide_margin=st.sampled_from((0.05, 0.3)),
    adopted_first=st.sampled_from((0, 4, 256)),
    hold_s=st.sampled_from((0.0, 0.004, 0.016)),
    tight=st.sampled_from((0.0, 0.02, 1.0)),
    thrash=st.sampled_from((0.0, 0.1)),
    rare=st.sampled_from((0.0, 0.005)),
    crowd=st.sampled_from((0.5, 4.0)),
)


class Programs(RuleBasedStateMachine):
    """Calls and open prompts come, run as planned, and go."""

    @initialize(
        config=st.one_of(small, small, small, configs(), st.just(PolicyConfig(**PLAIN))),
        spare=st.sampled_from((0, 2, 10, 60)),
        rows=st.sampled_from((1, 3, 5, 8)),
        max_tokens=st.sampled_from((4, 16, 64)),
        groups=st.integers(1, 2),
        cost=st.sampled_from((None, CPU, GPU)),
    )
    def start(
        self, config: PolicyConfig, spare: int, rows: int, max_tokens: int, groups: int, cost: Any
    ) -> None:
        self.engine = ToyEngine(
            config,
            # The largest request fits alone.
            blocks=(-(-MOST // BLOCK) + spare) * groups,
            rows=rows,
            max_tokens=max_tokens,
            groups=groups,
            costs=KnownCost(cost),
        )
        self.calls = 0

    def pick(self, views: list[RequestView], number: int) -> RequestView:
        return views[number % len(views)]

    @rule(
        hint=hints,
        tokens=st.integers(1, 40),
        answer=lengths,
        spare_output=st.sampled_from((0, 5)),
        kind=st.sampled_from(("", "", "whole", "blocked")),
    )
    def call(self, hint: Hint, tokens: int, answer: int, spare_output: int, kind: str) -> None:
        self.engine.call(
            tokens,
            answer,
            hint,
            max_output=answer + spare_output,
            whole=kind == "whole",
            blocked=kind == "blocked",
        )
        self.calls += 1

    @rule(hint=hints, tokens=st.integers(1, 40), hops=st.sampled_from((1, 1, 1, 2, 3)))
    def open(self, hint: Hint, tokens: int, hops: int) -> None:
        self.engine.open(tokens, replace(hint, hops=hops, source="plan"))

    @precondition(lambda self: self.engine.opens)
    @rule(number=st.integers(0, 9), tokens=st.integers(0, 8), final=st.booleans())
    def append(self, number: int, tokens: int, final: bool) -> None:
        view = self.pick(list(self.engine.opens.values()), number)
        if view.tokens + tokens <= MOST - 24:
            self.engine.append(view, tokens, final=final)

    @precondition(lambda self: any(view.computed for view in self.engine.opens.values()))
    @rule(number=st.integers(0, 9), more=st.integers(0, 3), answer=lengths)
    def adopt(self, number: int, more: int, answer: int) -> None:
        opens = self.engine.opens.values()
        view = self.pick([view for view in opens if view.computed], number)
        tokens = max(1, view.tokens - 2 + more)
        self.engine.call(tokens, answer, replace(view.hint, hops=0), adopt=view)
        self.calls += 1

    @rule(
        program=st.sampled_from(PROGRAMS),
        tokens=lengths,
        answer=lengths,
        gap_s=st.sampled_from((0.001, 0.003, 0.03)),
        steps=st.integers(5, 30),
    )
    def follow(self, program: str, tokens: int, answer: int, gap_s: float, steps: int) -> None:
        """A call feeds an open prompt, and is followed by the call that adopts it."""
        hint = Hint(program, "flow", "plan", feeds=True)
        call = self.engine.call(tokens, answer, hint)
        later = replace(hint, task="write", feeds=False)
        prompt = self.engine.open(tokens, replace(later, hops=1, source="plan"))
        for _ in range(steps):
            self.engine.step()
            if call.id in self.engine.ended:
                break
            self.engine.append(prompt, 1, final=False)
        self.engine.append(prompt, 1, final=True)
        self.engine.now += gap_s
        self.engine.step()
        self.engine.call(prompt.tokens + 1, answer, later, adopt=prompt)
        self.calls += 2

    @precondition(lambda self: self.engine.opens)
    @rule(number=st.integers(0, 9))
    def release(self, number: int) -> None:
        self.engine.release(self.pick(list(self.engine.opens.values()), number))

    @precondition(lambda self: self.engine.busy)
    @rule(number=st.integers(0, 9))
    def cancel(self, number: int) -> None:
        self.engine.cancel(self.pick([*self.engine.running, *self.engine.waiting], number))

    @precondition(lambda self: any(view.blocked for view in self.engine.waiting))
    @rule()
    def unblock(self) -> None:
        for view in self.engine.waiting:
            view.blocked = False

    @rule(steps=st.integers(1, 5))
    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.engine.step()

    @rule(seconds=st.sampled_from((0.001, 0.02, 5.0)))
    def wait(self, seconds: float) -> None:
        self.engine.now += seconds

    @invariant()
    def sound(self) -> None:
        if hasattr(self, "engine"):
            self.engine.validate()

    def teardown(self) -> None:
        if not hasattr(self, "engine"):
            return
        engine = self.engine
        for view in engine.waiting:
            view.blocked = False
        bound = bound_of(engine)
        steps = 0
        while engine.busy:
            engine.step()
            steps += 1
            assert steps <= bound, f"not done after {steps} steps: {engine.controller.snapshot}"
        assert len(engine.ended) == self.calls
        for view in list(engine.opens.values()):
            engine.release(view)
        assert engine.free == engine.blocks


def bound_of(engine: ToyEngine) -> int:
    """Steps after which all is done if nothing more comes.

    The call that came first never gives way once it runs. So at worst each call in turn computes
    all its tokens, one a step, every other one in a step that belongs to a switch, while those
    before it hold the pool; and each that ends may be followed by a wait for its follower.
    """
    views = [*engine.running, *engine.waiting]
    hold = int(max(engine.config.hold_s, engine.config.grace_s) / engine.step_s) + 2
    return sum(2 * (view.tokens + engine.answers[view.id]) + hold for view in views) + hold


Programs.TestCase.settings = settings(
    deadline=None, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
test_every_call_ends = Programs.TestCase
