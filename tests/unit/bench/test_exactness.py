"""Answers compared with the right ones: what counts as a difference, and what is counted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from grape_lc.bench.exact_runs import CANCELLED, draw_programs, flow_job, run_jobs
from grape_lc.bench.exact_ways import Way, expected_answers, try_way, ways
from grape_lc.bench.exactness import (
    Answer,
    Expected,
    chunk_sizes,
    first_difference,
    recorded,
)
from grape_lc.engine.base import CallRequest, Usage
from grape_lc.errors import ConfigError
from grape_lc.runtime.scripted import ScriptedEngine

SEED = 1  # with which each way that cancels programs cancels some
USAGE = Usage(10, 3, 7, 5, "adopted")


@pytest.mark.parametrize(
    ("got", "whole", "found"),
    [
        ((1, 2, 3), True, None),
        ((1, 2, 3), False, None),
        ((1, 2), False, None),
        ((), False, None),
        ((1, 2), True, 2),
        ((1, 2, 3, 4), True, 3),
        ((1, 2, 3, 4), False, 3),
        ((1, 9, 3), True, 1),
        ((9,), False, 0),
    ],
)
def test_first_difference(got: tuple[int, ...], whole: bool, found: int | None) -> None:
    assert first_difference((1, 2, 3), got, whole=whole) == found


def test_answers_are_looked_up_by_their_prompts() -> None:
    expected = Expected(
        [
            Answer("p", "plan", (1, 2, 3), USAGE, (0.5, 0.25, 4.0)),
            Answer("q", "code", (4, 5), USAGE, (2.0, 3.0)),
        ]
    )
    assert len(expected) == 2
    assert expected.least_lead == 0.25
    result = expected.compare(
        [
            Answer("q", "code", (4, 5), USAGE),
            Answer("p", "plan", (1, 2), None),
            Answer("p", "plan", (1, 9, 3), USAGE._replace(ahead_tokens=0)),
            Answer("elsewhere", "code", (4,), USAGE),
        ]
    )
    assert (result.calls, result.cut, result.unknown, result.tokens) == (2, 1, 1, 7)
    assert (result.adopted_calls, result.adopted_tokens) == (1, 5)
    (found,) = result.mismatches
    assert found == ("plan", 1, 2, 9, 0.25)
    assert not result.equal


def test_nothing_compared_is_not_equal() -> None:
    expected = Expected([Answer("p", "plan", (1, 2), USAGE)])
    assert not expected.compare([]).equal
    assert expected.compare([Answer("p", "plan", (1, 2), USAGE)]).equal
    assert not expected.compare([Answer("p", "plan", (1,), USAGE)]).equal
    assert not expected.compare([Answer("q", "plan", (1,), USAGE)]).equal


def test_an_engine_that_contradicts_itself_is_found() -> None:
    answers = [Answer("p", "plan", (1, 2), USAGE), Answer("p", "plan", (1, 3), USAGE)]
    assert Expected(answers[:1] * 2).contradictions.mismatches == []
    assert len(Expected(answers).contradictions.mismatches) == 1


def test_a_right_answer_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match="'plan' has no end"):
        Expected([Answer("p", "plan", (1,), None)])


def answer(request: CallRequest) -> str:
    """Depends on the whole prompt."""
    assert request.messages is not None
    return f"an answer to {sum(map(ord, str(request.messages)))}\n of five"


class Engine(ScriptedEngine):
    """Has counters too; wrong answers for one role if it is told so."""

    def __init__(self, wrong: str = "", counters: Mapping[str, int] | None = None) -> None:
        super().__init__(lambda r: "wrong" if r.task == wrong else answer(r))
        self.counters = dict(counters or {})
        self.asked = 0

    def stats(self) -> dict[str, Any]:
        """Counters rise between the first question and the second."""
        self.asked += 1
        return self.counters if self.asked > 1 else {}

    def records(self) -> list[str]:
        """Of one step."""
        return [json.dumps(RECORD)]

    def reset_prefix_cache(self) -> bool:
        """There is none."""
        return True


RECORD = {
    "step": 1,
    "plan": {"prefills": [["a", 9, "x"]], "starts": None, "opens": [["o", 4, "x"], ["p", 1, "x"]]},
    "ran": {"a": 9, "o": 3, "decodes": 1},
}


def test_chunk_sizes_are_those_that_ran_of_prompts() -> None:
    header = json.dumps({"v": 1, "config": {}})
    again = json.dumps(RECORD | {"ran": {"a": 3}})
    assert chunk_sizes([header, json.dumps(RECORD), again]) == {3: 2, 9: 1}


def test_programs_are_drawn_of_all_workloads_in_turn() -> None:
    programs = draw_programs(9, seed=3)
    names = [program.name for program in programs]
    assert len(set(names)) == 9
    assert [name.partition(":")[0].partition(" ")[0] for name in names[:4]] == [
        "code", "summary", "summary", "search",
    ]  # fmt: skip
    assert names == [program.name for program in draw_programs(9, seed=3)]
    assert names != [program.name for program in draw_programs(9, seed=4)]
    assert max(len(str(program.case.state)) for program in programs) < 1600
    with pytest.raises(ConfigError, match="1 to 88"):
        draw_programs(100, seed=1)


def test_every_way_compares_every_call_of_every_program() -> None:
    programs = draw_programs(4, seed=1)
    expected = expected_answers(Engine(), programs, 20, at_once=2)
    assert len(expected) == 5 + 3 + 4 + 4
    # The scripted engine has no counters of its own, and no open prompts.
    risen = {"adopted": 2, "preemptions": 1, "dropped": 1}
    for way in ways(seed=1):
        quick = dataclasses.replace(way, rate=way.rate and 1000.0)
        outcome = try_way(quick, Engine(counters=risen), programs, 20, expected, seed=SEED)
        assert outcome.programs == max(round(4 * way.share), 1)
        assert outcome.comparison.equal
        assert outcome.counters["cancelled"] <= round(way.cancelled * outcome.programs)
        assert outcome.passed
        assert outcome.chunks == {3: 1, 9: 1}


def test_a_wrong_answer_is_found_and_what_follows_is_unknown() -> None:
    programs = draw_programs(1, seed=1)
    expected = expected_answers(Engine(), programs, 20, at_once=1)
    outcome = try_way(Way("w"), Engine("framework_designer"), programs, 20, expected, seed=1)
    (found,) = outcome.comparison.mismatches
    assert (found.task, found.position) == ("framework_designer", 0)
    # All three of those behind it read the design.
    assert outcome.comparison.unknown == 3
    assert not outcome.passed


def test_a_way_without_what_it_claims_fails() -> None:
    programs = draw_programs(1, seed=1)
    expected = expected_answers(Engine(), programs, 20, at_once=1)
    way = Way("w", must=("preemptions", "dropped"))
    outcome = try_way(way, Engine(counters={"preemptions": 1}), programs, 20, expected, seed=1)
    assert outcome.comparison.equal
    assert outcome.missing == ("dropped",)
    assert not outcome.passed


def test_a_cancelled_program_ends_where_it_was_told_to() -> None:
    engine = Engine()
    (program,) = draw_programs(1, seed=1)
    jobs = [flow_job(engine, program, 20, stop_after=stop) for stop in (1, 9, 1000)]
    with recorded(engine) as recorder:
        results = run_jobs(jobs, at_once=1)
    assert [result is CANCELLED for result in results] == [True, True, False]
    ended = [answer.usage is not None for answer in recorder.answers()]
    assert ended.count(False) >= 1
    assert not engine.open_programs
    assert recorder.answers() == recorder.answers()
    list(engine.stream(CallRequest(messages=({"role": "user", "content": "later"},))))
    assert len(recorder.answers()) == len(ended), "it records no longer"


def test_what_a_job_raises_is_raised() -> None:
    async def fails() -> object:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_jobs([fails], at_once=1)
