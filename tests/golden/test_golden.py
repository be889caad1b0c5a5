"""Records of a few tiny simulations, step by step. A change of the policy shows in their diff.

pytest tests/golden --update-golden     writes them anew, to be reviewed
grape replay tests/golden/switch.jsonl  plans their steps anew
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grape_lc.bench.simulation_report import replay
from grape_lc.engine.simulator.arrivals import Given
from grape_lc.scheduler.record import header, read
from grape_lc.scheduler.settings import PolicyConfig
from tests.unit.engine.simulator.scenes import GPU, Scene, chain, plain

FOLDER = Path(__file__).parent

SCENES = {
    # Two programs whose tasks hand over to each other, on a CPU.
    "switch": Scene(
        chain(2, static=24, own=8, answer=9, spread=0.0),
        PolicyConfig(chunk=4, lump=16, prefill_cap=24, open_cap=32, adopted_first=16),
        Given((0.0, 0.2)),
        programs=2,
        blocks=120,
    ),
    # The same chain where the pool holds little more than one call.
    "short_kv": Scene(
        chain(2, static=16, own=40, answer=14, spread=0.0),
        PolicyConfig(chunk=4, lump=8, horizon=16, ttft_s=0.3),
        Given((0.0, 0.0, 0.05)),
        programs=3,
        blocks=56,
        cost=GPU,
    ),
    # vLLM's own steps, with a preemption.
    "plain": Scene(
        chain(1, static=9, own=30, answer=24, spread=0.0),
        plain(),
        Given((0.0, 0.0, 0.1)),
        programs=3,
        blocks=36,
        ahead=False,
    ),
}


def lines(scene: Scene) -> list[str]:
    """The file's content as it should be."""
    return [header(scene.config), *(record.to_json() for record in scene.simulate().records)]


@pytest.mark.parametrize("name", sorted(SCENES))
def test_every_step_is_the_recorded_one(name, request):
    path, scene = FOLDER / f"{name}.jsonl", SCENES[name]
    found = lines(scene)
    if request.config.getoption("--update-golden"):
        path.write_text("\n".join(found) + "\n", encoding="utf-8")
    kept = path.read_text(encoding="utf-8").splitlines()
    for number, (ours, theirs) in enumerate(zip(found, kept, strict=False), start=1):
        assert ours == theirs, f"{path.name}, line {number}; --update-golden accepts it"
    assert len(found) == len(kept), f"{path.name} has another number of steps"


@pytest.mark.parametrize("name", sorted(SCENES))
def test_every_recorded_step_is_planned_the_same_again(name):
    said: list[str] = []
    assert replay(FOLDER / f"{name}.jsonl", said.append) == 0, said


def test_the_scenes_show_what_they_are_for():
    found: dict[str, Any] = {name: scene.simulate().statistics for name, scene in SCENES.items()}
    assert found["switch"].outcomes["adopted"] > 0
    assert found["short_kv"].dropped > 0
    assert found["plain"].preemptions > 0


def test_a_changed_plan_is_told(tmp_path):
    text = (FOLDER / "switch.jsonl").read_text(encoding="utf-8")
    config, records = read(text.splitlines())
    changed = [header(config.but(prefill_cap=7, constraint="cap")), *text.splitlines()[1:]]
    path = tmp_path / "changed.jsonl"
    path.write_text("\n".join(changed), encoding="utf-8")
    said: list[str] = []
    assert 0 < replay(path, said.append) <= len(list(records))
    assert any(line.startswith("step ") and " budget: " in line for line in said)
