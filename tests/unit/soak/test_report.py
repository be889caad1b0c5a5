"""The report of a soak has its numbers, and says plainly when something was left behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.soak.command import options
from tests.soak.plan import Fault, Job, Shape, Way
from tests.soak.report import lines, report
from tests.soak.running import Outcome
from tests.soak.sizes import Reading
from tests.soak.soak import Record, SoakSettings
from tests.soak.tally import Tally

KEPT = {
    "engine.used_blocks": 0,
    "engine.requests": 0,
    "engine.running": 0,
    "engine.waiting": 0,
    "engine.tracked": 0,
    "core.views": 0,
    "host.tasks": 9,
    "host.calls": 0,
    "user.tasks": 1,
    "user.calls": 0,
    "core.memos": 0,
}
INFO = {"dtype": "float32", "device": "cpu", "num_blocks": 160, "block_size": 32}


def reading(programs: int, *, fds: int = 10, **kept: int) -> Reading:
    sizes = {**KEPT, **{name.replace("__", "."): size for name, size in kept.items()}}
    return Reading(programs, 1.0, sizes, {"core": 1000}, {"core": fds})


def job(number: int, fault: Fault | None = None) -> Job:
    return Job(number, Shape.ONE, Way.TASKFLOW, "", f"number {number}", False, fault, 0.0)


def found(last: Reading, *ends: tuple[Job, Outcome | None]) -> dict[str, Any]:
    record = Record(reading(0), reading(0), Tally(), [last])
    for planned, outcome in ends:
        record.tally.ended(planned, outcome)
    return report(record, SoakSettings(programs=2), INFO, {"adopted": 3})


FINE = (job(0), Outcome({"note": "x"})), (job(1, Fault.ABANDONED), Outcome(left=True))


def test_a_clean_soak() -> None:
    told = found(reading(2, core__memos=7), *FINE)
    assert told["problems"] == []
    assert {name: told[name] for name in ("programs", "faults", "answered", "left", "lost")} == {
        "programs": 2,
        "faults": 1,
        "answered": 1,
        "left": 1,
        "lost": 0,
    }
    for name in ("leaked_blocks", "leaked_slots", "leaked_tasks", "fd_delta"):
        assert told[name] == 0
    assert told["rss_slope_kib_per_1000"] is None, "one reading is no trend"
    assert told["faults_by_kind"] == {"abandoned": 1}
    assert told["growth_within_caps"]["core.memos"] == {"before": 0, "after": 7, "cap": 16_384}
    assert told["counters"]["adopted"] == 3
    assert json.loads(json.dumps(told)) == json.loads(json.dumps(told, sort_keys=True))
    assert lines(told)[-1] == "soak: nothing was left behind"


@pytest.mark.parametrize(
    ("kept", "key"),
    [
        ({"engine__used_blocks": 3}, "leaked_blocks"),
        ({"engine__requests": 1, "core__views": 2}, "leaked_slots"),
        ({"host__tasks": 12}, "leaked_tasks"),
        ({"fds": 13}, "fd_delta"),
    ],
)
def test_what_is_left_behind_is_counted_and_said(kept: dict[str, int], key: str) -> None:
    told = found(reading(2, **kept), *FINE)
    assert told[key] == 3
    assert told["problems"]
    text = lines(told)
    assert text[-1] == "soak: FAILED"
    assert [line for line in text if line.startswith("PROBLEM: ")]


def test_a_lost_program_fails_it() -> None:
    told = found(reading(2), FINE[0], (job(1), None))
    assert told["lost"] == 1
    assert lines(told)[-1] == "soak: FAILED"


def test_an_engine_that_ended_before_any_reading_fails_it() -> None:
    record = Record(reading(0), reading(0), Tally(), stopped="the engine ended by itself")
    told = report(record, SoakSettings(), INFO, {})
    assert told["problems"] == [
        "nothing was read after the first program: the engine ended by itself"
    ]
    assert lines(told)[-1] == "soak: FAILED"


def test_a_reading_that_is_missing_at_the_end_fails_it() -> None:
    told = found(reading(1), *FINE)
    assert told["problems"] == ["the last reading is that after 1 programs"]


def test_options_have_the_defaults_of_the_settings() -> None:
    given, known = options().parse_args([]), SoakSettings()
    for name in ("programs", "seconds", "seed", "share", "every", "at_once"):
        assert getattr(given, name) == getattr(known, name)
    with pytest.raises(SystemExit):
        options().parse_args(["--programs", "0"])
