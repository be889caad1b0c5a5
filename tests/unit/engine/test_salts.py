"""The salts of tenants' prefix caches."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.engine.salts import (
    LEAST_SECRET,
    SECRET_VARIABLE,
    CacheSalts,
    what_mixes_tenants,
)
from grape_lc.errors import ConfigError

SECRET = "s" * LEAST_SECRET


def test_nobody_has_no_salt() -> None:
    assert CacheSalts().of("") is None


@given(st.text(min_size=1), st.text(min_size=1))
def test_each_tenant_has_one_of_its_own(one: str, other: str) -> None:
    salts = CacheSalts()
    assert (salts.of(one) == salts.of(other)) == (one == other)


@given(st.text(st.characters(), min_size=1))
def test_vllm_takes_any_tenants_salt(tenant: str) -> None:
    """It refuses long ones, and those with separators in them."""
    assert re.fullmatch("[0-9a-f]{64}", CacheSalts().of(tenant) or "")


def test_a_name_alone_makes_no_salt() -> None:
    assert CacheSalts().of("acme") != CacheSalts().of("acme")


def test_a_given_secret_makes_the_same_salts() -> None:
    one, other = (CacheSalts.from_environment({SECRET_VARIABLE: SECRET}) for _ in range(2))
    assert one.of("acme") == other.of("acme")
    assert one.of("acme") != CacheSalts("t" * LEAST_SECRET).of("acme")


def test_an_empty_variable_is_none() -> None:
    environment = {SECRET_VARIABLE: ""}
    one, other = (CacheSalts.from_environment(environment).of("acme") for _ in range(2))
    assert one != other


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="has 4 characters, at least 32"):
        CacheSalts.from_environment({SECRET_VARIABLE: "1234"})


@pytest.mark.parametrize(
    ("method", "cached", "mixes"),
    [("suffix", 10_000, True), ("suffix", 0, False), ("ngram", 10_000, False)],
)
def test_drafts_from_answers_of_all_are_not_for_tenants(
    method: str, cached: int, mixes: bool
) -> None:
    speculative = SimpleNamespace(method=method, suffix_decoding_max_cached_requests=cached)
    assert (what_mixes_tenants(speculative) is not None) == mixes
    assert what_mixes_tenants(None) is None
