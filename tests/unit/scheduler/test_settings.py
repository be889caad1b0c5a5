"""Settings of the policy: what is accepted, and what a refusal says."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given

from grape_lc.scheduler.settings import PLAIN, Constraint, Eviction, PolicyConfig, Rule
from tests.unit.scheduler.factories import configs, steady

SWITCHES = ("incremental", "static", "two_phase", "admission", "governor", "handover", "validate")


def test_defaults_and_mapping():
    assert PolicyConfig.from_mapping({}) == PolicyConfig()
    config = PolicyConfig.from_mapping({"chunk": 4, "prefill_cap": None, "ttl_s": 5})
    assert (config.chunk, config.prefill_cap, config.ttl_s) == (4, None, 5)


def test_names_are_read_as_what_they_stand_for():
    config = PolicyConfig.from_mapping({"rule": "hops", "constraint": "cap", "eviction": "lru"})
    assert config.rule is Rule.HOPS
    assert config.constraint is Constraint.CAP
    assert config.eviction is Eviction.LRU


def test_unknown_setting_names_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown grape settings \['chunks'\].*'chunk'"):
        PolicyConfig.from_mapping({"chunks": 4})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chunk", 0),
        ("chunk", True),
        ("chunk", 1.5),
        ("chunk", "16"),
        ("chunk", None),
        ("lump", 10**30),
        ("stretch", 10**400),
        ("backlog_share", float("inf")),
        ("late_s", 0),
        ("ttft_s", float("nan")),
        ("lump", 0),
        ("prefill_cap", 0),
        ("open_cap", -1),
        ("grace_tokens", 0),
        ("horizon", -1),
        ("most_misses", 0.5),
        ("stretch", 0.99),
        ("open_stretch", 0),
        ("grace_s", -0.1),
        ("grace_s", math.nan),
        ("aging", -1),
        ("ttl_s", "600"),
        ("ttft_s", -1.0),
        ("tbt_s", "fast"),
        ("deadline_s", math.nan),
        ("margin", 0.5),
        ("wide_margin", 1.0),
        *((name, 1) for name in SWITCHES),
        *((name, None) for name in SWITCHES),
    ],
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        PolicyConfig.from_mapping({name: value})


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("rule", "'fcfs'.*'auto'"),
        ("constraint", "'off'.*'adaptive'"),
        ("eviction", "'tail'.*'lru'"),
    ],
)
@pytest.mark.parametrize("value", ["best", "", None, 3, ["fcfs"]])
def test_an_unknown_name_is_answered_with_the_known_ones(name, known, value):
    with pytest.raises(ValueError, match=f"{name}.*{known}"):
        PolicyConfig.from_mapping({name: value})


@pytest.mark.parametrize("name", ["ttft_s", "tbt_s", "deadline_s", "prefill_cap"])
def test_targets_and_the_cap_may_be_absent(name):
    assert getattr(PolicyConfig.from_mapping({name: None}), name) is None


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PolicyConfig().chunk = 3  # type: ignore[misc]


def test_but_checks_again_and_leaves_the_rest():
    config = PolicyConfig(chunk=4).but(lump=9)
    assert (config.chunk, config.lump) == (4, 9)
    with pytest.raises(ValueError, match="lump"):
        config.but(lump=0)


def test_plain_switches_every_mechanism_off():
    plain = PolicyConfig(**PLAIN)
    assert not any(getattr(plain, name) for name in SWITCHES)
    assert plain.rule is Rule.FCFS
    assert plain.constraint is Constraint.OFF
    assert plain.eviction is Eviction.TAIL


@steady
@given(configs())
def test_settings_survive_plain_values(config):
    plain = {
        key: str(value) if isinstance(value, str) else value
        for key, value in dataclasses.asdict(config).items()
    }
    assert PolicyConfig.from_mapping(plain) == config
