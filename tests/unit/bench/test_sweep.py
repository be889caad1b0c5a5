import pytest

from grape_lc.bench.arms import Tuning
from grape_lc.bench.metrics import CallRecord, Metrics, ProgramRecord, RunRecord, measure
from grape_lc.bench.sweep import RULE, Choice, Trial, choose, order_arms, sweep_arm, sweep_table
from grape_lc.errors import EngineError
from tests.unit.bench.fakes import console, printed


def figures(speed: float, p99: float, p95: float = 50.0, mean: float = 20.0) -> Metrics:
    """Figures of a run of one token at one second, with these in their place."""
    call = CallRecord(1, "t", 0.0, ((1.0, 1),))
    metrics = measure([RunRecord("a", (ProgramRecord("p", 0.0, 1.0, (call,)),))])
    spread = metrics["agentic_itl_ms"]
    spread["p99"], spread["p95"], spread["mean"] = p99, p95, mean
    metrics["tokens_per_s"] = speed
    return metrics


def test_the_lowest_p99_among_the_fast_ones_wins():
    trials = [
        Trial(48, figures(90.0, 10.0)),  # too slow, however short its tail
        Trial(64, figures(98.0, 30.0, p95=60.0)),
        Trial(128, figures(99.0, 20.0, mean=21.0)),
        Trial(None, figures(100.0, 90.0, p95=25.0, mean=19.0)),
    ]
    choice = choose(trials)
    assert [trial.budget for trial in choice] == [128, None, None]
    record = {"rule": RULE, "best": 128, "by_p95": None, "by_mean": None, "order": "stage"}
    assert choice.to_record() == record
    assert "takes max_num_batched_tokens = 128" in str(choice)
    assert "by P95 it would be default, by the mean default" in str(choice)


def test_exactly_the_kept_share_is_enough():
    trials = [Trial(64, figures(98.0, 1.0)), Trial(128, figures(100.0, 2.0))]
    assert choose(trials).best.budget == 64


def test_ties_go_to_the_faster_then_to_the_larger_budget():
    alike = figures(100.0, 5.0)
    faster = figures(101.0, 5.0)
    assert choose([Trial(64, alike), Trial(128, alike)]).best.budget == 128
    assert choose([Trial(None, alike), Trial(128, alike)]).best.budget is None
    assert choose([Trial(64, faster), Trial(128, alike)]).best.budget == 64


def test_another_order_of_calls_is_taken_if_it_is_better():
    by_stage, better = Trial(64, figures(100.0, 5.0)), Trial(64, figures(100.0, 4.0), "program")
    choice = choose([by_stage, better])
    assert choice.tuning == Tuning(64, "program")
    assert choice.to_record()["order"] == "program"
    assert "max_num_batched_tokens = 64, by program" in str(choice)
    alike = Trial(64, figures(100.0, 5.0), "program")
    assert choose([alike, by_stage]).tuning == Tuning(64, "stage")


def test_the_other_orders_are_tried_at_a_budget():
    (arm,) = order_arms(96)
    assert arm.tuning == Tuning(96, "program")
    assert order_arms(None)[0].name == arm.name
    assert order_arms(None)[0].budget is None


def test_budgets_without_figures_are_passed_over_and_none_at_all_is_an_error():
    nothing = Trial(32, measure([]))
    assert choose([nothing, Trial(64, figures(1.0, 5.0))]).best.budget == 64
    with pytest.raises(EngineError, match="no budget of the sweep was measured"):
        choose([nothing])


def test_the_table_has_every_budget_and_marks_the_chosen_one():
    trials = [Trial(64, figures(100.0, 5.0)), Trial(None, figures(100.0, 9.0))]
    to = console()
    to.print(sweep_table(trials, Choice(trials[0], trials[0], trials[1])))
    assert "64 *" in printed(to)
    assert "default " in printed(to)


def test_a_budget_of_the_sweep_is_an_arm():
    assert sweep_arm(64).budget == 64
    assert sweep_arm("default").budget is None
    assert sweep_arm(64).ranked
