"""What a path chooses by the rule, and what it is told to choose."""

from __future__ import annotations

from grape_lc.adapters.trace_choices import ROUNDS, Choice, Choices, Key


def test_each_option_comes_in_turn() -> None:
    choices = Choices({})
    assert [choices.choose("kind", 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert choices.choose("other", 2) == 0
    assert choices.made[Key("kind", 2)] == Choice(options=3, chosen=1)


def test_what_was_told_counts_among_the_options_taken() -> None:
    choices = Choices({Key("kind", 1): 1})
    assert [choices.choose("kind", 2) for _ in range(3)] == [1, 0, 0]


def test_an_edge_goes_where_the_program_wants() -> None:
    choices = Choices({})
    assert choices.pass_edge("route", ["a"], ["a", "b"]) is None
    assert choices.edges["route"].reached == {"a"}
    assert choices.passed == {Key("route", 1): "a"}


def test_an_edge_that_is_told() -> None:
    choices = Choices({Key("route", 1): 1})
    assert choices.pass_edge("route", ["a"], ["a", "b"]) == "b"
    assert choices.edges["route"].reached == set()


def test_a_loop_without_end_is_left_in_the_last_round() -> None:
    choices = Choices({})
    taken = [choices.pass_edge("again", ["write"], ["write", "__end__"]) for _ in range(ROUNDS)]
    assert taken == [None] * (ROUNDS - 1) + ["__end__"]


def test_a_loop_that_the_program_leaves_is_left_alone() -> None:
    choices = Choices({})
    natural = ["write", "done", "write", "write", "done"]
    assert [choices.pass_edge("again", [n], ["write", "done"]) for n in natural] == [None] * 5


def test_an_edge_without_other_ends_goes_on() -> None:
    choices = Choices({})
    assert [choices.pass_edge("again", ["a"], ()) for _ in range(9)] == [None] * 9
