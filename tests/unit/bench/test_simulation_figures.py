"""What the simulator counts on the way is what the bench measures afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from grape_lc.bench.costs import useful_work
from grape_lc.bench.metrics import CallRecord, ProgramRecord, RunRecord, measure
from grape_lc.engine.simulator.runs import Run
from tests.unit.engine.simulator.scenes import scenes


def recorded(runs: list[tuple[Run, float]]) -> RunRecord:
    """Runs whose token times were kept, as the bench would have recorded them."""
    programs = []
    for run, now in runs:
        assert run.history is not None
        calls = []
        for number, call in enumerate(run.history):
            assert call.times is not None
            calls.append(
                CallRecord(
                    number,
                    run.program.tasks[call.place].name,
                    call.made,
                    tuple((at, 1) for at in call.times),
                    prompt_tokens=run.program.tasks[call.place].prompt,
                    cached_tokens=call.request.begun or 0,
                )
            )
        programs.append(ProgramRecord(run.name, run.arrived, now, tuple(calls)))
    return RunRecord("simulated", tuple(programs))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(scenes)
def test_streamed_figures_are_those_of_the_bench(scene):
    outcome = scene.simulate(keep=True)
    ours, theirs = outcome.statistics.figures(), measure([recorded(outcome.runs)])

    def same(name: str, kind: str, rel: float) -> None:
        exact = theirs[name][kind]  # type: ignore[literal-required]
        if exact is None:
            assert ours[name][kind] is None
        else:
            assert ours[name][kind] == pytest.approx(exact, rel=rel, abs=2e-3), (name, kind)

    for name in ("agentic_itl_ms", "switch_gap_ms", "ttft_ms", "program_s"):
        same(name, "mean", 1e-9)
        same(name, "p95", 0.0051)
    for name in ("agentic_itl_ms", "switch_gap_ms"):
        same(name, "max", 1e-9)
    same("agentic_itl_ms", "p50", 0.0051)
    same("agentic_itl_ms", "p99", 0.0051)
    assert ours["makespan_s"] == pytest.approx(theirs["makespan_s"])
    assert ours["tokens_per_s"] == pytest.approx(theirs["tokens_per_s"])


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(scenes)
def test_useful_work_is_that_of_the_bench(scene):
    # What calls take over the bench can only share out; without open prompts both are exact.
    outcome = replace(scene, ahead=False).simulate(keep=True)
    ours, theirs = outcome.statistics, useful_work([recorded(outcome.runs)], 0)
    assert (ours.useful_tokens, ours.useful_contexts, ours.output_tokens) == theirs
    again = ours.recomputed_tokens + ours.drafted_tokens - ours.accepted_tokens
    assert ours.computed_tokens <= ours.useful_tokens + again


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(scenes)
def test_no_token_is_useful_twice(scene):
    counted = scene.simulate().statistics
    assert counted.useful_tokens <= counted.computed_tokens - counted.wasted_tokens
    assert counted.useful_tokens <= counted.prompt_tokens + counted.output_tokens
