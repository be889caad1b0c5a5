import pytest

from grape_lc.bench.metrics import CallRecord, ProgramRecord
from grape_lc.bench.slo import (
    NO_SLO,
    RULES,
    Slo,
    call_meets,
    gap_tail,
    mean_gap,
    parse_slo,
    program_meets,
)
from grape_lc.errors import ConfigError


def call(*times: float, submitted: float = 0.0) -> CallRecord:
    return CallRecord(1, None, submitted, tuple((at, 1) for at in times))


# First token after a second; nine gaps of 0.1 s and one of a second.
STALLED = call(1.0, *(1.0 + n / 10 for n in range(1, 10)), 2.9)


def test_the_strict_rule_looks_at_the_tail_and_the_other_at_the_mean():
    assert gap_tail(STALLED) == pytest.approx(1.0, abs=0.1)
    assert mean_gap(STALLED) == pytest.approx(0.19)
    slo = Slo(ttft=1000, tbt=200)
    assert not call_meets(STALLED, slo, "strict")
    assert call_meets(STALLED, slo, "mean")


@pytest.mark.parametrize("rule", RULES)
def test_first_tokens_count_from_the_submission(rule: str):
    late = call(1.0, 1.1, submitted=0.5)
    assert call_meets(late, Slo(ttft=500), rule)
    assert not call_meets(late, Slo(ttft=499), rule)


@pytest.mark.parametrize("rule", RULES)
def test_a_call_without_tokens_meets_nothing_and_one_token_has_no_gaps(rule: str):
    assert not call_meets(call(), Slo(program=1e9), rule)
    assert call_meets(call(1.0), Slo(tbt=0.001), rule)


def test_tokens_that_come_at_once_have_gaps_of_zero():
    at_once = CallRecord(1, None, 0.0, ((1.0, 3), (1.3, 1)))
    assert mean_gap(at_once) == pytest.approx(0.1)
    assert gap_tail(at_once) == pytest.approx(0.3, abs=0.01)


@pytest.mark.parametrize("rule", RULES)
def test_a_program_is_judged_by_all_calls_and_by_its_own_time(rule: str):
    quick, slow = call(0.1, 0.2), call(2.0, 2.1)
    program = ProgramRecord("p", 0.5, 3.0, (quick, slow), scheduled=0.25)
    assert program_meets(program, Slo(ttft=2000, tbt=101, program=2750), rule)
    assert not program_meets(program, Slo(ttft=1999), rule)
    assert not program_meets(program, Slo(program=2749), rule)  # counted from 0.25, not 0.5
    assert program_meets(program, NO_SLO, rule)


def test_targets_are_read_and_said():
    assert parse_slo("") == NO_SLO
    assert not NO_SLO
    slo = parse_slo("tbt:50, ttft:2000,")
    assert slo == Slo(ttft=2000.0, tbt=50.0)
    assert slo
    assert str(slo) == "ttft 2000 ms, tbt 50 ms"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tpot:50", "'tpot' is unknown or stands twice; there are: ttft, tbt, program"),
        ("tbt:50,tbt:60", "'tbt' is unknown or stands twice"),
        ("tbt", "'' is no number of milliseconds; write tbt:50"),
        ("tbt:soon", "'soon' is no number"),
        ("tbt:0", "'0' is no number"),
        ("tbt:inf", "'inf' is no number"),
    ],
)
def test_what_is_no_target_is_refused_with_what_there_is(text: str, said: str):
    with pytest.raises(ConfigError) as refused:
        parse_slo(text)
    assert said in str(refused.value)
