"""What the extras of an arm change in how its programs run."""

from __future__ import annotations

from typing import Any

import pytest

from grape_lc.bench.arms import parse_arm
from grape_lc.bench.examples import Case, Example
from grape_lc.bench.ranking import Standing, priority
from grape_lc.bench.server import ArmServer
from grape_lc.bench.workload import Arrival
from grape_lc.runtime.scripted import ScriptedEngine
from grape_lc.workflow_package import load_workflow
from tests.unit.bench.fakes import TestBed, requests

CODE = Example("code", (Case("c", {"problem": "Sort them."}),), {"problem": "Add."}, {})
CALLS = 5


def run(arm: str, **options: Any) -> ScriptedEngine:
    """The engine of an arm after one program; its first five calls are those of the warm-up."""
    bed = TestBed()
    bed.answers[arm] = {"": "ok"}
    server = ArmServer(parse_arm(arm), CODE, 9, lambda of: bed.engine_of(of, {}), 30.0, **options)
    try:
        server.run([Arrival("c", {"problem": "Sort them."}, 0.0)], 1)
    finally:
        server.close()
    [engine] = bed.engines
    return engine


@pytest.mark.parametrize("arm", ["layout", "vllm+layout", "grape+layout"])
def test_with_layout_every_prompt_begins_alike(arm: str):
    module: Any = load_workflow("code")
    heads = {str(call.messages[0]["content"]) for call in requests(run(arm)) if call.messages}
    assert heads == {module.TEAM}
    plain = {str(call.messages[0]["content"]) for call in requests(run("vllm")) if call.messages}
    assert len(plain) == CALLS


def test_with_layout_calls_keep_their_ranks():
    measured = requests(run("layout"))[CALLS:]
    expected = [priority(Standing(stage, awaited=True), 0) for stage in range(CALLS)]
    assert [call.priority for call in measured] == expected


def test_calls_are_ranked_in_the_order_of_the_arm():
    measured = requests(run("vllm-opt:order=program"))[CALLS:]
    expected = [priority(Standing(stage, awaited=True), 0, "program") for stage in range(CALLS)]
    assert [call.priority for call in measured] == expected


@pytest.mark.parametrize("arm", ["vllm", "vllm-opt+pipe", "grape"])
@pytest.mark.parametrize("fixed", [False, True])
def test_answers_of_fixed_length_ignore_the_end_of_text(arm: str, fixed: bool):
    calls = requests(run(arm, fixed_lengths=fixed))
    assert {call.sampling.ignore_eos for call in calls} == {fixed}
    assert {call.sampling.max_tokens for call in calls[CALLS:]} == {9}


def test_a_piped_arm_tells_the_engine_of_its_programs():
    engine = run("vllm-opt+pipe")
    assert len(engine.programs) == 2
    assert {call.priority for call in requests(engine)} == {0}
    assert run("vllm-opt").programs == ()
