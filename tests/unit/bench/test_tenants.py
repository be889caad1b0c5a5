"""Programs of several tenants in a comparison: each has its own cache, warmed like the others."""

from __future__ import annotations

from collections import Counter

import pytest

from grape_lc.bench.arms import parse_arm
from grape_lc.bench.examples import Case, Example
from grape_lc.bench.server import ArmServer
from grape_lc.bench.workload import Arrival
from grape_lc.runtime.scripted import ScriptedEngine
from tests.unit.bench.fakes import TestBed

CODE = Example("code", (Case("c", {"problem": "Sort them."}),), {"problem": "Add."}, {})
TENANTS = ("tenant 1", "tenant 2")


def run(arm: str) -> ScriptedEngine:
    """The engine of an arm after one program of each tenant, and one to warm up."""
    bed = TestBed()
    bed.answers[arm] = {"": "ok"}
    server = ArmServer(parse_arm(arm), CODE, 9, lambda of: bed.engine_of(of, {}), 30.0)
    state = {"problem": "Sort them."}
    try:
        server.run([Arrival(tenant, state, 0.0, tenant) for tenant in TENANTS], 1)
    finally:
        server.close()
    [engine] = bed.engines
    return engine


@pytest.mark.parametrize("arm", ["grape", "grape+release", "vllm-opt+pipe"])
def test_programs_and_their_calls_are_of_the_same_tenant(arm: str):
    engine = run(arm)
    assert Counter(program.tenant for program in engine.programs) == Counter(["", *TENANTS])
    of = {program.program_id: program.tenant for program in engine.programs}
    named = [call for call in engine.calls if call.program is not None]
    assert len(named) == len(engine.calls) == 15
    assert all(of[str(call.program)] == call.request.tenant for call in named)


def test_the_heads_are_in_every_tenants_cache():
    heads = [call for call in run("vllm+warm").calls if call.request.label == "warming"]
    first, second = ([c.prompt for c in heads if c.request.tenant == tenant] for tenant in TENANTS)
    assert first == second
    assert len(first) == 5
    assert len(heads) == 10
