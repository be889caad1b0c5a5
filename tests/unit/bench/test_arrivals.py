from itertools import pairwise
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.bench.arrival_trace import read_arrival_times, spread
from grape_lc.bench.arrivals import Bursts, InFlight, Poisson, Replay, parse_arrivals
from grape_lc.bench.examples import Case
from grape_lc.bench.workload import Arrival, dealt, poisson_arrivals
from grape_lc.errors import ConfigError

CASES = [Case(f"p{n}", {"problem": "text"}) for n in range(4000)]
OPEN = [Poisson(), Bursts(3.0), Replay("t", tuple(0.5 + n % 7 for n in range(100)))]


def gaps(arrivals: list[Arrival]) -> list[float]:
    return [after.at - before.at for before, after in pairwise(arrivals)]


@given(st.sampled_from(OPEN), st.integers(1, 40), st.floats(0.01, 100), st.integers(0, 2**32))
def test_open_patterns_begin_at_zero_keep_the_order_and_follow_the_seed(
    pattern: Poisson | Bursts | Replay, count: int, rate: float, seed: int
):
    arrivals = pattern.schedule(CASES[:count], rate, seed)
    assert [arrival.name for arrival in arrivals] == [case.name for case in CASES[:count]]
    times = [arrival.at for arrival in arrivals]
    assert times[0] == 0.0
    assert times == sorted(times)
    assert arrivals == pattern.schedule(CASES[:count], rate, seed)


@pytest.mark.parametrize("pattern", OPEN)
@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_positive(pattern: Poisson | Bursts | Replay, rate: float):
    with pytest.raises(ConfigError, match="rate"):
        pattern.schedule(CASES[:3], rate, 0)


@pytest.mark.parametrize(("text", "cv"), [("poisson", 1.0), ("gamma:1", 1.0), ("gamma:3", 3.0)])
def test_rate_and_spread_are_those_asked_for(text: str, cv: float):
    pattern = parse_arrivals(text)
    found = gaps(pattern.schedule(CASES, 4.0, 1))
    assert fmean(found) == pytest.approx(0.25, rel=0.15)
    assert pstdev(found) / fmean(found) == pytest.approx(cv, rel=0.15)


def test_poisson_times_are_those_of_earlier_comparisons():
    assert parse_arrivals("poisson").schedule(CASES[:9], 2.0, 5) == poisson_arrivals(
        CASES[:9], 2.0, 5
    )


@given(
    st.lists(st.floats(0.001, 100), min_size=4, max_size=30),
    st.integers(2, 5),
    st.floats(0.01, 100),
    st.integers(0, 1000),
)
def test_a_stretch_of_a_trace_is_scaled_to_the_rate_and_keeps_its_shape(
    trace: list[float], count: int, rate: float, seed: int
):
    found = gaps(Replay("t", tuple(trace)).schedule(CASES[:count], rate, seed))
    assert fmean(found) == pytest.approx(1 / rate)
    stretches = [trace[n : n + count - 1] for n in range(len(trace) - count + 2)]
    assert any(
        found == pytest.approx([gap * fmean(found) / fmean(part) for gap in part], rel=1e-6)
        for part in stretches
    )


def test_seeds_take_different_stretches():
    pattern = Replay("t", tuple(float(n * n + 1) for n in range(50)))
    assert len({tuple(gaps(pattern.schedule(CASES[:5], 1.0, seed))) for seed in range(20)}) > 5


def test_programs_at_once_in_a_trace_come_at_once_at_any_rate():
    found = Replay("t", (0.0, 0.0, 0.0)).schedule(CASES[:4], 2.0, 0)
    assert [arrival.at for arrival in found] == [0.0] * 4
    assert [a.at for a in Replay("t", (3.0,)).schedule(CASES[:1], 2.0, 0)] == [0.0]


def test_a_trace_that_is_too_short_is_refused():
    with pytest.raises(ConfigError, match="4 programs asked for, but t has 3 arrivals"):
        Replay("t", (1.0, 1.0)).schedule(CASES[:4], 1.0, 0)


def test_a_closed_loop_has_no_times():
    pattern = parse_arrivals("closed:3")
    assert pattern == InFlight(3)
    assert [arrival.at for arrival in pattern.schedule(CASES[:5], 1.0, 0)] == [0.0] * 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("7", "no arrivals '7'; there are: poisson, gamma:CV, trace:FILE, closed:N"),
        ("poisson:2", "no arrivals 'poisson:2'"),
        ("gamma", "no arrivals 'gamma'"),
        ("gamma:x", "no number"),
        ("gamma:0", "from 0.01 to 100"),
        ("gamma:nan", "from 0.01 to 100"),
        ("closed:0", "at least one program"),
        ("closed:-1", "no arrivals 'closed:-1'"),
        ("trace:", "no arrivals 'trace:'"),
        ("trace:/no/such/file.csv", "cannot read /no/such/file.csv"),
        ("trace:notes.txt", "no trace of arrivals: .csv with arrival_s"),
    ],
)
def test_what_is_no_pattern_is_refused_with_what_there_is(text: str, said: str):
    with pytest.raises(ConfigError) as refused:
        parse_arrivals(text)
    assert said in str(refused.value)


def test_patterns_say_what_they_are(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s\n0\n1\n")
    texts = ["poisson", "gamma:3", f"trace:{path}", "closed:4"]
    assert [str(parse_arrivals(text)) for text in texts] == [
        "Poisson arrivals",
        "gamma arrivals with CV 3",
        "arrivals with the gaps of t.csv",
        "a closed loop with 4 in flight",
    ]


def test_a_table_is_read_by_its_column(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("input_tokens,arrival_s\n5,2.5\n7,0.0\n9,1\n")
    assert read_arrival_times(path) == [0.0, 1.0, 2.5]


def test_lines_are_read_by_their_stamps(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 500, "x": 1}\n\n{"timestamp": 0}\n{"timestamp": 1201}\n')
    assert read_arrival_times(path) == [0.0, 0.5, 1.201]


def test_stamps_of_a_coarse_grain_are_spread_over_it():
    assert spread([0, 0, 0, 3000, 9000, 9000]) == [0.0, 1.0, 2.0, 3.0, 9.0, 10.5]
    # A clock that ticks a little early now and then does not hide the grain.
    assert spread([6000, 0, 0, 2999]) == [0.0, 1.4995, 2.999, 6.0]
    assert spread([5, 5]) == [0.005, 0.005]  # nothing tells the grain


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=50))
def test_spread_stamps_stay_in_order_and_between_their_neighbours(stamps: list[int]):
    found = spread(stamps)
    ordered = sorted(stamps)
    assert found == sorted(found)
    assert len(found) == len(stamps)
    for stamp, at in zip(ordered, found, strict=True):
        later = [other for other in ordered if other > stamp]
        assert stamp / 1000 <= at
        assert not later or at < min(later) / 1000


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.csv", "when\n1\n2\n", "no column arrival_s among when"),
        ("t.csv", "", "no column arrival_s"),
        ("t.csv", "arrival_s\n1\nsoon\n", "line 3: arrival_s is no number: 'soon'"),
        ("t.csv", "arrival_s\n1\nnan\n", "is no number"),
        ("t.csv", "arrival_s\n1\n", "has 1 arrivals"),
        ("t.jsonl", '{"timestamp": 1}\n{"time": 2}\n', "line 2 has no timestamp"),
        ("t.jsonl", '{"timestamp": 1.5}\n', "line 1 has no timestamp"),
        ("t.jsonl", "[1]\n", "line 1 has no timestamp"),
        ("t.jsonl", "no\n", "is no trace of arrivals"),
        ("t.jsonl", "", "has 0 arrivals"),
    ],
)
def test_files_that_are_no_traces_are_refused(tmp_path: Path, name: str, text: str, said: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_arrival_times(tmp_path / name)
    assert said in str(refused.value)
    assert name in str(refused.value)


def test_binary_is_no_trace(tmp_path: Path):
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="no trace of arrivals"):
        read_arrival_times(tmp_path / "t.jsonl")


def test_tenants_take_turns():
    arrivals = poisson_arrivals(CASES[:5], 1.0, 0)
    assert [arrival.tenant for arrival in dealt(arrivals, 2)] == [
        *("tenant 1", "tenant 2", "tenant 1", "tenant 2", "tenant 1"),
    ]
    assert dealt(arrivals, 1) == arrivals
