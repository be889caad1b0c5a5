"""The deterministic mode sets what it needs and refuses what contradicts it."""

from __future__ import annotations

from typing import Any

import pytest

from grape_lc.engine.deterministic import BATCH_INVARIANT, check_repeatable, deterministic_args
from grape_lc.errors import ConfigError, UnsupportedRequestError


@pytest.mark.parametrize("given", [{}, {"dtype": "float32"}, {"dtype": "float"}])
def test_on_a_cpu_it_is_fp32(given: dict[str, Any]) -> None:
    environ: dict[str, str] = {}
    made = deterministic_args({**given, "max_model_len": 99}, on_cpu=True, environ=environ)
    assert made == {"dtype": "float32", "max_model_len": 99}
    assert environ == {}


@pytest.mark.parametrize("dtype", ["auto", "bfloat16", "half", "float16"])
def test_other_types_are_refused_on_a_cpu(dtype: str) -> None:
    with pytest.raises(ConfigError, match=f"dtype='{dtype}'.*float32"):
        deterministic_args({"dtype": dtype}, on_cpu=True, environ={})


@pytest.mark.parametrize("environ", [{}, {BATCH_INVARIANT: "1"}])
def test_elsewhere_vllms_kernels_are_switched_on(environ: dict[str, str]) -> None:
    given = {"dtype": "bfloat16"}
    assert deterministic_args(given, on_cpu=False, environ=environ) == given
    assert environ == {BATCH_INVARIANT: "1"}


def test_kernels_that_the_user_switched_off_are_a_contradiction() -> None:
    with pytest.raises(ConfigError, match=f"{BATCH_INVARIANT}=0"):
        deterministic_args({}, on_cpu=False, environ={BATCH_INVARIANT: "0"})


@pytest.mark.parametrize("on_cpu", [True, False])
def test_drafting_is_a_contradiction(on_cpu: bool) -> None:
    with pytest.raises(ConfigError, match="speculative_config"):
        deterministic_args({"speculative_config": {}}, on_cpu=on_cpu, environ={})


def test_a_call_must_be_repeatable() -> None:
    check_repeatable(0.0, None)
    check_repeatable(0.7, 0)
    with pytest.raises(UnsupportedRequestError, match=r"temperature=0\.7 without a seed"):
        check_repeatable(0.7, None)
