import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.workload import load_problems, poisson_arrivals
from grape_lc.errors import ConfigError

PROBLEMS = [(f"p{n}", "text") for n in range(2000)]


@given(st.floats(0.01, 100), st.integers(0, 2**32))
def test_arrivals_are_in_order_begin_at_zero_and_follow_the_seed(rate: float, seed: int):
    arrivals = poisson_arrivals(PROBLEMS[:20], rate, seed)
    times = [arrival.at for arrival in arrivals]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert arrivals == poisson_arrivals(PROBLEMS[:20], rate, seed)
    assert times != [arrival.at for arrival in poisson_arrivals(PROBLEMS[:20], rate, seed + 1)]


def test_the_rate_is_met_on_average():
    arrivals = poisson_arrivals(PROBLEMS, rate=4.0, seed=1)
    assert len(arrivals) / arrivals[-1].at == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_positive(rate: float):
    with pytest.raises(ConfigError, match="rate"):
        poisson_arrivals(PROBLEMS, rate, 0)


def test_problems_are_drawn_without_repetition():
    first = load_problems(None, 8, seed=3)
    assert len({name for name, _ in first}) == 8
    assert first == load_problems(None, 8, seed=3)
    assert first != load_problems(None, 8, seed=4)


def test_problems_come_from_any_folder_with_the_field(tmp_path):
    lines = [{"id": "a", "question_content": "Add."}, {"question": "no problem"}]
    (tmp_path / "x.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    assert load_problems(tmp_path, 1, seed=0) == [("a", "Add.")]


def test_too_few_problems_and_bad_sources_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="1000 programs"):
        load_problems(None, 1000, seed=0)
    with pytest.raises(ConfigError, match="at least one"):
        load_problems(None, 0, seed=0)
    with pytest.raises(ConfigError, match="no file or directory"):
        load_problems(tmp_path / "missing", 1, seed=0)
    with pytest.raises(ConfigError, match="question_content"):
        load_problems(tmp_path, 1, seed=0)
