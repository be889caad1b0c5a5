"""Tenants on one engine, told apart by ``cache_salt``: what one tries to learn of another's KV.

What a call finds computed is what its time to the first token tells, so the tests count it.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm.config import SpeculativeConfig

from tests.contract.simulation import BLOCK, KINDS, Simulation, answer, write_model_config

PROMPT = list(range(100, 400))
NEVER_WAS = {"outcome": "unknown", "tokens": 0}


class Costs:
    """What requests of a simulation found, and what was computed for them, in tokens."""

    def __init__(self, simulation: Simulation) -> None:
        self.found: dict[str, int] = {}
        self.computed: Counter[str] = Counter()
        scheduler = simulation.scheduler
        schedule, update = scheduler.schedule, scheduler.update_from_output

        def counted() -> Any:
            planned = schedule()
            self.computed.update(planned.num_scheduled_tokens)
            return planned

        def noted(*args: Any) -> Any:
            outputs = update(*args)
            for output in (one for some in outputs.values() for one in some.outputs):
                if output.prefill_stats is not None:
                    self.found[output.request_id] = output.prefill_stats.num_cached_tokens
            return outputs

        scheduler.schedule, scheduler.update_from_output = counted, noted


def opened(s: Simulation, key: str, prompt: list[int], salt: str | None) -> None:
    s.opened.add(key)
    s.add(key, prompt, {"op": "open", "hops": 1}, cache_salt=salt)


def ask(s: Simulation, name: str, prompt: list[int], salt: str | None, key: str | None) -> None:
    s.add(name, prompt, {"op": "call", "adopt": key}, cache_salt=salt)
    s.idle()
    assert s.answers[name] == answer(prompt, 8)


def test_a_prompt_is_found_by_its_own_tenant_only(simulate):
    s = simulate()
    costs = Costs(s)
    for name, salt in (("a1", "A"), ("b1", "B"), ("n1", None)):
        s.plain(name, PROMPT[:100], cache_salt=salt)
        s.idle()
        assert costs.found[name] == 0
        assert costs.computed[name] >= 100
    for name, salt in (("a2", "A"), ("b2", "B"), ("n2", None)):
        s.plain(name, PROMPT[:100], cache_salt=salt)
        s.idle()
        assert costs.found[name] == 100 // BLOCK * BLOCK
    assert len({tuple(s.answers[name]) for name in s.answers}) == 1


@pytest.mark.parametrize("other", ["B", None])
def test_an_open_prompt_is_there_for_its_own_tenant_only(simulate, other):
    s = simulate()
    costs = Costs(s)
    opened(s, "o", PROMPT[:60], "A")
    s.idle()
    ask(s, "spy", PROMPT[:80], other, "o")
    ask(s, "blind", PROMPT[:80], "C", "never-was")
    assert s.outcomes["spy"] == s.outcomes["blind"] == NEVER_WAS
    assert (costs.found["spy"], costs.found["blind"]) == (0, 0)
    assert costs.computed["spy"] == costs.computed["blind"]
    assert s.computed("o") == 59, "still there"
    ask(s, "own", PROMPT[:80], "A", "o")
    assert s.outcomes["own"] == {"outcome": "adopted", "tokens": 59}
    assert costs.found["own"] == 59


def test_nobodys_open_prompt_is_not_there_for_a_tenant(simulate):
    s = simulate()
    opened(s, "o", PROMPT[:60], None)
    s.idle()
    ask(s, "spy", PROMPT[:80], "A", "o")
    assert s.outcomes["spy"] == NEVER_WAS
    ask(s, "own", PROMPT[:80], None, "o")
    assert s.outcomes["own"] == {"outcome": "adopted", "tokens": 59}


def test_how_an_open_prompt_ended_is_told_to_its_own_tenant_only(simulate):
    s = simulate(settings={"ttl_s": 5.0})
    for key in ("taken", "late"):
        opened(s, key, PROMPT[:60], "A")
    s.idle()
    ask(s, "own", PROMPT[:80], "A", "taken")
    s.clock.now += 10
    s.plain("anything", [7] * 20)
    s.idle()
    assert s.counters["expired"] == 1
    for key in ("taken", "late"):
        ask(s, f"{key}-spy", PROMPT[:80], "B", key)
        assert s.outcomes[f"{key}-spy"] == NEVER_WAS
        ask(s, f"{key}-own", PROMPT[:80], "A", key)
        assert s.outcomes[f"{key}-own"]["outcome"].startswith("refused:")


def test_nobody_else_can_append(simulate):
    s = simulate()
    opened(s, "o", PROMPT[:60], "A")
    s.idle()
    s.add("more", [7] * 20, {"op": "append", "key": "o"}, cache_salt="B")
    s.idle()
    assert s.computed("o") == 59
    assert s.counters["unknown"] == 1
    s.add("own", PROMPT[60:70], {"op": "append", "key": "o"}, cache_salt="A")
    s.idle()
    ask(s, "r", PROMPT[:80], "A", "o")
    assert s.outcomes["r"] == {"outcome": "adopted", "tokens": 69}


def test_an_open_prompt_claims_its_own_tenants_blocks_only(simulate):
    s = simulate()
    costs = Costs(s)
    s.plain("b", PROMPT[:96], cache_salt="B")
    s.idle()
    opened(s, "o", PROMPT[:81], "A")
    s.idle()
    assert costs.computed["o"] == 80
    opened(s, "p", PROMPT[:81], "B")
    s.idle()
    assert (s.computed("p"), costs.computed["p"]) == (80, 0)


def test_tenants_with_their_own_caches_still_take_turns(simulate):
    s = simulate(rows=1)
    s.call("busy", [3] * 40, n=30)
    for _ in range(4):
        s.step()
    for tenant in "ab":
        for number in range(3):
            message = {"op": "call", "adopt": None, "hint": {"tenant": tenant}}
            s.add(f"{tenant}{number}", PROMPT[: 40 + number], message, cache_salt=tenant)
    order: list[str] = []
    while len(s.finished) < 7:
        s.step()
        order += [r.request_id for r in s.scheduler.running if r.request_id not in order]
    assert [name[0] for name in order[1:]] == ["a", "b"] * 3


def test_what_would_mix_tenants_has_its_name():
    """See ``grape_lc.engine.salts.what_mixes_tenants``."""
    names = {field.name for field in dataclasses.fields(SpeculativeConfig)}
    assert names >= {"method", "suffix_decoding_max_cached_requests"}


# -- any order ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        yield write_model_config(Path(directory))


SALTS = ("A", "B", None)
salts = st.sampled_from(SALTS)
# Few different prompts, which share their beginnings, so that tenants ask the same.
prompts = st.tuples(st.integers(1, 100), st.integers(0, 100)).map(
    lambda pair: [3 if at != pair[1] else 4 for at in range(pair[0])]
)
deeds = st.one_of(
    st.tuples(st.just("open"), salts, prompts, st.integers(0, 5)),
    st.tuples(st.just("append"), salts, prompts, st.integers(0, 5)),
    st.tuples(st.just("call"), salts, prompts, st.integers(0, 5)),
    st.tuples(st.just("plain"), salts, prompts, st.just(0)),
    st.tuples(st.just("reset"), st.none(), st.just([3]), st.just(0)),
)


def common(one: list[int], other: list[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@settings(max_examples=40, deadline=None)
@given(kind=st.sampled_from(KINDS), blocks=st.sampled_from([16, 60]), story=st.lists(deeds))
def test_no_call_finds_more_than_its_tenant_has_computed(model, kind, blocks, story):
    """Keys are guessed at will, prompts are the same for all, KV is short."""
    s = Simulation(model, kind, blocks=blocks)
    costs = Costs(s)
    texts: dict[str | None, list[list[int]]] = {salt: [] for salt in SALTS}
    owners: dict[str, str | None] = {}
    growing: dict[str, list[int]] = {}
    for number, (deed, salt, prompt, choice) in enumerate(story):
        key, name = f"o{choice}", f"{deed}{number}"
        if deed == "open":
            owner = owners.setdefault(key, salt)
            if key not in growing:
                growing[key] = list(prompt)
                opened(s, key, prompt, owner)
        elif deed == "append":
            if key in growing and owners[key] == salt:
                growing[key] += prompt
            s.add(name, prompt, {"op": "append", "key": key}, cache_salt=salt)
        elif deed == "reset":
            s.scheduler.reset_prefix_cache()
        else:
            s.idle()
            ask(s, name, prompt, salt, key if deed == "call" else None)
            mine = [*texts[salt], *(growing[k] for k in growing if owners[k] == salt)]
            most = max((common(prompt, text) for text in mine), default=0)
            assert costs.found[name] <= most, (name, costs.found[name], most)
            if deed == "call" and owners.get(key, salt) != salt:
                assert s.outcomes[name] == NEVER_WAS
            texts[salt].append([*prompt, *s.answers[name]])
    s.idle()
    s.close()
