"""Any order of messages, found and made small by Hypothesis."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule
from vllm.v1.request import RequestStatus

from grape_lc.scheduler.settings import Constraint, Eviction, Rule
from tests.contract.simulation import KINDS, Simulation, answer, write_model_config

# Few different tokens, so that prompts share prefixes and differ late.
tokens = st.integers(0, 120).flatmap(
    lambda length: st.tuples(st.just(length), st.integers(0, 130)).map(
        lambda pair: [3 if i != pair[1] else 4 for i in range(1, pair[0] + 1)]
    )
)
few_tokens = st.lists(st.sampled_from([3, 4]), max_size=20)

mechanisms = st.fixed_dictionaries(
    {
        "rule": st.sampled_from(list(Rule)),
        "eviction": st.sampled_from(list(Eviction)),
        "constraint": st.sampled_from(list(Constraint)),
    },
    optional={
        name: st.booleans()
        for name in ("incremental", "static", "two_phase", "admission", "governor", "handover")
    },
)
places = st.fixed_dictionaries(
    {},
    optional={
        "program": st.sampled_from(["p", "q"]),
        "task": st.sampled_from(["t0", "t1"]),
        "hint": st.fixed_dictionaries(
            {},
            optional={
                "flow": st.just("f"),
                "tenant": st.sampled_from(["a", "b"]),
                "depth": st.integers(0, 2),
                "after": st.just(["t1"]),
                "source": st.just("t0"),
                "tbt_s": st.sampled_from([0.001, 0.1]),
                "deadline_s": st.just(0.5),
            },
        ),
    },
)


class OpenPrompts(RuleBasedStateMachine):
    """An engine with little KV; every answer is checked when the run ends."""

    keys: Bundle[str] = Bundle("keys")
    directory: Path

    @initialize(
        kind=st.sampled_from(KINDS),
        blocks=st.sampled_from([16, 20, 40]),
        rows=st.integers(1, 4),
        step_tokens=st.sampled_from([20, 64]),
        drafts=st.sampled_from([0, 2]),
        cap=st.sampled_from([None, 5, 32]),
        mechanisms=mechanisms,
    )
    def start(self, kind, blocks, rows, step_tokens, drafts, cap, mechanisms):
        self.s = Simulation(
            self.directory,
            kind,
            blocks=blocks,
            rows=rows,
            step_tokens=step_tokens,
            drafts=drafts,
            settings={"prefill_cap": cap, "ttl_s": 3600, **mechanisms},
        )
        self.count = 0
        self.known: dict[str, list[int]] = {}
        self.expected: dict[str, tuple[list[int], int]] = {}

    def name(self, kind):
        self.count += 1
        return f"{kind}{self.count}"

    @rule(target=keys, prompt=tokens, hops=st.integers(0, 2), place=places)
    def open(self, prompt, hops, place):
        key = self.name("o")
        self.known[key] = prompt
        self.s.open(key, prompt, hops=hops, **place)
        return key

    @rule(key=keys, more=few_tokens, final=st.booleans())
    def append(self, key, more, final):
        if self.known[key]:
            self.known[key] = self.known[key] + more
        self.s.append(key, more, final=final)

    @rule(
        key=consumes(keys),
        more=few_tokens,
        cut=st.integers(0, 60),
        n=st.integers(1, 12),
        place=places,
    )
    def adopt(self, key, more, cut, n, place):
        """The prompt that is really sent: longer, shorter or other than what was opened."""
        tokens = self.known[key][:150]
        prompt = [*tokens[: max(0, len(tokens) - cut)], *more] or [3]
        self.begin(prompt, n, adopt=key, feeds=cut % 2 == 1, **place)

    @rule(prompt=tokens, n=st.integers(1, 40), place=places)
    def plain(self, prompt, n, place):
        self.begin(prompt or [4], n, **place)

    def begin(self, prompt, n, **call):
        request_id = self.name("r")
        self.expected[request_id] = (prompt, n)
        self.s.call(request_id, prompt, n=n, **call)

    @rule(key=consumes(keys))
    def release(self, key):
        self.s.release(key)

    @rule(choice=st.integers(0, 1000))
    def abort(self, choice):
        alive = [name for name in self.expected if name in self.s.scheduler.requests]
        if alive:
            name = alive[choice % len(alive)]
            del self.expected[name]
            self.s.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)

    @rule(running=st.booleans())
    def reset(self, running):
        self.s.scheduler.reset_prefix_cache(reset_running_requests=running)

    @rule(turns=st.integers(1, 12))
    def step(self, turns):
        for _ in range(turns):
            self.s.step()

    @rule()
    def rest(self):
        self.s.idle()

    @invariant()
    def table_is_consistent(self):
        if hasattr(self, "s"):
            self.s.scheduler.grape_validate()

    def teardown(self):
        if not hasattr(self, "s"):
            return
        self.s.idle(20000)
        for name, (prompt, n) in self.expected.items():
            assert self.s.answers[name] == answer(prompt, n), name
        self.s.close()


def test_any_order_of_messages():
    with tempfile.TemporaryDirectory() as directory:
        OpenPrompts.directory = write_model_config(Path(directory))
        case = OpenPrompts.TestCase
        case.settings = settings(
            max_examples=150,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
        case("runTest").runTest()
