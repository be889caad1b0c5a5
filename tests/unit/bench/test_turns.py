from grape_lc.bench.turns import rotated, to_and_fro, turns_of


def test_the_order_rotates():
    assert [rotated(["a", "b", "c"], n) for n in (1, 2, 3, 4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]


def test_every_second_repeat_runs_backwards():
    assert [to_and_fro(["a", "b", "c"], n) for n in (1, 2, 3)] == [
        ["a", "b", "c"],
        ["c", "b", "a"],
        ["a", "b", "c"],
    ]


def test_arms_rotate_while_their_engines_fit():
    engines = {"a": "x", "b": "y", "c": "x"}
    assert turns_of(engines, 2, most=2) == {1: ["a", "b", "c"], 2: ["b", "c", "a"]}
    # What is open already changes nothing then.
    assert turns_of(engines, 2, 2, ["y"]) == turns_of(engines, 2, 2)


def test_arms_of_one_engine_stand_together_where_engines_are_many():
    engines = {"a": "x", "b": "y", "c": "x", "d": "z"}
    assert turns_of(engines, 2, most=2) == {1: ["a", "c", "b", "d"], 2: ["d", "b", "c", "a"]}


def test_the_first_repeat_begins_with_what_is_open():
    engines = {"a": "x", "b": "y", "c": "z"}
    assert turns_of(engines, 1, 2, ["y", "z"]) == {1: ["c", "b", "a"]}
    assert turns_of(engines, 1, 2, ["z", "x"]) == {1: ["a", "b", "c"]}
