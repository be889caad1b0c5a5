"""The simulated engine takes the steps that vLLM's scheduler takes.

With the plain settings they are those of vLLM's own scheduler, without any of our code; with any
other, those of our subclass, open prompts included.
"""

from __future__ import annotations

import dataclasses
import random
from heapq import heappop, heappush
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request as VllmRequest

from grape_lc.engine import vllm_messages as messages
from grape_lc.engine.simulator.arrivals import Renewal
from grape_lc.engine.simulator.cluster import Cluster
from grape_lc.engine.simulator.drafting import NO_MATCH, Drafting
from grape_lc.engine.simulator.engine import Engine
from grape_lc.engine.simulator.messages import Append, Open, Submit
from grape_lc.engine.simulator.requests import Request
from grape_lc.engine.simulator.settings import EngineSettings
from grape_lc.engine.simulator.statistics import Statistics
from grape_lc.engine.simulator.tokens import Text
from grape_lc.scheduler.controller import KnownCost
from grape_lc.scheduler.cost import LinearCost
from grape_lc.scheduler.record import StepRecord
from grape_lc.scheduler.settings import PLAIN, Constraint, Eviction, PolicyConfig, Rule
from grape_lc.scheduler.types import Hint, RequestView, Stage
from tests.contract.simulation import (
    BLOCK,
    KINDS,
    MAX_LEN,
    Simulation,
    Worker,
    _hasher,
    make_scheduler,
)
from tests.contract.test_same_as_stock import Watched
from tests.unit.engine.simulator.scenes import Scene, chain, fan

ROWS, BUDGET = 4, 64


class Clock:
    """Moves one engine; every step takes a second."""

    def __init__(self) -> None:
        self.events: list[tuple[float, int, Engine, Any]] = []
        self.count = 0

    def wake(self, at: float, engine: Engine) -> None:
        self.post(at, engine, None)

    def post(self, at: float, engine: Engine, message: Any) -> None:
        self.count += 1
        heappush(self.events, (at, self.count, engine, message))

    def run(self) -> None:
        while self.events:
            at, _, engine, message = heappop(self.events)
            if message is None:
                engine.woken(at)
            else:
                engine.deliver(message, at)


def workload(seed: int) -> list[tuple[float, int, int, int, int]]:
    """Calls: arrival, shared prefix, tokens of it, own tokens, answer."""
    chooser = random.Random(seed)
    calls, at = [], 0.0
    for _ in range(60):
        at += chooser.choice((0.0, 1.5, 9.0, 30.0))
        shared = chooser.randint(0, 200)
        calls.append(
            (at, chooser.randint(1, 2), shared, chooser.randint(1, 60), chooser.randint(1, 90))
        )
    return calls


def simulated(
    calls: Any, blocks: int, policy: str, drafting: Drafting | None = None
) -> tuple[list[StepRecord], Statistics]:
    records: list[StepRecord] = []
    statistics, clock = Statistics(), Clock()
    engine = Engine(
        0,
        EngineSettings(
            max_tokens=BUDGET,
            rows=ROWS,
            by_priority=policy == "priority",
            drafting=drafting,
            validate=True,
        ),
        PolicyConfig.from_mapping(PLAIN),
        cost=LinearCost(1.0),
        costs=KnownCost(None),
        blocks=blocks - 1,  # vLLM counts its null block
        block_size=BLOCK,
        clock=clock,
        statistics=statistics,
        sampled=lambda calls, now: None,
        record=records.append,
    )
    for number, (at, prefix, shared, own, answer) in enumerate(calls):
        text = Text(BLOCK)
        text.append(prefix, shared)
        text.append(100 + number, own)
        view = RequestView(f"r{number}", 0, at, Stage.WAITING, text.length, max_output=answer)
        request = Request(view, text, text.length, answer, 1000 + number, priority=number % 3)
        engine.send(at, Submit(request, None))
    clock.run()
    engine.validate()
    assert engine.kv.free == blocks - 1
    return records, statistics


def tokens(number: int, prefix: int, shared: int, own: int) -> list[int]:
    first = [3 + (prefix * 401 + place * 7) % 900 for place in range(shared)]
    return first + [3 + (number * 37 + place * 11 + 450) % 900 for place in range(own)]


class Drafter:
    """A worker that finds in each answer the drafts that the simulated engine finds."""

    def __init__(self, scheduler: Any, calls: Any, drafting: Drafting) -> None:
        self._scheduler = scheduler
        self._tokens = drafting.tokens
        self._matches = {
            f"r{number}": drafting.matches(answer, f"drafts 0 {1000 + number}")
            for number, (*_, answer) in enumerate(calls)
        }
        self.padded = 0

    def execute(self, step: Any) -> ModelRunnerOutput:
        ids = list(step.num_scheduled_tokens)
        sampled: list[list[int]] = []
        for key in ids:
            request = self._scheduler.requests[key]
            drafts = step.scheduled_spec_decode_tokens.get(key, ())
            if request.num_computed_tokens - len(drafts) < request.num_tokens:
                sampled.append([])
                continue
            if -1 in drafts:
                self.padded += 1
            place = request.num_output_tokens
            right = min(len(drafts), self._matches[key][place]) if place else 0
            sampled.append([5] * (1 + right))
        places = {key: index for index, key in enumerate(ids)}
        return ModelRunnerOutput(ids, places, sampled)

    def drafts(self, result: ModelRunnerOutput) -> DraftTokenIds:
        """For the step that follows, of the calls that just got a token."""
        found = {}
        for key, got in zip(result.req_ids, result.sampled_token_ids, strict=True):
            request = self._scheduler.requests.get(key)
            if got and request is not None:
                match = self._matches[key][request.num_output_tokens] != NO_MATCH
                found[key] = [7] * self._tokens if match else []
        return DraftTokenIds(list(found), list(found.values()))


def stock(
    model: Any,
    calls: Any,
    blocks: int,
    policy: str,
    times: list[float],
    drafting: Drafting | None = None,
) -> list[dict[str, int]]:
    """The steps of vLLM's scheduler, each begun at the time given."""
    kind = next(kind for kind in KINDS if kind.name == "sync-v1")
    kind = dataclasses.replace(kind, scheduler=type("Stock", (Watched, Scheduler), {}))
    scheduler = make_scheduler(
        model,
        kind,
        blocks=blocks,
        step_tokens=BUDGET,
        rows=ROWS,
        policy=policy,
        drafts=drafting.tokens if drafting is not None else 0,
    )
    drafter = Drafter(scheduler, calls, drafting) if drafting is not None else None
    worker = drafter or Worker(scheduler, kind)
    steps, waiting = [], list(enumerate(calls))
    for now in times:
        while waiting and waiting[0][1][0] <= now:
            number, (at, prefix, shared, own, answer) = waiting.pop(0)
            scheduler.add_request(
                VllmRequest(
                    f"r{number}",
                    tokens(number, prefix, shared, own),
                    SamplingParams(max_tokens=answer, ignore_eos=True),
                    None,
                    block_hasher=_hasher,
                    priority=number % 3,
                    arrival_time=at,
                )
            )
        planned = scheduler.schedule()
        steps.append(dict(planned.num_scheduled_tokens))
        result = worker.execute(planned)
        scheduler.update_from_output(planned, result)
        if drafter is not None:
            scheduler.update_draft_token_ids(drafter.drafts(result))
            assert not drafter.padded, "the simulator does not pad"
    assert not scheduler.requests
    return steps


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("blocks", [26, 200])
@pytest.mark.parametrize("seed", range(3))
def test_plain_steps_are_those_of_vllm(model_config_dir, policy, blocks, seed):
    calls = workload(seed)
    assert all(shared + own + answer < MAX_LEN for _, _, shared, own, answer in calls)
    records, statistics = simulated(calls, blocks, policy)
    times = [record.snapshot["now"] for record in records]
    theirs = stock(model_config_dir, calls, blocks, policy, times)
    for record, step in zip(records, theirs, strict=True):
        assert record.ran == step, record.step
    assert statistics.cached_tokens > 0
    if blocks == 26:
        assert statistics.preemptions > 0, "the comparison covers preemption"


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize(("blocks", "seed"), [(26, 0), (200, 0), (200, 2)])
def test_steps_with_drafts_are_those_of_vllm(model_config_dir, policy, blocks, seed):
    drafting = Drafting(3, copy_rate=0.6, run=8.0, accident=0.2)
    calls = workload(seed)
    records, statistics = simulated(calls, blocks, policy, drafting)
    times = [record.snapshot["now"] for record in records]
    theirs = stock(model_config_dir, calls, blocks, policy, times, drafting)
    for record, step in zip(records, theirs, strict=True):
        assert record.ran == step, record.step
    assert 0 < statistics.accepted_tokens < statistics.drafted_tokens
    if blocks == 26:
        assert statistics.preemptions > 0, "the comparison covers preemption"


# ---------------------------------------------------------------------- with open prompts


class Recorder(Cluster):
    """Keeps all messages as they were when they were sent."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sent: list[tuple[float, int, Any, Any, Hint]] = []

    def post(self, at: float, engine: Engine, message: Any) -> None:
        request = message.request
        entry = (message, request.known.segments(), request.view.hint)
        self.sent.append((at, len(self.sent), *entry))
        super().post(at, engine, message)


class Replay:
    """Our subclass of vLLM's scheduler, given the messages that the simulated engine was given."""

    def __init__(self, model: Any, scene: Scene, sent: Any) -> None:
        kind = next(kind for kind in KINDS if kind.name == "sync-v1")
        self.simulation = Simulation(
            model,
            kind,
            blocks=scene.blocks + 1,
            step_tokens=scene.max_tokens,
            rows=scene.rows,
            settings={**dataclasses.asdict(scene.config), "validate": True},
        )
        self.simulation.scheduler.grape_wall_clock = self.simulation.clock
        self._left = sorted(sent, key=lambda entry: entry[:2])
        self._texts: dict[str, Text] = {}

    def step(self, record: StepRecord) -> dict[str, int]:
        """Take a step at the time of a simulated one; the tokens that it computes."""
        simulation, now = self.simulation, record.snapshot["now"]
        simulation.clock.now = now
        while self._left and self._left[0][0] <= now:
            at, _, message, segments, hint = self._left.pop(0)
            self._send(at, message, segments, hint)
        planned = simulation.scheduler.schedule()
        if planned.num_scheduled_tokens:
            result = simulation.worker.execute(planned)
            assert record.seconds is not None
            simulation.clock.now = now + record.seconds
            simulation.scheduler.update_from_output(planned, result)
        return dict(planned.num_scheduled_tokens)

    def _send(self, at: float, message: Any, segments: Any, hint: Hint) -> None:
        request = message.request
        key = request.view.id
        if isinstance(message, Open):
            self._texts[key] = Text(BLOCK)
            for source, count in segments:
                self._texts[key].append(source, count)
            self.simulation.add(key, ids(segments), messages.open_prompt(hint))
        elif isinstance(message, Append):
            text, hint = self._texts[key], message.hint
            known = text.length
            for source, count in message.pieces:
                text.append(source, count)
            body = messages.append(key, hint.hops, hint.source, final=message.final)
            self.simulation.add(f"{key}/{at}", ids(text.segments())[known:], body)
        elif isinstance(message, Submit):
            adopt = message.adopt.view.id if message.adopt is not None else None
            body = messages.call(adopt, hint)
            self.simulation.add(key, ids(segments), body, n=request.answer, arrival_time=at)
        else:
            self.simulation.release(key)


def ids(segments: Any) -> list[int]:
    """Token ids: a place in a source is a token, here as there."""
    return [
        1000 + (source * 1000003 + place) % (1 << 30)
        for source, count in segments
        for place in range(count)
    ]


def scene(seed: int, **changes: Any) -> Scene:
    """A few programs of fixed lengths: a limit that was not reached says something else."""
    chooser = random.Random(seed)
    config = PolicyConfig(
        rule=chooser.choice(list(Rule)),
        eviction=chooser.choice([Eviction.TAIL, Eviction.DISTANCE, Eviction.COST]),
        constraint=chooser.choice(list(Constraint)),
        two_phase=chooser.random() < 0.7,
        admission=chooser.random() < 0.7,
        governor=chooser.random() < 0.7,
        handover=chooser.random() < 0.7,
        chunk=chooser.choice([1, 8]),
        horizon=16,
    )
    shape = chooser.choice(
        [
            chain(3, static=70, own=40, answer=chooser.choice([6, 30]), spread=0.0),
            fan(3, answer=chooser.choice([5, 20]), spread=0.0),
        ]
    )
    return Scene(
        shape,
        config,
        Renewal(chooser.choice([1.0, 6.0]), 2.0),
        programs=8,
        seed=seed,
        rows=4,
        blocks=chooser.choice([22, 30, 200]),
        differ=chooser.choice([0.0, 0.3]),
        costs="learned",
        block_size=BLOCK,
    )


# Adoptions of every outcome, preemptions and drops are among them.
@pytest.mark.parametrize("seed", [0, 2, 8, 12, 15, 20, 23, 26, 29, 35])
def test_planned_steps_are_those_of_our_subclass(model_config_dir, seed):
    played = scene(seed)
    outcome = played.simulate(make=Recorder)
    assert isinstance(outcome.cluster, Recorder)
    replay = Replay(model_config_dir, played, outcome.cluster.sent)
    for record in outcome.records:
        assert replay.step(record) == record.ran, record.to_json()
    replay.simulation.close()
