"""The tally of a soak: programs that ended as they should not are counted and named."""

from __future__ import annotations

import pytest

from grape_lc.errors import CallTimeoutError, EngineDiedError, PromptTooLongError
from tests.soak.plan import Fault, Job, Shape, Way
from tests.soak.running import ERRORS, Outcome, why_wrong
from tests.soak.tally import Tally


def planned(fault: Fault | None = None, *, sampled: bool = False, way: Way = Way.TASKFLOW) -> Job:
    return Job(1, Shape.CHAIN, way, "", "bees", sampled, fault, 0.1)


ANSWER = Outcome({"review": "Fine."})
OTHER = Outcome({"review": "Bad."})


@pytest.mark.parametrize(
    ("fault", "outcome", "right"),
    [
        (None, ANSWER, True),
        (None, Outcome(error=EngineDiedError("gone")), False),
        (None, Outcome(left=True), False),
        (Fault.OTHER_INPUTS, ANSWER, True),
        (Fault.OTHER_INPUTS, Outcome(error=PromptTooLongError("no")), False),
        (Fault.TIMEOUT, Outcome(error=CallTimeoutError("late")), True),
        (Fault.TIMEOUT, ANSWER, False),
        (Fault.PROMPT_TOO_LONG, Outcome(error=CallTimeoutError("late")), False),
        (Fault.CANCELLED_IN_CALL, Outcome(left=True), True),
        (Fault.CANCELLED_IN_CALL, ANSWER, True),
        (Fault.CANCELLED_IN_CALL, Outcome(error=EngineDiedError("gone")), False),
        (Fault.ABANDONED, Outcome(error=EngineDiedError("gone")), False),
    ],
)
def test_what_is_right(fault: Fault | None, outcome: Outcome, right: bool) -> None:
    why = why_wrong(planned(fault), outcome)
    assert (why is None) == right
    tally = Tally()
    tally.ended(planned(fault), outcome)
    assert tally.wrong == (not right)
    assert tally.shown == ([] if why is None else [why])
    assert bool(tally.problems) == (not right)


def test_a_program_without_any_end_is_lost() -> None:
    tally = Tally()
    tally.ended(planned(), None)
    assert (tally.programs, tally.lost) == (1, 1)
    assert tally.problems == ["1 programs lost: neither an answer nor an error"]


def test_equal_programs_are_compared_whatever_runs_them() -> None:
    tally = Tally()
    tally.ended(planned(), ANSWER)
    tally.ended(planned(Fault.OTHER_INPUTS, way=Way.LEARNED), ANSWER)
    assert (tally.compared, tally.unequal, tally.problems) == (1, 0, [])
    tally.ended(planned(sampled=True), OTHER)
    assert (tally.compared, tally.unequal) == (1, 0), "sampled answers may differ"
    tally.ended(planned(way=Way.BLOCKING), OTHER)
    assert (tally.compared, tally.unequal) == (2, 1)
    assert tally.problems == ["1 programs answered otherwise than equal ones"]


def test_every_fault_has_one_right_end() -> None:
    assert set(ERRORS) < set(Fault)
    for fault in Fault:
        ends = (ANSWER, Outcome(left=True), Outcome(error=KeyError("x")))
        right = [end for end in ends if why_wrong(planned(fault), end) is None]
        assert bool(right) == (fault not in ERRORS)
