"""Long random runs: no wrong KV, no deadlock, every answer right, every block back."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from grape_lc.scheduler.settings import Constraint, Eviction, Rule
from tests.contract.simulation import KINDS, Kind, Simulation, answer

# More seeds find more; the default is what a test run can afford.
SEEDS = int(os.environ.get("GRAPE_FUZZ_SEEDS", "2"))


class Fuzz:
    """Random messages and steps on a small engine."""

    def __init__(self, simulation: Simulation, seed: int) -> None:
        self.s = simulation
        self.random = random.Random(seed)
        self.opens: dict[str, list[int]] = {}
        self.expected: dict[str, tuple[list[int], int]] = {}
        self.count = 0

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def tokens(self, low: int, high: int) -> list[int]:
        """Mostly the same token, so that prefixes are shared and hashes hit."""
        length = self.random.randint(low, high)
        return [3 + (self.random.random() < 0.03) for _ in range(length)]

    def place(self) -> dict[str, Any]:
        """Where a call stands, as far as anybody says so."""
        chance = self.random.random
        hint: dict[str, Any] = {"flow": "f", "tenant": self.random.choice(["", "", "a", "b"])}
        if chance() < 0.7:
            depth = self.random.randint(0, 3)
            hint |= {"depth": depth, "after": [f"t{k}" for k in range(depth + 1, 4)]}
        if chance() < 0.3:
            hint |= {"ttft_s": 0.02, "tbt_s": self.random.choice([0.001, 0.02]), "deadline_s": 1.0}
        task = f"t{hint.get('depth', 0)}"
        return {"program": f"p{self.random.randint(0, 3)}", "task": task, "hint": hint}

    def open(self) -> None:
        if len(self.opens) < 8:
            key = self.name("o")
            self.opens[key] = self.tokens(1, 200)
            place = self.place()
            place["hint"]["source"] = "t0"
            self.s.open(key, self.opens[key], **place, hops=self.random.randint(1, 3))

    def append(self) -> None:
        if self.opens:
            key = self.random.choice(list(self.opens))
            more = [self.random.randint(3, 9) for _ in range(self.random.randint(0, 24))]
            if len(self.opens[key]) < 230:
                self.opens[key] = self.opens[key] + more
                self.s.append(key, more, final=self.random.random() < 0.2)

    def adopt(self) -> None:
        if self.opens:
            key = self.random.choice(list(self.opens))
            tokens = self.opens.pop(key)
            luck = self.random.random()
            if luck < 0.6:
                prompt = tokens + self.tokens(0, 30)
            elif luck < 0.8:
                prompt = [*tokens[: self.random.randint(1, len(tokens))], 11, 12]
            else:
                prompt = tokens[: self.random.randint(1, len(tokens))]
            self.start(prompt, {"adopt": key, "feeds": self.random.random() < 0.3})

    def plain(self) -> None:
        self.start(self.tokens(1, 300), None)

    def start(self, prompt: list[int], call: dict[str, Any] | None) -> None:
        request_id, n = self.name("r"), self.random.randint(1, 25)
        self.expected[request_id] = (prompt, n)
        message = None if call is None else {"op": "call", **self.place(), **call}
        # The simulated model is greedy; the sampling decides how prompts may be cut.
        sampling = {"seed": 1, "temperature": 1.0} if self.random.random() < 0.2 else None
        self.s.add(request_id, prompt, message, n=n, sampling=sampling)

    def release(self) -> None:
        if self.opens:
            key = self.random.choice(list(self.opens))
            del self.opens[key]
            self.s.release(key)

    def abort(self) -> None:
        alive = [i for i in self.expected if i in self.s.scheduler.requests]
        if alive:
            request_id = self.random.choice(alive)
            del self.expected[request_id]
            self.s.scheduler.finish_requests(request_id, RequestStatus.FINISHED_ABORTED)

    def reset(self) -> None:
        self.s.scheduler.reset_prefix_cache(reset_running_requests=self.random.random() < 0.5)

    def pause(self) -> None:
        state = self.random.choice([PauseState.PAUSED_NEW, PauseState.PAUSED_ALL])
        self.s.scheduler.set_pause_state(state)

    def resume(self) -> None:
        self.s.scheduler.set_pause_state(PauseState.UNPAUSED)

    def wait(self) -> None:
        self.s.clock.now += self.random.choice([0.01, 0.1, 200.0])

    def run(self, turns: int) -> None:
        actions = {
            self.open: 0.04,
            self.append: 0.12,
            self.adopt: 0.02,
            self.plain: 0.03,
            self.release: 0.004,
            self.abort: 0.006,
            self.reset: 0.003,
            self.pause: 0.003,
            self.resume: 0.05,
            self.wait: 0.004,
        }
        for _ in range(turns):
            for action, chance in actions.items():
                if self.random.random() < chance:
                    action()
            self.s.step()
        self.s.scheduler.set_pause_state(PauseState.UNPAUSED)
        self.s.idle(turns=20000)
        for request_id, (prompt, n) in self.expected.items():
            assert self.s.answers[request_id] == answer(prompt, n), request_id


def mechanisms(chooser: random.Random) -> dict[str, Any]:
    """Each mechanism on or off, each rule."""
    switches = ("incremental", "static", "two_phase", "admission", "governor", "handover")
    return {
        "rule": chooser.choice(list(Rule)),
        "eviction": chooser.choice(list(Eviction)),
        "constraint": chooser.choice(list(Constraint)),
        "horizon": chooser.choice([0, 128]),
        **{name: chooser.random() < 0.7 for name in switches},
    }


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("drafts", [0, 3])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_fuzz(model_config_dir: Path, kind: Kind, drafts: int, policy: str, seed: int) -> None:
    chooser = random.Random(f"{seed} {policy} {drafts} {kind.name}")
    cost = {"base": 4e-4, "per_row": 2e-5, "per_token": 1e-5}
    simulation = Simulation(
        model_config_dir,
        kind,
        blocks=chooser.choice([22, 24, 30, 45, 120]),
        rows=chooser.choice([1, 2, 5]),
        step_tokens=chooser.choice([24, 48, 200]),
        policy=policy,
        drafts=drafts,
        caching=chooser.random() < 0.8,
        extra={"grape_cost": chooser.choice([None, cost])},
        settings={
            "prefill_cap": chooser.choice([None, 7, 32]),
            "chunk": chooser.choice([1, 16]),
            "open_cap": chooser.choice([16, 128]),
            "wide_margin": chooser.choice([0.02, 0.25]),
            "ttl_s": 300,
            **mechanisms(chooser),
        },
    )
    Fuzz(simulation, seed).run(900)
    simulation.close()
