"""The priorities of a tuned vLLM's calls: objective, then stage, then program."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest

from grape_lc.bench.collect import current_program
from grape_lc.bench.ranking import FIRST, RankedEngine, Standing, priority, standings
from grape_lc.bench.twins import code_flow, search_flow, summary_flow
from grape_lc.engine.base import CallRequest
from grape_lc.flow import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def flow_of(**reads: str) -> TaskFlow:
    """A flow of tasks, each with the variables that it reads; ``x`` is given, ``tool`` opaque."""
    flow = TaskFlow(name="f")
    given = {name for text in reads.values() for name in text.split()} - set(reads)
    for name in sorted(given):
        flow.add_variable(InputVar(name, opaque=name == "tool"))
    read = {name for text in reads.values() for name in text.split()}
    for name in reads:
        flow.add_variable(IntermediateVar(name) if name in read else OutputVar(name))
    for name, text in reads.items():
        flow.add_task(" ".join(f"{{{variable}}}" for variable in text.split()), name)
    return flow


def test_stages_are_calls_on_the_longest_path():
    found = standings(flow_of(a="x", b="x a", c="a b", d="x c"))
    assert found == {name: Standing(n, awaited=True) for n, name in enumerate("abcd")}


def test_what_the_final_answer_does_not_need_is_not_awaited():
    found = standings(flow_of(a="x", note="a", b="a", log="b", c="b", end="c"))
    assert {name for name, standing in found.items() if not standing.awaited} == {"note", "log"}
    assert found["log"].stage == found["c"].stage == 2


def test_all_answers_of_the_last_stage_are_final():
    found = standings(flow_of(a="x", b="a", c="a"))
    assert all(standing.awaited for standing in found.values())


def test_a_tool_is_taken_to_read_what_no_task_reads():
    found = standings(flow_of(a="x", queries="a", found="tool x", end="found"))
    assert found["queries"] == Standing(1, awaited=True)
    assert found["found"] == Standing(2, awaited=True)
    assert found["end"] == Standing(3, awaited=True)
    # An opaque text before which nothing happened, such as a date, changes nothing.
    assert standings(flow_of(a="tool", b="a")) == standings(flow_of(a="x", b="a"))


@pytest.mark.parametrize(
    ("flow", "stages"),
    [
        (code_flow(), [0, 1, 2, 3, 4]),
        (search_flow(), [0, 1, 2, 3]),
        (summary_flow(4), [0, 1, 2, 3]),
        (summary_flow(3, mode="map_reduce"), [0, 0, 0, 1]),
    ],
    ids=["code", "search", "refine", "map_reduce"],
)
def test_the_example_workflows_have_their_stages_and_need_all_calls(
    flow: TaskFlow, stages: list[int]
):
    found = standings(flow)
    assert [found[task.name].stage for task in flow.tasks] == stages
    assert all(standing.awaited for standing in found.values())


def test_objective_goes_before_stage_and_stage_before_program():
    calls = list(product((True, False), range(5), range(4)))
    ordered = sorted(calls, key=lambda call: priority(Standing(call[1], call[0]), call[2]))
    assert ordered == sorted(calls, key=lambda call: (not call[0], -call[1], call[2]))


def test_by_program_the_first_to_come_is_served_before_the_next():
    calls = list(product((True, False), range(5), range(4)))
    ordered = sorted(
        calls, key=lambda call: priority(Standing(call[1], call[0]), call[2], "program")
    )
    assert ordered == sorted(calls, key=lambda call: (not call[0], call[2], -call[1]))
    assert priority(Standing(1 << 40, awaited=False), 1 << 40, "program") <= MOST
    assert priority(Standing(0, awaited=False), 1 << 40, "program") <= MOST


def test_siblings_of_a_program_stand_together():
    calls = [(program, sibling) for sibling in range(3) for program in range(3)]
    standing = Standing(2, awaited=True)
    ordered = sorted(calls, key=lambda call: priority(standing, call[0]))  # stable, as arrival is
    assert [program for program, _ in ordered] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_priorities_fit_into_what_carries_them():
    for stage, awaited, program in product((0, 1 << 40), (True, False), (0, 1 << 40)):
        assert 0 <= priority(Standing(stage, awaited), program) <= MOST
    # Beyond the last digit an order is lost, and none is turned round.
    assert priority(Standing(1 << 40, True), 0) == priority(Standing((1 << 16) - 1, True), 0)
    assert priority(FIRST, 1 << 40) < priority(Standing(0, awaited=False), 0)


def ranked(flow: TaskFlow) -> tuple[RankedEngine, ScriptedEngine]:
    inner = ScriptedEngine({"": "ok"}, clock=VirtualClock())
    return RankedEngine(inner, flow), inner


def call(engine: RankedEngine, program: str, **names: Any) -> int:
    """Makes a call as a program; returns the priority that the engine below saw."""
    token = current_program.set(program)
    try:
        for _ in engine.stream(CallRequest(text="Say.", **names)):
            pass
    finally:
        current_program.reset(token)
    inner = engine._engine
    assert isinstance(inner, ScriptedEngine)
    return inner.calls[-1].request.priority


def test_calls_of_tasks_and_of_nodes_get_the_same_priority():
    flow = summary_flow(4)
    engine, _ = ranked(flow)
    tasks = [call(engine, "p", task=task.name) for task in flow.tasks]
    nodes = [call(engine, "p", label=n) for n in ("summarise", "refine", "refine", "refine")]
    assert nodes == tasks == sorted(tasks, reverse=True)
    assert len(set(tasks)) == 4


def test_a_loop_that_goes_on_longer_than_foreseen_goes_on_deeper():
    engine, _ = ranked(summary_flow(3))
    rounds = [call(engine, "p", label="refine") for _ in range(4)]
    assert rounds == [priority(Standing(stage, awaited=True), 0) for stage in (1, 2, 3, 4)]
    # Another program begins anew.
    assert call(engine, "q", label="refine") == priority(Standing(1, awaited=True), 1)


def test_more_siblings_than_foreseen_are_siblings():
    engine, _ = ranked(summary_flow(2, mode="map_reduce"))
    parts = [call(engine, "p", label="summarise_part") for _ in range(4)]
    assert set(parts) == {priority(FIRST, 0)}
    assert call(engine, "p", label="merge") == priority(Standing(1, awaited=True), 0)


def test_programs_count_from_the_first_that_calls_and_unknown_calls_are_first_stages():
    engine, inner = ranked(code_flow())
    assert call(engine, "p", label="nobody") == priority(FIRST, 0)
    assert call(engine, "q") == priority(FIRST, 1)
    assert call(engine, "p", task="nobody") == priority(FIRST, 0)

    async def one() -> None:
        current_program.set("r")
        async for _ in engine.astream(CallRequest(text="Say.", task="test_validator")):
            pass

    asyncio.run(one())
    assert inner.calls[-1].request.priority == priority(Standing(4, awaited=True), 2)
    assert LEAST <= inner.calls[-1].request.priority <= MOST
