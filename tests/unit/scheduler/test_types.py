from __future__ import annotations

import dataclasses
import math

import pytest

from grape_lc.scheduler.types import PolicyConfig


def test_defaults_and_mapping():
    assert PolicyConfig.from_mapping({}) == PolicyConfig()
    config = PolicyConfig.from_mapping({"chunk": 4, "prefill_cap": None, "ttl_s": 5})
    assert (config.chunk, config.prefill_cap, config.ttl_s) == (4, None, 5)


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
        ("prefill_cap", 0),
        ("open_cap", -1),
        ("grace_s", -0.1),
        ("grace_s", math.nan),
        ("ttl_s", "600"),
        ("margin", 0.5),
        ("wide_margin", 1.0),
        ("validate", 1),
    ],
)
def test_bad_values_are_named(name, value):
    with pytest.raises(ValueError, match=name):
        PolicyConfig.from_mapping({name: value})


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PolicyConfig().chunk = 3  # type: ignore[misc]
