"""What calls are expected to decode, and what that takes."""

from __future__ import annotations

import pytest

from grape_lc.scheduler.controller import KnownCost
from grape_lc.scheduler.cost import LinearCost, StepLoad
from grape_lc.scheduler.types import NO_SLACK_S, Hint, Limit, Stage
from tests.unit.scheduler.controllers import (
    CONFIG,
    MACHINE,
    arrive,
    controller,
    end,
    teach,
)
from tests.unit.scheduler.factories import (
    BLOCK,
    make_decode,
    make_open,
    make_prefill,
    make_view,
)

# ------------------------------------------------------------------ lengths


def test_lengths_of_a_task_tell_what_the_next_call_needs():
    engine = controller()
    before = arrive(engine, "c1", flow="flow", task="plan", tokens=64, max_output=1000)
    assert before.remaining is None
    assert before.end_blocks == (64 + CONFIG.horizon) // BLOCK
    teach(engine, 31)
    after = arrive(engine, "c2", flow="flow", task="plan", tokens=64, max_output=1000)
    assert (after.remaining, after.sure) == (31.0, 31.0)
    assert after.end_blocks == (64 + 32) // BLOCK
    other = arrive(engine, "c3", flow="flow", task="write", tokens=64, max_output=1000)
    assert other.remaining is None


def test_no_more_is_expected_than_the_limit_allows():
    engine = controller()
    teach(engine, 31)
    view = arrive(engine, "c1", flow="flow", task="plan", tokens=64, max_output=5)
    assert view.remaining == 5.0
    assert view.end_blocks == 5
    unknown = arrive(engine, "c2", tokens=64, max_output=5)
    assert unknown.end_blocks == 5


def test_calls_that_were_cancelled_teach_no_length():
    engine = controller()
    for number in range(5):
        view = arrive(engine, f"c{number}", flow="flow", task="plan")
        end(engine, view, 1.0, 7, complete=False)
    assert arrive(engine, "c9", flow="flow", task="plan").remaining is None


def test_a_length_that_was_a_limit_is_told_from_one_that_was_not():
    engine = controller()
    for number in range(8):
        view = arrive(engine, f"c{number}", flow="flow", task="plan", max_output=30)
        end(engine, view, 1.0, 30, limited=True)
    view = arrive(engine, "c9", flow="flow", task="plan", max_output=90)
    assert view.remaining == 90.0


def test_what_is_left_shrinks_while_a_call_decodes():
    engine = controller()
    teach(engine, 64)
    view = make_decode(
        "d1", flow="flow", task="plan", tokens=160, output=48, max_output=1000, end_blocks=99
    )
    engine.look(0.0, MACHINE, [view])
    assert view.remaining == 16.0
    assert view.end_blocks == -(-(160 + 17) // BLOCK)


def test_a_decoding_call_is_looked_up_now_and_then_only():
    engine = controller()
    teach(engine, 64)
    view = make_decode("d1", flow="flow", task="plan", output=47, end_blocks=99)
    engine.look(0.0, MACHINE, [view])
    assert view.end_blocks == 99


def test_a_call_that_starts_is_looked_up_again():
    """It may have waited for long; then its prompt is computed without another look."""
    engine = controller()
    view = arrive(engine, flow="flow", task="plan", tokens=64, max_output=1000)
    teach(engine, 31)
    engine.call_started(view, Stage.PREFILL)
    assert (view.remaining, view.end_blocks) == (31.0, 6)
    teach(engine, 300)
    engine.look(0.0, MACHINE, [view])
    assert view.end_blocks == 6
    unknown = make_prefill("p7", end_blocks=0, tokens=64)
    engine.look(0.0, MACHINE, [unknown])
    assert unknown.end_blocks == 4 + -(-100 // BLOCK), "it began as the driver pleased"


def test_an_open_prompt_that_could_not_run_is_not_looked_up():
    engine = controller(CONFIG.but(chunk=8))
    teach(engine, 40, task="plan")
    source = arrive(engine, "c1", program="p", flow="flow", task="plan", max_output=100)
    engine.call_started(source, Stage.DECODE)
    prompt = make_open("o2", program="p", source="plan", tokens=108, computed=100)
    engine.opened(prompt)

    def expected(*running):
        prompt.remaining = 9.0
        engine.look(0.0, MACHINE, running)
        return prompt.remaining

    assert expected(source) == 9.0
    assert expected() == 40.0, "in an idle engine it could"
    prompt.tokens += 1
    assert expected(source) == 40.0
    prompt.computed, prompt.final = 107, True
    assert expected(source) == 40.0
    end(engine, source, 1.0)
    assert expected(make_decode()) is None


def test_an_open_prompt_waits_for_the_call_of_its_source():
    engine = controller()
    teach(engine, 40, task="plan")
    source = arrive(engine, "c1", program="p", flow="flow", task="plan", max_output=100)
    engine.call_started(source, Stage.DECODE)
    source.output = 10
    prompt = make_open("o2", program="p", source="plan")
    stranger = make_open("o3", program="q", source="plan", remaining=3.0, sure=3.0)
    far = make_open("o4", program="p", source="plan", hops=2)
    for view in (prompt, stranger, far):
        engine.opened(view)
    engine.look(0.0, MACHINE, [source])
    assert (prompt.remaining, prompt.sure) == (30.0, 30.0)
    assert (stranger.remaining, stranger.sure) == (None, None)
    assert far.remaining is None
    end(engine, source, 1.0, 40)
    engine.look(0.0, MACHINE, [])
    assert prompt.remaining is None


def test_a_task_that_is_called_again_is_a_new_source():
    engine = controller()
    teach(engine, 40, task="plan")
    first = arrive(engine, "c1", program="p", flow="flow", task="plan")
    second = arrive(engine, "c2", program="p", flow="flow", task="plan")
    prompt = make_open("o3", program="p", source="plan")
    engine.opened(prompt)
    second.output = 30
    engine.call_ended(first, 1.0, complete=False, limited=False)
    engine.look(0.0, MACHINE, [])
    assert prompt.remaining == 10.0


def test_the_way_to_the_end_of_a_program_in_seconds():
    engine = controller()
    teach(engine, 20, task="plan")
    teach(engine, 30, task="write")
    for _ in range(200):
        engine.measured(StepLoad(), 0.1)
    view = arrive(engine, "c1", flow="flow", task="plan", after=("write", "unheard of"))
    assert view.path_s == pytest.approx(5.0)
    assert arrive(engine, "c2", flow="flow").path_s == 0.0


# ------------------------------------------------------------------ what running calls take


def test_decodes_are_summed_up():
    engine = controller(groups=2)
    decodes = [
        make_decode("d1", tokens=33, end_blocks=5, remaining=20.0),
        make_decode("d2", tokens=40, end_blocks=4, step_tokens=3),
    ]
    prefill = make_prefill("p3", tokens=200, output=1, end_blocks=20)
    snapshot = engine.look(0.0, MACHINE, [*decodes, prefill])
    assert snapshot.decodes == (2, 1 + 3, 32 + 39, 2 * (1 + 0), None)
    assert snapshot.prefills == (prefill,)
    # Two blocks of 5, three of 4, and seven of 20 are there.
    assert snapshot.pool.growth == 2 * (3 + 1 + 13)


def test_the_tightest_target_counts():
    engine = controller()
    decodes = [make_decode(f"d{n}", last_token=10.0 - n / 10) for n in (1, 2, 3)]
    decodes[0].tbt_s, decodes[1].tbt_s = 0.6, 0.5
    assert engine.look(10.0, MACHINE, decodes).decodes.slack_s == pytest.approx(0.3)
    assert engine.look(10.0, MACHINE, decodes[2:]).decodes.slack_s is None
    first = make_decode("d4")
    first.tbt_s = 0.4
    assert engine.look(10.0, MACHINE, [first]).decodes.slack_s == 0.4


def test_a_target_that_no_step_can_keep_sets_no_limit():
    """Or prefill would get a chunk a step for nothing."""
    cost = LinearCost(0.061, per_token=0.002)
    engine = controller(costs=KnownCost(cost))
    tight, wide = make_decode("d1", last_token=9.99), make_decode("d2", last_token=9.99)
    tight.tbt_s, wide.tbt_s = 0.06, 0.5
    engine.decide(10.0, MACHINE, [tight, wide])
    assert engine.look(10.0, MACHINE, [tight, wide]).decodes.slack_s == pytest.approx(0.49)
    # But gaps matter: a step is not as long as the engine makes it.
    assert engine.look(10.0, MACHINE, [tight]).decodes.slack_s == NO_SLACK_S
    prompt = make_prefill("p1", tokens=2000)
    engine.measures._spikes = 0.0
    assert engine.decide(10.0, MACHINE, [tight, prompt]).limit is Limit.STRETCH
    tight.tbt_s = 0.07
    assert engine.look(10.0, MACHINE, [tight]).decodes.slack_s == pytest.approx(0.06)


def test_targets_of_the_client_go_before_those_of_the_settings():
    engine = controller(CONFIG.but(tbt_s=0.2))
    named = make_view("c2")
    named.hint = Hint(tbt_s=0.5)
    engine.call_arrived(named, 0.0)
    assert named.tbt_s == 0.5
    assert arrive(engine, "c1").tbt_s == 0.2
    assert arrive(controller(), "c1").tbt_s is None


def test_kv_is_looked_at_closely_only_when_it_may_run_short():
    engine = controller(CONFIG.but(open_cap=64))
    running = [make_decode()]
    assert engine.short(5, 1)
    assert not engine.short(6, 1)
    assert engine.look(0.0, MACHINE._replace(free=6), running).running == ()
    assert engine.look(0.0, MACHINE._replace(free=5), running).running == running
    engine.dropped(make_open())
    assert engine.short(1000, 1)
