"""The accounts of a soak find what is planted, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.soak.accounts import (
    CAPS,
    RSS_BOUND_KIB,
    exact,
    problems,
    process_problems,
    risen,
    rss_slopes,
    slope,
)
from tests.soak.sizes import Reading

KEPT = {
    "engine.used_blocks": 0,
    "engine.requests": 0,
    "core.views": 0,
    "host.tasks": 9,
    "user.tasks": 1,
    "graphs.runs": 0,
    "core.remembered_programs": 0,
}
RSS = {"user": 100_000.0, "host": 800_000.0, "core": 900_000.0}


def reading(programs: int, growth: float = 0.0, noise: int = 0, **kept: int) -> Reading:
    """Everything as at the start, but for memory that grew by ``growth`` KiB for 1000 programs."""
    rss = {name: int(kib + growth * programs / 1000) + noise for name, kib in RSS.items()}
    sizes = {**KEPT, **{name.replace("__", "."): size for name, size in kept.items()}}
    return Reading(programs, programs / 5, sizes, rss, {"user": 12, "host": 60, "core": 40})


def soak(make: Callable[[int], Reading]) -> list[Reading]:
    return [make(programs) for programs in range(500, 10_001, 500)]


def test_nothing_is_found_where_nothing_is() -> None:
    readings = soak(lambda n: reading(n, growth=100.0, noise=300 * (n // 500 % 2)))
    assert problems(reading(0), readings) == []
    assert process_problems(reading(0), readings) == []
    assert set(rss_slopes(readings)) == set(RSS)


@pytest.mark.parametrize("name", sorted(exact(KEPT)))
def test_whatever_is_not_back_is_found(name: str) -> None:
    last = reading(1000)
    last.kept[name] += 1
    (found,) = problems(reading(0), [reading(500), last])
    assert found == f"{name}: {KEPT[name] + 1} after 1000 programs, {KEPT[name]} before"
    assert risen(KEPT, last.kept, [name, "core.views"]) == 1 + (name == "core.views")


def test_a_size_that_nobody_has_heard_of_must_be_back_too() -> None:
    (found,) = problems(reading(0), [reading(500, core__new_table=3)])
    assert found.startswith("core.new_table: 3 ")


def test_a_transient_is_no_leak() -> None:
    """Only the last reading counts: nothing is left behind if it is gone by then."""
    assert problems(reading(0), [reading(500, core__views=2), reading(1000)]) == []


def test_growth_up_to_a_cap_is_no_leak_and_beyond_it_is() -> None:
    cap = CAPS["core.remembered_programs"]
    assert problems(reading(0), [reading(500, core__remembered_programs=cap)]) == []
    (found,) = problems(reading(0), [reading(500, core__remembered_programs=cap + 1)])
    assert found == f"core.remembered_programs: {cap + 1}, its cap is {cap}"


def test_memory_that_grows_is_found() -> None:
    readings = soak(lambda n: reading(n, growth=1.2 * RSS_BOUND_KIB))
    found = process_problems(reading(0), readings)
    assert len(found) == 3
    assert all("grows by 12" in line for line in found), found
    fewer = soak(lambda n: reading(n, growth=0.8 * RSS_BOUND_KIB))
    assert process_problems(reading(0), fewer) == []


def test_memory_of_what_is_remembered_is_no_leak_and_more_than_that_is() -> None:
    def remembering(each: float) -> list[Reading]:
        return soak(lambda n: reading(n, growth=each * 4000, core__memos=4 * n))

    assert process_problems(reading(0), remembering(0.25)) == []
    found = process_problems(reading(0), remembering(0.6))
    assert "memory of core grows by 14" in found[-1], "2400 KiB, of which 1000 are of entries"
    assert "memory of user grows by 24" in found[0], "it has no such entries"


def test_memory_that_has_settled_by_half_time_is_no_leak() -> None:
    readings = soak(lambda n: reading(min(n, 4500), growth=50_000.0)._replace(programs=n))
    assert process_problems(reading(0), readings) == []


def test_the_trend_of_a_short_run_is_told_and_not_judged() -> None:
    readings = [reading(programs, growth=1e5) for programs in range(100, 1001, 100)]
    assert process_problems(reading(0), readings) == []
    assert rss_slopes(readings)["core"] == pytest.approx(1e5, rel=0.01)


def test_a_trend_needs_readings() -> None:
    assert rss_slopes([]) == {}
    assert rss_slopes([reading(500, growth=1e6), reading(1000, growth=1e6)]) == {}


def test_one_file_descriptor_is_found() -> None:
    last = reading(500)
    last.fds["host"] += 1
    assert process_problems(reading(0), [last]) == ["file descriptors of host: 61, 60 at first"]


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], None),
        ([(1.0, 5.0)], None),
        ([(1.0, 5.0), (1.0, 9.0)], None),
        ([(0.0, 1.0), (2.0, 5.0)], 2.0),
        ([(0.0, 0.0), (1.0, 3.0), (2.0, 0.0)], 0.0),
    ],
)
def test_slope(points: Any, expected: float | None) -> None:
    assert slope(points) == (None if expected is None else pytest.approx(expected))
