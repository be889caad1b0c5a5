"""What the scheduler keeps beyond the end of its programs: up to the caps, and nothing else."""

from __future__ import annotations

import random

import pytest

from grape_lc.engine import vllm_open_prompts
from grape_lc.scheduler import controller, lengths
from tests.contract.simulation import KINDS, Simulation, answer

CAP = 15
PROGRAMS = 50


def run_program(s: Simulation, number: int, draw: random.Random) -> None:
    """Two calls, the second with an open prompt; now and then it does not come, or is given up."""
    program, key = f"p{number}", f"grape/p{number}/b"
    first = [number % 16 + 10] * 30 + [number % 900 + 3]
    second = [7] * 20
    s.open(key, second, program=program, task="b")
    s.call(f"a{number}", first, program=program, task="a", feeds=True, n=3)
    s.idle()
    fate = draw.random()
    if fate < 0.2:
        s.release(key)
    else:
        s.append(key, answer(first, 3), final=True)
        s.call(f"b{number}", second + answer(first, 3), adopt=key, program=program, task="b", n=3)
        if fate < 0.4:
            s.step()
            s.release(f"b{number}")
    s.idle()
    for told in (s.answers, s.outcomes, s.finished, s.told, s.opened):
        told.clear()


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[2]], ids=lambda kind: kind.name)
def test_what_is_remembered_has_a_cap_and_the_rest_is_gone(model_config_dir, kind, monkeypatch):
    monkeypatch.setattr(controller, "_PROGRAMS", CAP)
    monkeypatch.setattr(lengths, "_MEMOS", CAP)
    monkeypatch.setattr(vllm_open_prompts, "_REMEMBERED", CAP)
    s = Simulation(model_config_dir, kind)
    draw = random.Random(7)
    free = s.free
    for number in range(PROGRAMS):
        run_program(s, number, draw)
    sizes = s.scheduler.grape_stats()["sizes"]
    assert sizes["remembered_programs"] == sizes["ended_keys"] == CAP
    assert 0 < sizes["memos"] <= CAP
    assert sizes["lengths"] == 2
    remembered = {"remembered_programs", "ended_keys", "memos", "lengths"}
    assert {name: size for name, size in sizes.items() if name not in remembered and size} == {}
    assert s.free == free
