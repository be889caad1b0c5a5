"""How likely the tasks of a flow are to be called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc import InputVar, IntermediateVar, OutputVar, TaskFlow
from grape_lc.runtime.odds import LEAST_ODDS, Odds
from tests.unit.flow.test_flow_newest import branches


def loop() -> TaskFlow:
    """write -> judge -> write#2 -> judge#2: two rounds of a loop."""
    flow = TaskFlow(name="loop")
    flow.add_variable(InputVar("topic"))
    for name in ("draft", "verdict", "better"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(OutputVar("last"))
    flow.add_task([("user", "Write about {topic}.")], "draft", name="write")
    flow.add_task([("user", "Judge: {draft}")], "verdict", name="judge")
    flow.add_task([("user", "{draft}\n{verdict}\nAgain.")], "better", name="write#2")
    flow.add_task([("user", "Judge: {better}")], "last", name="judge#2")
    return flow


FIRST = ("write", "judge")
ALL = (*FIRST, "write#2", "judge#2")


def test_of_branches_that_meet_again_one_is_enough() -> None:
    flow, odds = branches(), Odds()
    for _ in range(5):
        odds.ended("b", flow, ("kind", "joke", "title"), ("kind", "joke", "title"))
    found = odds.of("b", flow)
    assert found["poem"] < LEAST_ODDS
    assert found["title"] == found["joke"] == 1.0
    for _ in range(20):
        odds.ended("b", flow, ("kind", "joke"), ("kind", "joke"))
    assert odds.of("b", flow)["title"] < LEAST_ODDS


def test_nothing_known_is_certain() -> None:
    assert Odds().of("loop", loop()) == dict.fromkeys(ALL, 1.0)


def test_a_round_left_out_twice_is_unlikely_and_so_is_what_reads_it() -> None:
    odds = Odds()
    odds.ended("loop", loop(), FIRST, FIRST)
    once = odds.of("loop", loop())
    assert once["write"] == once["judge"] == 1.0
    assert once["write#2"] == pytest.approx(0.5)
    assert once["write#2"] >= LEAST_ODDS
    odds.ended("loop", loop(), FIRST, FIRST)
    twice = odds.of("loop", loop())
    assert twice["write#2"] < LEAST_ODDS
    assert twice["judge#2"] == twice["write#2"]
    assert odds.of("another", loop())["write#2"] == 1.0


def test_it_is_prepared_again_once_the_loop_goes_round() -> None:
    odds = Odds()
    for _ in range(20):
        odds.ended("loop", loop(), FIRST, FIRST)
    assert odds.of("loop", loop())["write#2"] < 0.2
    rounds = 0
    while odds.of("loop", loop())["write#2"] < LEAST_ODDS:
        odds.ended("loop", loop(), ALL, ALL)
        rounds += 1
    assert 1 < rounds < 8


def test_a_cancelled_run_says_nothing_of_what_it_did_not_reach() -> None:
    odds = Odds()
    for _ in range(5):
        odds.ended("loop", loop(), FIRST, ("write",))
    assert odds.of("loop", loop()) == dict.fromkeys(ALL, 1.0)


def test_each_end_of_a_two_way_branch_stays_likely() -> None:
    flow = TaskFlow(name="branch")
    flow.add_variable(InputVar("text"))
    flow.add_variable(IntermediateVar("kind"))
    flow.add_variable(OutputVar("one"))
    flow.add_variable(OutputVar("other"))
    flow.add_task([("user", "Which? {text}")], "kind", name="route")
    flow.add_task([("user", "{kind} {text}")], "one", name="left")
    flow.add_task([("user", "{kind}: {text}")], "other", name="right")
    odds = Odds()
    for number in range(30):
        side = "left" if number % 2 else "right"
        odds.ended("branch", flow, ("route", side), ("route", side))
        now = odds.of("branch", flow)
        assert min(now["left"], now["right"]) >= LEAST_ODDS


def test_the_oldest_flows_are_forgotten() -> None:
    odds = Odds()
    for number in range(1500):
        for _ in range(2):
            odds.ended(f"flow {number}", loop(), FIRST, FIRST)
    assert odds.of("flow 0", loop())["write#2"] == 1.0
    assert odds.of("flow 1499", loop())["write#2"] < 1.0


@given(st.lists(st.sets(st.sampled_from(ALL)), max_size=40))
def test_odds_are_shares_and_fall_along_the_flow(runs: list[set[str]]) -> None:
    odds = Odds()
    flow = loop()
    for called in runs:
        odds.ended("loop", flow, called, called)
    now = odds.of("loop", flow)
    assert all(0 < now[task] <= 1 for task in ALL)
    assert now["write"] >= now["judge"] >= now["write#2"] >= now["judge#2"]
