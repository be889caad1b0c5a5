import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.examples import Case
from grape_lc.bench.workload import poisson_arrivals
from grape_lc.errors import ConfigError

CASES = [Case(f"p{n}", {"problem": "text"}) for n in range(2000)]


@given(st.floats(0.01, 100), st.integers(0, 2**32))
def test_arrivals_are_in_order_begin_at_zero_and_follow_the_seed(rate: float, seed: int):
    arrivals = poisson_arrivals(CASES[:20], rate, seed)
    times = [arrival.at for arrival in arrivals]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert arrivals == poisson_arrivals(CASES[:20], rate, seed)
    assert times != [arrival.at for arrival in poisson_arrivals(CASES[:20], rate, seed + 1)]


def test_the_rate_is_met_on_average():
    arrivals = poisson_arrivals(CASES, rate=4.0, seed=1)
    assert len(arrivals) / arrivals[-1].at == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_positive(rate: float):
    with pytest.raises(ConfigError, match="rate"):
        poisson_arrivals(CASES, rate, 0)
