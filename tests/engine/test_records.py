"""What the real engine's steps were: hints that came with calls, plans, and what ran."""

from __future__ import annotations

from grape_lc import GrapeEngine
from grape_lc.engine.base import CallRequest
from grape_lc.flow.sampling import Sampling
from grape_lc.scheduler import record
from tests.engine.flows import SUBJECTS, chain
from tests.engine.runs import run_programs


def test_steps_of_programs_are_recorded_and_planned_anew_the_same_way(engine: GrapeEngine) -> None:
    run_programs(engine, [(chain(16), subject) for subject in SUBJECTS[:4]])
    config, found = record.read(engine.records())
    records = list(found)
    assert config.validate
    assert len(records) > 48
    for step in records:
        assert record.differences(step, config) == []
        if step.ran and step is not records[-1]:
            assert step.seconds is not None
            assert step.load is not None
            assert step.load.tokens == sum(step.ran.values())
    hints = [view["hint"] for step in records for view in step.snapshot["views"] if "hint" in view]
    # Other tests' programs ran on this engine too.
    hints = [hint for hint in hints if hint.get("flow", "").startswith("chain/")]
    assert hints
    assert {hint.get("depth", 0) for hint in hints} == {0, 1, 2}
    assert {hint["source"] for hint in hints if "source" in hint} == {"plan", "draft"}
    assert ("draft", "review") in {tuple(hint.get("after", ())) for hint in hints}


def test_targets_of_a_call_reach_the_policy(engine: GrapeEngine) -> None:
    request = CallRequest(
        text="Bees are",
        sampling=Sampling(max_tokens=4),
        tenant="me",
        ttft_s=0.5,
        tbt_s=0.25,
        deadline_s=9.0,
    )
    assert "".join(delta.text for delta in engine.stream(request))
    _, records = record.read(engine.records())
    seen = [
        view["hint"]
        for step in records
        for view in step.snapshot["views"]
        if view.get("hint", {}).get("tenant") == "me"
    ]
    assert seen
    assert all(
        (hint["ttft_s"], hint["tbt_s"], hint["deadline_s"]) == (0.5, 0.25, 9.0) for hint in seen
    )
