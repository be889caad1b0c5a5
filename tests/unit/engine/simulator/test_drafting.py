from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.simulator.arrivals import Closed, Given
from grape_lc.engine.simulator.drafting import NO_MATCH, Drafting
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PolicyConfig
from tests.unit.engine.simulator.scenes import Scene, chain, plain

ONE = chain(1, static=20, own=10, answer=40, spread=0.0)
ALONE = Given((0.0,))
COPY = Drafting(4, copy_rate=1.0, run=1e6, accident=0.0)  # one run, as long as the answer


def share(drafting: Drafting, answers: int = 400, answer: int = 200) -> float:
    """Drafted tokens that are right where a step begins at every place, by all places."""
    found = [drafting.matches(answer, str(number)) for number in range(answers)]
    return sum(place != NO_MATCH and place > 0 for one in found for place in one) / (
        answers * answer
    )


def test_a_draft_is_right_up_to_the_end_of_the_copy():
    found = COPY.matches(9, "x")
    assert found == bytes([NO_MATCH, NO_MATCH, 4, 4, 4, 4, 3, 2, 1])


def test_behind_a_copy_the_draft_is_wrong():
    found = Drafting(3, copy_rate=0.5, run=8.0, accident=0.0).matches(4000, "x")
    # A place with one right token left is followed by the end of the run.
    ends = [place for place in range(3999) if found[place] == 1]
    assert len(ends) > 50
    assert all(found[place + 1] == 0 for place in ends)


@pytest.mark.parametrize("copy_rate", [0.0, 0.3, 0.7])
def test_the_share_of_copied_tokens_is_as_asked(copy_rate):
    drafting = Drafting(4, least=1, copy_rate=copy_rate, run=16.0, accident=0.0)
    # Of a run all tokens but the first are drafted where ``least`` is 1.
    assert share(drafting) == pytest.approx(copy_rate * 15 / 16, abs=0.02)


def test_accidents_are_wrong_and_as_frequent_as_asked():
    found = Drafting(4, copy_rate=0.0, accident=0.25).matches(4000, "x")
    assert set(found) == {0, NO_MATCH}
    assert found.count(0) == pytest.approx(1000, rel=0.1)


@given(
    st.integers(1, 60),
    st.builds(
        Drafting,
        st.integers(1, 8),
        st.integers(1, 4),
        copy_rate=st.floats(0, 1),
        run=st.floats(1, 20),
        accident=st.floats(0, 1),
    ),
)
def test_no_draft_is_right_beyond_the_answer(answer, drafting):
    found = drafting.matches(answer, "x")
    assert found == drafting.matches(answer, "x")
    assert len(found) == answer
    for place, right in enumerate(found):
        assert right == NO_MATCH or right <= min(drafting.tokens, answer - place)


def test_what_cannot_be_drafted_is_refused():
    with pytest.raises(ConfigError, match="1 to 254 tokens"):
        Drafting(0)
    with pytest.raises(ConfigError, match="shares of an answer"):
        Drafting(copy_rate=1.1)


def test_a_copied_answer_takes_fewer_steps_and_has_the_same_length():
    slow = Scene(ONE, plain(), ALONE, programs=1, ahead=False).simulate()
    fast = Scene(ONE, plain(), ALONE, programs=1, ahead=False, drafting=COPY).simulate()
    assert slow.statistics.output_tokens == fast.statistics.output_tokens == 40
    # One token from the prefill, one without a match, then five a step: 2 + 38 / 5.
    assert (len(slow.records), len(fast.records)) == (40, 10)
    drafts = [record for record in fast.records if record.ran == {"p0/task_0": 5}]
    assert len(drafts) == 8
    load = drafts[0].load
    assert load is not None
    assert (load.rows, load.tokens) == (1, 5)
    assert fast.statistics.program.max < slow.statistics.program.max / 2


def test_wrong_drafts_cost_time_and_no_tokens():
    wrong = Drafting(4, copy_rate=0.0, accident=1.0)
    plainly = Scene(ONE, plain(), ALONE, programs=1, ahead=False).simulate()
    drafted = Scene(ONE, plain(), ALONE, programs=1, ahead=False, drafting=wrong).simulate()
    assert len(drafted.records) == len(plainly.records)
    assert drafted.statistics.accepted_tokens == 0
    assert drafted.statistics.drafted_tokens == 39 * 4
    assert drafted.statistics.busy_s > plainly.statistics.busy_s


def test_the_policy_sees_drafts_in_its_budget():
    scene = Scene(ONE, PolicyConfig(), Closed(4), programs=8, drafting=COPY)
    decodes = [record.snapshot["decodes"] for record in scene.simulate().records]
    rows = [(each.get("rows", 0), each.get("tokens", 0)) for each in decodes]
    assert (4, 20) in rows, rows


def test_what_is_drafted_is_not_in_the_cache_before_it_is_right():
    wrong = Drafting(6, copy_rate=0.0, accident=1.0)
    # Two calls with the same prompt: what one publishes the other may hit.
    outcome = Scene(ONE, plain(), Given((0.0, 5.0)), programs=2, ahead=False, drafting=wrong)
    cached = outcome.simulate().statistics.cached_tokens
    assert (
        cached
        == Scene(ONE, plain(), Given((0.0, 5.0)), programs=2, ahead=False)
        .simulate()
        .statistics.cached_tokens
    )


def test_preempted_calls_lose_their_drafts_and_end_all_the_same():
    scene = Scene(
        ONE, plain(), Given((0.0, 0.0, 0.1)), programs=3, blocks=36, ahead=False, drafting=COPY
    )
    outcome = scene.simulate()
    assert outcome.statistics.preemptions > 0
    assert outcome.statistics.output_tokens == 120
