"""The fit: it finds F again, robustly, and its reported errors are those of unseen steps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grape_lc.engine.profile_cells import Step, cells_of, kind_of, steps_of
from grape_lc.engine.profile_fit import deal, errors_of, fit
from grape_lc.engine.profile_pace import paces
from grape_lc.engine.profile_regress import regress
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost, StepLoad

CPU = LinearCost(0.030, 0.0008, 0.004, 4e-6, 1e-6)
KNEE = LinearCost(0.012, 2e-5, 1e-6, 2e-8, 1e-10, ((256, 4e-5),))
# Small products use the machine less well than large ones.
BENT = LinearCost(0.100, 0.001, 0.006, 1e-5, 3e-6, ((32, -0.0025),))


def loads():
    draw = random.Random(3)
    for rows in (1, 2, 3, 4, 6, 8, 12, 16):
        for context in (32, 256, 1000):
            for more in range(10):
                yield StepLoad.of([(1, context + more)] * rows)
    for _ in range(3):
        for tokens in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768):
            for context in (0, 256, 992):
                yield StepLoad.of([(tokens, context)])
        for rows in (1, 2, 4, 8, 16):
            for tokens in (4, 16, 48, 96, 192):
                decodes = [(1, draw.randrange(1000)) for _ in range(rows)]
                yield StepLoad.of([*decodes, (tokens, draw.randrange(1000))])


def measured(machine, *, noise=0.0, outliers=0.0, seed=1):
    draw = random.Random(seed)
    steps = []
    for load in loads():
        seconds = machine.seconds(load) * draw.lognormvariate(0.0, noise)
        if draw.random() < outliers:
            seconds *= draw.uniform(2.0, 8.0)
        steps.append(Step(load, seconds))
    return steps


@pytest.mark.parametrize("machine", [CPU, KNEE, BENT])
def test_a_machine_without_noise_is_found_exactly(machine):
    found = fit(measured(machine))
    assert found.heldout.mape < 1e-5
    assert found.single.p95_error < 0.02, "contexts within a cell differ a little"
    assert found.cost.base == pytest.approx(machine.base, rel=1e-3)
    assert [knot for knot, _ in found.cost.hinges] == [knot for knot, _ in machine.hinges]


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([CPU, KNEE, BENT]))
def test_noise_and_outliers_hardly_bend_it(seed, machine):
    found = fit(measured(machine, noise=0.03, outliers=0.03, seed=seed), seed=seed)
    truth = [abs(found.cost.seconds(load) / machine.seconds(load) - 1) for load in loads()]
    assert errors_of(truth).mape < 0.025
    assert errors_of(truth).p95_error < 0.08


def test_errors_are_those_of_cells_that_the_fit_had_not_seen():
    cells = list(cells_of(measured(CPU, noise=0.1)).values())
    parts = deal(cells, random.Random(7))
    assert sorted(index for part in parts for index in part) == list(range(len(cells)))
    errors = []
    for part in parts:
        cost = regress([cells[index] for index in range(len(cells)) if index not in part])
        errors += [
            abs(cost.seconds(cells[index].load) / cells[index].seconds - 1)
            for index in part
            if len(cells[index].repeats) >= 3
        ]
    found = fit(measured(CPU, noise=0.1), seed=7)
    assert found.unpaced.mape == pytest.approx(errors_of(errors).mape)
    assert found.unpaced.p95_error == pytest.approx(errors_of(errors).p95_error)
    assert found.heldout.steps == sum(e.steps for e in found.by_kind.values())
    assert found.cells == len(cells)


def slowed(steps, *, every, times):
    """The same steps on a machine that is slow for ``every`` of them, then quick for as many."""
    return [
        Step(load, seconds * (times if index // every % 2 else 1.0))
        for index, (load, seconds) in enumerate(steps)
    ]


def shuffled(machine, **options):
    steps = measured(machine, **options)
    random.Random(5).shuffle(steps)
    return steps


@pytest.mark.parametrize("machine", [CPU, BENT])
def test_a_machine_that_is_slow_at_times_is_found_all_the_same(machine):
    found = fit(slowed(shuffled(machine, noise=0.03), every=50, times=1.6))
    assert found.heldout.mape < 0.05 < found.unpaced.mape
    assert found.slowest > 1.2
    shape = [found.cost.seconds(load) / machine.seconds(load) for load in loads()]
    assert max(shape) / min(shape) < 1.25, "all steps are off by about the same factor"


def test_what_f_cannot_tell_is_not_taken_for_the_machines_pace():
    # One load in ten takes twice what any F would say, whenever it runs.
    def odd(load):
        return kind_of(load)[2] % 10 == 0

    steps = [Step(load, s * (2.0 if odd(load) else 1.0)) for load, s in shuffled(CPU)]
    found = fit(steps)
    assert found.heldout.mape == pytest.approx(found.unpaced.mape, rel=0.25)
    assert found.heldout.p95_error > 0.3


def test_the_pace_of_a_step_is_that_of_other_steps_around_it():
    # Slow at first; and what F says of "a" is half of what it takes.
    kinds = ["a", "b", "c", "d"] * 30
    ratios = [
        (2.0 if kind == "a" else 1.0) * (1.5 if n < 40 else 1.0) for n, kind in enumerate(kinds)
    ]
    found = paces(ratios, kinds)
    assert found[12] == found[13] == pytest.approx(1.5)
    assert found[100] == found[101] == pytest.approx(1.0), "its own kind tells nothing"
    assert paces(ratios, kinds, unknown={"b", "c", "d"})[101] == pytest.approx(1.0), "at half F"
    assert paces([3.0, 5.0], ["a", "a"]) == [1.0, 1.0]
    assert paces([], []) == []


def test_every_part_has_its_share_of_every_kind():
    cells = list(cells_of(measured(CPU)).values())
    for part in deal(cells, random.Random(0)):
        counts = {"decode": 0, "prefill": 0, "mixed": 0}
        for index in part:
            counts[cells[index].kind] += 1
        for kind, count in counts.items():
            assert abs(count - sum(cell.kind == kind for cell in cells) / 4) <= 1


def test_repeats_of_a_step_make_a_cell():
    steps = [
        *(Step(StepLoad.of([(1, 500 + n)] * 2), 0.1 + 0.01 * n) for n in range(3)),
        Step(StepLoad.of([(1, 200)] * 2), 0.09),
        Step(StepLoad.of([(2, 500)]), 0.2),
    ]
    cells = {cell.load[:2]: cell for cell in cells_of(steps).values() if len(cell.repeats) != 1}
    assert list(cells) == [(2, 2)]
    cell = cells[2, 2]
    assert cell.seconds == pytest.approx(0.11)
    assert cell.load.kv_tokens == 1004
    assert cell.kind == "decode"
    assert len(cells_of(steps)) == 3


def test_the_same_seed_gives_the_same_profile():
    steps = measured(CPU, noise=0.05)
    assert fit(steps, seed=3) == fit(steps, seed=3)
    assert fit(steps, seed=3).heldout != fit(steps, seed=4).heldout
    assert fit(steps, seed=3).cost == fit(steps, seed=4).cost, "F is fitted to all of them"


def test_medians_of_repeats_have_less_error_than_single_steps():
    steps = [step for seed in range(6) for step in measured(CPU, noise=0.15, seed=seed)]
    found = fit(steps)
    assert found.heldout.mape < 0.7 * found.single.mape
    assert found.single.steps > found.heldout.steps


def test_time_that_falls_with_the_work_is_not_believed():
    # A machine on which contexts seem to save time: their price is held at zero.
    steps = [Step(step.load, 1.0 / (1 + step.load.kv_tokens)) for step in measured(CPU)]
    cost = regress(list(cells_of(steps).values()))
    assert cost.per_kv == 0.0
    assert cost.base > 0.0


def test_too_little_is_refused():
    with pytest.raises(ConfigError, match="at least 24"):
        fit(measured(CPU)[:30])
    once = {step.load: step for step in measured(CPU) if step.load.rows == 1}
    with pytest.raises(ConfigError, match="3 times"):
        fit([step for step in once.values() if step.load.tokens > 1])


def test_rows_of_the_engine_become_steps():
    rows = [[2.0, 9.0, 300.0, 12.5, 0.04], [1.0, 1.0, 10.0, 0.0, 0.0]]
    assert steps_of(rows) == [Step(StepLoad(2, 9, 300, 12.5), 0.04)]


def test_a_profile_is_plain_values():
    found = fit(measured(CPU, noise=0.05))
    mapping = found.to_mapping()
    assert LinearCost.from_mapping(mapping["coefficients"]) == found.cost
    assert mapping["heldout"]["mape"] == found.heldout.mape
    assert mapping["heldout"]["p95_error"] == found.heldout.p95_error
