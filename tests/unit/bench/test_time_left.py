import pytest

from grape_lc.bench.time_left import Planned, expected, starts_needed, time_left

CODE, SLOW, SEARCH = ("code", "0.5x"), ("code", "0.1x"), ("search", "0.5x")


def test_starts_are_those_of_engines_that_are_not_open_any_more():
    assert starts_needed("aba", [], most=2) == 2
    assert starts_needed("aba", ["a", "b"], most=2) == 0
    assert starts_needed("abca", [], most=2) == 4  # c takes the place of a
    assert starts_needed("abcba", [], most=2) == 4
    assert starts_needed("abba", ["b"], most=1) == 3
    assert starts_needed("cb", ["a", "b"], most=2) == 1  # a is the one unused longest


def test_a_run_takes_what_its_kind_took_else_its_workload_else_all():
    seen = {CODE: [10.0, 20.0], SEARCH: [3.0]}
    assert expected(CODE, seen) == 15.0
    assert expected(SLOW, seen) == 15.0
    assert expected(("summary", "0.5x"), seen) == 11.0
    assert expected(CODE, {}) is None


def test_the_rest_is_its_runs_and_the_starts_between_them():
    plan = [Planned(CODE, "a"), Planned(CODE, "b"), Planned(SEARCH, "b")]
    seen = {CODE: [10.0], SEARCH: [4.0]}
    assert time_left(plan, seen, [30.0, 50.0], ["a"], most=2) == pytest.approx(10 + 10 + 4 + 40)
    assert time_left(plan, seen, [], ["a"], most=2) == pytest.approx(24)
    assert time_left(plan, {}, [30.0], [], most=2) is None
    assert time_left([], {}, [], [], most=2) == 0.0
