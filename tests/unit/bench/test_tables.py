import pytest

from grape_lc.bench.compare import Comparison
from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord
from grape_lc.bench.server import ArmRun
from grape_lc.bench.slo import Slo
from grape_lc.bench.tables import (
    figures_table,
    gains_against,
    gains_table,
    programs_table,
    unsteady,
    verdicts,
)
from tests.unit.bench.fakes import console, printed


def run(arm: str, repeat: int, step_s: float) -> ArmRun:
    """Two calls of ten tokens, one every ``step_s``; the second is made with the last token."""
    tokens = [tuple((step_s * (10 * call + n + 1), 1) for n in range(10)) for call in (0, 1)]
    calls = (
        CallRecord(1, "plan", 0.0, tokens[0], "a"),
        CallRecord(2, "code", 10 * step_s, tokens[1], "b" if arm != "odd" else "c"),
    )
    record = RunRecord(arm, (ProgramRecord("p", 0.0, 20 * step_s, calls),))
    return ArmRun(arm, repeat, 1, record, {"preemptions": repeat})


def comparison(steps: dict[str, list[float]]) -> Comparison:
    runs = [run(arm, n, s) for arm, all_s in steps.items() for n, s in enumerate(all_s, start=1)]
    return Comparison(tuple(steps), tuple(runs), {})


def test_an_arm_that_is_always_twice_as_fast_is_better_in_everything():
    got = comparison({"base": [0.02, 0.04, 0.03], "fast": [0.01, 0.02, 0.015]})
    gains = gains_against(got, "base")
    for gain in gains["fast"]:
        assert gain.ratio is not None
        assert (gain.ratio.low, gain.ratio.ratio, gain.ratio.high) == pytest.approx((2, 2, 2))
        assert gain.ratio.pairs == 3
    count = len(gains["fast"])
    assert verdicts(gains, "base")[0] == (
        f"fast against base: better in {count} figures, worse in 0, no difference shown in 0"
    )


def test_losses_are_counted_and_printed_like_gains():
    got = comparison({"base": [0.01] * 6, "slow": [0.02] * 6, "same": [0.01] * 6})
    gains = gains_against(got, "base")
    count = len(gains["slow"])
    assert verdicts(gains, "base") == [
        f"slow against base: better in 0 figures, worse in {count}, no difference shown in 0",
        f"same against base: better in 0 figures, worse in 0, no difference shown in {count}",
    ]
    to = console()
    to.print(gains_table(gains, "base"))
    text = printed(to)
    assert text.count("0.500 [0.500, 0.500]") == count
    assert text.count("1.000 [1.000, 1.000]") == count


def test_pairs_are_of_the_same_repeat():
    # The base varies sixfold between repeats; paired, the arm is a tenth slower in each.
    base = [0.01, 0.06, 0.03]
    got = comparison({"base": base, "arm": [1.1 * step for step in base]})
    ratio = gains_against(got, "base")["arm"][0].ratio
    assert ratio is not None
    assert ratio.low == pytest.approx(1 / 1.1)
    assert ratio.shown


def test_a_repeat_without_its_other_half_counts_for_no_ratio():
    got = comparison({"base": [0.01, 0.02], "arm": [0.02]})
    (line, note) = verdicts(gains_against(got, "base"), "base")
    assert line.startswith("arm against base: better in 0 figures, worse in 0, no difference")
    assert note.startswith("n = 1: ")


def test_the_table_of_figures_tells_counters_runs_and_equal_answers():
    got = comparison({"base": [0.01, 0.01], "odd": [0.01, 0.01]})
    to = console()
    to.print(figures_table(got, "title"))
    lines = {line[1:].split("│")[0].strip(): line for line in printed(to).splitlines()}
    assert "4 of 4" in lines["answers equal to base"]
    assert "2 of 4" in lines["answers equal to base"]
    assert lines["preemptions"].count("3") == 2
    assert lines["early tokens dropped, to recompute"].count("-") == 2
    assert lines["runs"].count("2") == 2


def test_the_table_tells_bytes_as_what_they_are():
    runs = [run("a", 1, 0.01)._replace(counters={"peak_kv_bytes": 3.0 * 2**20, "tool_calls": 4})]
    runs[0] = runs[0]._replace(counters={**runs[0].counters, "tool_duplicates": 1})
    to = console()
    to.print(figures_table(Comparison(("a",), tuple(runs), {"a": {"devices": 1}}), "title"))
    lines = {line[1:].split("│")[0].strip(): line for line in printed(to).splitlines()}
    assert "3.0 MiB" in lines["KV in use, peak"]
    assert "0.250" in lines["duplicate tool calls (share)"]
    assert "1 of 4" in lines["tool calls that repeat another"]
    assert "0.20" in lines["device seconds for each success"]
    assert "MFU (share)" not in lines


def test_programs_have_a_table_of_their_own():
    got = comparison({"base": [0.02, 0.04], "fast": [0.01, 0.02], "half": [0.04, 0.08]})
    gains = gains_against(got, "base")
    to = console()
    to.print(programs_table(gains, "base"))
    text = printed(to)
    rows = [gain.figure.title for gain in gains["fast"] if gain.programs is not None]
    assert text.count("2.000 [2.000, 2.000]") == len(rows) == text.count("0.500 [0.500, 0.500]")
    assert "agentic ITL, p99 (ms)" in rows
    assert "makespan" not in text
    (pairs,) = [line for line in text.splitlines() if "pairs (n)" in line]
    assert pairs.count("2") == 2


def test_figures_that_vary_between_repeats_are_named():
    lines = unsteady(comparison({"calm": [0.02, 0.0201, 0.0199], "wild": [0.01, 0.02, 0.03]}))
    (line,) = lines
    head = "wild varies between repeats by more than 10% (CV): output tokens per second 57%, "
    assert line.startswith(head)
    assert line.count("50%") == 3
    assert line.endswith(" more")
    assert unsteady(comparison({"once": [0.01]})) == []


def test_repeats_in_which_an_arm_met_nothing_or_failed_count_against_it():
    # Of the arm's three repeats one is quick, one too slow for the target, and one failed.
    base = [run("base", n, 0.01) for n in (1, 2, 3)]
    failed = ArmRun("arm", 3, 1, None, {}, "EngineDiedError: gone", offered=1)
    arms = [run("arm", 1, 0.01), run("arm", 2, 0.02), failed]
    got = Comparison(("base", "arm"), (*base, *arms), {}, Slo(program=250))
    gains = {gain.key: gain.ratio for gain in gains_against(got, "base")["arm"]}
    for key in ("goodput.strict_share", "goodput.strict_per_s"):
        ratio = gains[key]
        assert ratio is not None
        assert ratio.ratio == pytest.approx(1 / 3)
        assert ratio.pairs == 3
        assert ratio.low == 0.0
    speed = gains["tokens_per_s"]
    assert speed is not None
    assert speed.pairs == 2  # a failed run has no speed
