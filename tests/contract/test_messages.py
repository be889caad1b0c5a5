"""What the client says reaches the scheduler; what is wrong in it does no harm."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine import vllm_messages as messages
from grape_lc.scheduler.types import Hint
from tests.contract.simulation import answer

PROMPT = list(range(100, 400))

names = st.none() | st.text(max_size=5)
seconds = st.none() | st.floats(0.001, 1e6)
hints = st.builds(
    Hint,
    program=names,
    flow=names.filter(lambda name: name != ""),
    task=names,
    tenant=st.text(max_size=5),
    depth=st.none() | st.integers(0, 99),
    after=st.lists(st.text(max_size=5), max_size=3).map(tuple),
    hops=st.integers(0, 9),
    source=names.filter(lambda name: name != ""),
    feeds=st.booleans(),
    ttft_s=seconds,
    tbt_s=seconds,
    deadline_s=seconds,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)


def sent(message):
    return json.loads(json.dumps(message))


@given(hints, names)
def test_a_hint_arrives_as_it_was_sent(hint, adopt):
    opened = messages.parse(sent(messages.open_prompt(hint)))
    assert isinstance(opened, messages.Open)
    assert opened.bad == ()
    assert opened.hint == Hint(**{**fields(hint), "feeds": False})
    call = messages.parse(sent(messages.call(adopt, hint)))
    assert isinstance(call, messages.Call)
    assert (call.adopt, call.bad) == (adopt, ())
    assert call.hint == Hint(**{**fields(hint), "hops": 0})


def fields(hint):
    return {name: getattr(hint, name) for name in Hint.__dataclass_fields__}


def test_an_append_arrives_as_it_was_sent():
    message = messages.append("key", 2, "draft", final=False)
    assert messages.parse(sent(message)) == messages.Append("key", 2, False, "draft")
    message = messages.append("key", 1, None, final=True)
    assert messages.parse(sent(message)) == messages.Append("key", 1, True, None)


@given(
    st.fixed_dictionaries(
        {"v": st.just(1), "op": st.sampled_from(["open", "call", "append", "sing"])},
        optional=dict.fromkeys(
            ("hops", "key", "final", "adopt", "feeds", "program", "task", "source"), anything
        )
        | {
            "hint": anything
            | st.dictionaries(
                st.sampled_from(["flow", "depth", "after", "ttft_s", "tenant", "spin"]), anything
            )
        },
    )
    | anything
)
def test_nothing_that_is_sent_raises(message):
    parsed = messages.parse(message)
    if isinstance(parsed, messages.Open | messages.Call):
        hint = parsed.hint
        assert hint.depth is None or float(hint.depth) >= 0
        assert hint.ttft_s is None or 0 < float(hint.ttft_s) < 1e10
        assert all(isinstance(name, str) for name in hint.after)


@pytest.mark.parametrize(
    ("hint", "bad"),
    [
        ({"depth": -1}, ("depth",)),
        ({"depth": True, "ttft_s": float("nan")}, ("depth", "ttft_s")),
        ({"tbt_s": 0, "deadline_s": 10**400}, ("tbt_s", "deadline_s")),
        ({"after": "ab", "flow": 3, "spin": 1}, ("after", "flow", "spin")),
        ([], ("hint",)),
    ],
)
def test_what_is_bad_in_a_hint_is_left_out_and_named(hint, bad):
    parsed = messages.parse({"v": 1, "op": "call", "program": "p", "hint": hint})
    assert parsed == messages.Call(None, Hint(program="p"), bad)


def test_a_bad_hint_is_counted_and_the_call_served(simulate):
    s = simulate()
    s.open("o", PROMPT[:60], program=7)
    s.idle()
    s.call("r", PROMPT[:80], adopt="o", hint={"depth": "deep"})
    s.idle()
    assert s.counters["malformed"] == 2
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 59}
    assert s.answers["r"] == answer(PROMPT[:80], 8)
