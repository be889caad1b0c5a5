"""A short soak on the shared engine: every kind of fault, and nothing stays behind."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

from grape_lc import GrapeEngine
from tests.soak.accounts import exact, problems
from tests.soak.command import soaked
from tests.soak.flows import flow_of
from tests.soak.moments import Workplace
from tests.soak.plan import Fault, Shape, job
from tests.soak.report import lines
from tests.soak.sizes import Processes, read
from tests.soak.soak import SoakSettings

SETTINGS = SoakSettings(programs=40, seed=9, share=0.5, every=20, at_once=8, warm=8)


def test_forty_programs_leave_nothing_behind(engine: GrapeEngine, quiet: Any) -> None:
    planned = [job(number, SETTINGS.seed, SETTINGS.share) for number in range(SETTINGS.programs)]
    assert {one.fault for one in planned} == {None, *Fault}, "the seed covers all of them"
    found = asyncio.run(soaked(engine, SETTINGS))
    assert found["problems"] == [], "\n".join(lines(found))
    assert found["programs"] == 40
    assert found["faults"] == sum(one.fault is not None for one in planned)
    assert found["answered"] + found["errors"] + found["left"] == 40
    assert found["answers_compared"] > 0
    assert len(found["readings"]) == 2
    assert "nothing was left behind" in lines(found)[-1]


def test_a_soak_whose_time_is_over_is_reported(engine: GrapeEngine, quiet: Any) -> None:
    found = asyncio.run(soaked(engine, replace(SETTINGS, seconds=0.0)))
    assert found["stopped"] == "its 0 s are over"
    assert (found["programs"], found["problems"]) == (0, [])


def test_a_program_that_is_left_open_is_found(engine: GrapeEngine, quiet: Any) -> None:
    """The readings of the real engine show a leak where there is one."""
    place, processes = Workplace.of(engine), Processes(engine.pid)

    def reading(wanted: dict[str, int] | None, programs: int) -> Any:
        return asyncio.run(
            read(
                place,
                processes,
                programs=programs,
                since=time.monotonic(),
                wanted=wanted,
                limit_s=2.0,
            )
        )

    base = reading(None, 0)
    program = engine.open_program(flow_of(Shape.CHAIN), {"topic": "bees"})
    try:
        after = reading(exact(base.kept), 1)
        found = {line.partition(":")[0] for line in problems(base, [after])}
    finally:
        engine.close_program(program)
    # (Whether blocks are held too is up to the governor, which earlier tests may have warned.)
    assert {"host.programs", "host.prompts", "engine.open_prompts"} <= found
