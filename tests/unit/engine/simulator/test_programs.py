from __future__ import annotations

import random
import statistics
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.simulator.arrivals import Closed, Given, Renewal
from grape_lc.engine.simulator.programs import (
    Answer,
    Graph,
    Input,
    Length,
    Shape,
    Static,
    TaskShape,
    Workload,
)
from grape_lc.engine.simulator.shapes import SHAPES
from grape_lc.errors import ConfigError


def test_a_graph_knows_depth_and_the_longest_path_to_the_end():
    #  0 -> 1 -> 3 -> 4,  0 -> 2 -> 4
    graph = Graph.of(((), (0,), (0,), (1,), (2, 3)))
    assert graph.depth == (0, 1, 1, 2, 3)
    assert graph.after == ((1, 3, 4), (3, 4), (4,), (4,), ())
    assert graph.read_by == ((1, 2), (3,), (4,), (4,), ())


def test_a_graph_knows_what_the_final_answer_needs():
    #  0 -> 1 -> 3,  0 -> 2
    assert Graph.of(((), (0,), (0,), (1,))).awaited == (True, True, False, True)
    assert Graph.of(((), ())).awaited == (True, True)


def test_heads_are_the_static_beginnings_each_one_once():
    tasks = (
        TaskShape("a", (Static("x", 5), Static("y", 6), Input("i", Length(3))), Length(2)),
        TaskShape("b", (Static("x", 5), Static("y", 6), Answer("a"), Static("z", 9)), Length(2)),
        TaskShape("c", (Answer("b"), Static("x", 5)), Length(2)),
    )
    work = Workload(Shape("s", (tasks,)), 0)
    parts = work.program(0).tasks[0].parts[:2]
    assert work.heads() == (tuple((part.source, part.tokens) for part in parts),)


@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 5), st.integers(0, 500))
def test_every_program_reads_only_earlier_answers_at_their_full_length(name, seed, number):
    program = Workload(SHAPES[name], seed).program(number)
    assert program == Workload(SHAPES[name], seed).program(number)
    for place, task in enumerate(program.tasks):
        assert 1 <= task.output <= task.limit
        for part in task.parts:
            if part.answer is not None:
                assert part.answer < place
                assert part.tokens == program.tasks[part.answer].output


def test_static_texts_are_shared_by_all_programs_and_inputs_by_one():
    work = Workload(SHAPES["code"], 3)
    one, other = work.program(1).tasks[1], work.program(2).tasks[1]
    assert one.parts[0] == other.parts[0]
    assert one.parts[1].source != other.parts[1].source
    # The problem is the same text in both tasks that read it.
    assert work.program(1).tasks[0].parts[1] == one.parts[1]


def test_another_seed_draws_other_programs():
    assert Workload(SHAPES["code"], 1).program(0) != Workload(SHAPES["code"], 2).program(0)


def test_the_share_of_calls_that_differ_is_as_asked():
    work = Workload(SHAPES["code"], 0, differ=0.25)
    drawn = [task.differs for number in range(400) for task in work.program(number).tasks[1:]]
    assert 0.2 < statistics.mean(drawn) < 0.3
    assert not any(work.program(number).tasks[0].differs for number in range(400))


def test_lengths_have_the_mean_that_they_name():
    dice = random.Random(1)
    length = Length(200, 0.5)
    assert 190 < statistics.mean(length.draw(dice) for _ in range(5000)) < 210
    assert {Length(7).draw(dice) for _ in range(5)} == {7}
    assert max(Length(200, 2.0, 300).draw(dice) for _ in range(500)) == 300


@pytest.mark.parametrize(
    "tasks",
    [
        (TaskShape("a", (Answer("b"),), Length(1)), TaskShape("b", (Static("s", 1),), Length(1))),
        (TaskShape("a", (), Length(1)),),
        (
            TaskShape("a", (Static("s", 1),), Length(1)),
            TaskShape("a", (Input("i", Length(1)),), Length(1)),
        ),
    ],
    ids=["reads a later task", "no parts", "name used twice"],
)
def test_a_shape_that_makes_no_sense_is_refused(tasks):
    with pytest.raises(ConfigError, match="shape 'odd': task 'a'"):
        Shape("odd", (tasks,))


@pytest.mark.parametrize("cv", [1.0, 3.0])
def test_arrivals_have_the_rate_and_the_spread_that_they_name(cv):
    times = list(islice(Renewal(rate=4.0, cv=cv).times(seed=2), 20000))
    gaps = [after - before for before, after in pairwise(times)]
    assert times[0] == 0
    assert statistics.mean(gaps) == pytest.approx(0.25, rel=0.06)
    assert statistics.pstdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.06)


def test_arrivals_are_reproducible_and_checked():
    assert list(islice(Renewal(1.0).times(5), 9)) == list(islice(Renewal(1.0).times(5), 9))
    assert list(Given((0.0, 2.0)).times(1)) == [0.0, 2.0]
    with pytest.raises(ConfigError, match="rate and cv must be positive"):
        Renewal(0.0)
    with pytest.raises(ConfigError, match="at least one program, not 0"):
        Closed(0)
