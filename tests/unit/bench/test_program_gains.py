import pytest

from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord
from grape_lc.bench.outcomes import outcomes
from grape_lc.bench.program_gains import PROGRAM_LEVEL, program_gains
from grape_lc.bench.report import value_of


def program(name: str, step: float) -> ProgramRecord:
    """Two calls of four tokens, one every ``step`` seconds."""
    calls = tuple(
        CallRecord(n, None, 4 * n * step, tuple((step * (4 * n + k), 1) for k in range(1, 5)))
        for n in (0, 1)
    )
    return ProgramRecord(name, 0.0, 8 * step, calls)


def run(arm: str, **steps: float) -> RunRecord:
    return RunRecord(arm, tuple(program(name, step) for name, step in steps.items()))


def test_programs_are_paired_by_repeat_and_name():
    theirs = {1: run("base", a=2.0, b=8.0), 2: run("base", a=4.0, c=1.0)}
    ours = {1: run("ours", b=4.0, a=1.0), 2: run("ours", a=2.0, d=9.0), 3: run("ours", a=1.0)}
    gains = program_gains(ours, theirs)
    for figure in PROGRAM_LEVEL:
        ratio = gains[figure]
        assert ratio is not None, figure
        assert (ratio.low, ratio.ratio, ratio.high) == pytest.approx((2.0, 2.0, 2.0))
        assert ratio.pairs == 3  # a and b of the first repeat, a of the second


def test_every_program_counts_alike_however_long_it_is():
    # The long program grew slower by a half, the short one twice as fast; pooled times would
    # show a loss.
    theirs = {1: run("base", long=100.0, short=1.0)}
    ours = {1: run("ours", long=150.0, short=0.5)}
    ratio = next(iter(program_gains(ours, theirs).values()))
    assert ratio is not None
    assert ratio.ratio == pytest.approx((1 / 1.5 * 2.0) ** 0.5)
    assert not ratio.shown


def test_many_programs_show_what_two_repeats_cannot():
    names = [f"p{n}" for n in range(20)]
    theirs = {r: run("base", **{n: 1.0 + i / 10 for i, n in enumerate(names)}) for r in (1, 2)}
    ours = {
        r: run("ours", **{n: (1.0 + i / 10) / (1.1 + i % 3 / 10) for i, n in enumerate(names)})
        for r in (1, 2)
    }
    ratio = next(iter(program_gains(ours, theirs).values()))
    assert ratio is not None
    assert ratio.pairs == 40
    assert ratio.low is not None
    assert ratio.high is not None
    assert 1.1 < ratio.low < ratio.ratio < ratio.high < 1.3


def test_without_a_common_repeat_or_program_there_is_no_ratio():
    assert set(program_gains({1: run("a", x=1.0)}, {2: run("b", x=1.0)}).values()) == {None}
    assert set(program_gains({1: run("a", x=1.0)}, {1: run("b", y=1.0)}).values()) == {None}


def test_the_figures_are_such_as_one_program_has_and_less_is_better():
    found = outcomes([run("a", x=1.0)])
    assert len(PROGRAM_LEVEL) == 13
    for figure in PROGRAM_LEVEL:
        assert figure.lower_is_better
        assert value_of(found, figure.path) is not None
