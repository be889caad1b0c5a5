"""The plan of a soak: the same from the same seed, and everything is in it."""

from __future__ import annotations

from tests.soak.flows import flow_of
from tests.soak.plan import Fault, Shape, Way, job

PROGRAMS = 4000


def test_the_same_seed_gives_the_same_programs_whatever_was_drawn_before() -> None:
    first = [job(number, 5, 0.1) for number in range(50)]
    assert [job(number, 5, 0.1) for number in reversed(range(50))] == first[::-1]
    assert [job(number, 6, 0.1) for number in range(50)] != first


def test_every_fault_shape_and_way_comes_up_and_about_one_program_in_ten_has_a_fault() -> None:
    jobs = [job(number, 1, 0.1) for number in range(PROGRAMS)]
    faulty = [planned for planned in jobs if planned.fault is not None]
    assert 0.08 < len(faulty) / PROGRAMS < 0.12
    assert {planned.fault for planned in faulty} == set(Fault)
    assert {planned.shape for planned in jobs} == set(Shape)
    assert {planned.way for planned in jobs} == set(Way)
    assert len({planned.tenant for planned in jobs}) == 3
    assert len({planned.topic for planned in jobs}) < PROGRAMS / 2, "many inputs are shared"


def test_a_fault_is_possible_where_it_is_planned() -> None:
    jobs = [job(number, 1, 1.0) for number in range(PROGRAMS)]
    for planned in jobs:
        if planned.fault is Fault.NODE_RAISES:
            assert planned.way is not Way.TASKFLOW
        if planned.fault is Fault.NEVER_CALLED:
            assert planned.way is Way.TASKFLOW
        if planned.fault in (Fault.NEVER_CALLED, Fault.CANCELLED_BETWEEN_CALLS):
            assert len(flow_of(planned.shape).tasks) > 1


def test_flows_are_sound_and_small() -> None:
    for shape in Shape:
        flow = flow_of(shape)
        flow.validate_flow()
        assert 1 <= len(flow.tasks) <= 3
        bad = flow_of(shape, bad=True)
        assert [bool(task.sampling.extra) for task in bad.order()][-1], "the last call is refused"
