import pytest

from grape_lc.bench.rates import Rate, parse_rates
from grape_lc.errors import ConfigError


def test_shares_and_rates_are_told_apart():
    rates = parse_rates("0.5x, 0.85x,0.2,")
    assert rates == (Rate(0.5, True), Rate(0.85, True), Rate(0.2, False))
    assert [str(rate) for rate in rates] == ["0.5x", "0.85x", "0.2/s"]


@pytest.mark.parametrize("text", ["0", "-1x", "x", "fast", "inf", "nan", "0.5x,1xx"])
def test_what_is_no_rate_is_refused(text: str):
    with pytest.raises(ConfigError, match="is neither a number of programs a second"):
        parse_rates(text)


def test_none_and_twice_are_refused():
    with pytest.raises(ConfigError, match="no rate in ' ,'"):
        parse_rates(" ,")
    with pytest.raises(ConfigError, match="stands twice"):
        parse_rates("0.5x,0.50x")
