"""With every mechanism off, each step is vLLM's own."""

from __future__ import annotations

import dataclasses
import random

import pytest
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import RequestStatus

from grape_lc.scheduler.settings import PLAIN
from tests.contract.simulation import Simulation, answer


def trace(simulation: Simulation, seed: int) -> list[object]:
    """Run a random plain workload; returns what each step was, and all answers."""
    chooser = random.Random(seed)
    steps: list[object] = []
    schedule = simulation.scheduler.schedule

    def watched(*args):
        planned = schedule(*args)
        steps.append(
            (
                dict(planned.num_scheduled_tokens),
                [(new.req_id, new.block_ids) for new in planned.scheduled_new_reqs],
                sorted(planned.finished_req_ids),
                sorted(planned.preempted_req_ids or ()),
                planned.scheduled_spec_decode_tokens,
            )
        )
        return planned

    simulation.scheduler.schedule = watched
    expected = {}
    for turn in range(400):
        if chooser.random() < 0.08:
            prompt = [3 + (chooser.random() < 0.05) for _ in range(chooser.randint(1, 250))]
            n = chooser.randint(1, 60)
            name = f"r{seed}-{turn}"
            expected[name] = (prompt, n)
            order = {"priority": chooser.randint(0, 2), "arrival_time": float(turn)}
            simulation.plain(name, prompt, n=n, **order)
        if chooser.random() < 0.01 and expected:
            request_id = chooser.choice(sorted(expected))
            del expected[request_id]
            simulation.scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)
        simulation.step()
    simulation.idle(20000)
    for request_id, (prompt, n) in expected.items():
        assert simulation.answers[request_id] == answer(prompt, n)
    return [*steps, dict(simulation.answers)]


class Watched:
    """What the simulation reads of our scheduler, on vLLM's own."""

    def __init__(self, *args, **kwargs):
        kwargs["vllm_config"].additional_config = {}
        super().__init__(*args, **kwargs)

    def grape_stats(self):
        return {}


# What still must be off for vLLM's own steps: who starts, who is cut, and who is preempted.
LEAST = {"rule": "fcfs", "admission": False, "constraint": "off", "eviction": "tail"}


@pytest.mark.parametrize("off", [PLAIN, LEAST], ids=["plain", "least"])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
@pytest.mark.parametrize("drafts", [0, 2])
@pytest.mark.parametrize("blocks", [26, 200])
def test_same_steps(model_config_dir, kind, policy, drafts, blocks, off):
    base = AsyncScheduler if kind.asynchronous else Scheduler
    stock = dataclasses.replace(kind, scheduler=type("Stock", (Watched, base), {}))
    fields = {"policy": policy, "drafts": drafts, "blocks": blocks, "rows": 4}
    ours = Simulation(model_config_dir, kind, settings=dict(off), **fields)
    theirs = Simulation(model_config_dir, stock, **fields)
    for seed in range(2 if off is PLAIN else 1):
        assert trace(ours, seed) == trace(theirs, seed)
    if blocks == 26:
        assert ours.counters["preemptions"] > 0, "the comparison covers preemption"
