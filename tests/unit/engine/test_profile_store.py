"""Profiles on disk: kept by key, and used only while they are what they should be."""

from __future__ import annotations

import json
import logging

import pytest

from grape_lc.engine import profile_store
from grape_lc.errors import ConfigError
from grape_lc.scheduler.cost import LinearCost

COST = LinearCost(0.03, 0.001, 0.004, hinges=((64, 1e-4),))
KEY = {"machine": {"processor": "some CPU", "cores": 2}, "model": "m", "dtype": "float32"}
GOOD = {"mape": 0.04, "p95_error": 0.11, "steps": 100}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def profile(**heldout):
    return {
        "coefficients": COST.to_mapping(),
        "heldout_single": {**GOOD, **heldout},
        "heldout_unpaced": GOOD,
    }


def test_what_is_saved_is_loaded(cache):
    assert profile_store.load(KEY) is None, "none was made yet"
    path = profile_store.save(KEY, profile())
    assert path == profile_store.path_of(KEY)
    assert path.is_relative_to(cache)
    assert profile_store.load(KEY) == COST
    assert [file.name for file in path.parent.iterdir()] == [path.name], "nothing left over"


@pytest.mark.parametrize(
    "other",
    [
        {**KEY, "model": "n"},
        {**KEY, "dtype": "bfloat16"},
        {**KEY, "machine": {"processor": "some CPU", "cores": 4}},
    ],
)
def test_other_keys_have_other_profiles(other):
    profile_store.save(KEY, profile())
    assert profile_store.load(other) is None
    assert profile_store.path_of(other) != profile_store.path_of(KEY)


def test_a_new_profile_takes_the_place_of_the_old_one():
    profile_store.save(KEY, profile())
    profile_store.save(KEY, {**profile(), "coefficients": {"base": 0.5}})
    assert profile_store.load(KEY) == LinearCost(0.5)


@pytest.mark.parametrize(
    ("heldout", "message"),
    [
        ({"mape": 0.151}, "mean of its errors on single steps is 15.1%, above 15%"),
        ({"p95_error": 0.41}, "95th percentile of its errors on single steps is 41.0%, above 40%"),
        ({"mape": float("nan")}, "mean"),
    ],
)
def test_a_bad_fit_is_neither_stored_nor_used(heldout, message, caplog):
    with pytest.raises(ConfigError, match=message):
        profile_store.save(KEY, profile(**heldout))
    assert not profile_store.path_of(KEY).exists()
    path = profile_store.save(KEY, profile())
    path.write_text(json.dumps({**json.loads(path.read_text()), **profile(**heldout)}))
    assert profile_store.load(KEY) is None
    assert message in caplog.text or "NaN is no number of JSON" in caplog.text


def test_a_machine_whose_pace_changes_too_much_has_no_profile():
    changing = {**profile(), "heldout_unpaced": {**GOOD, "p95_error": 0.6}}
    with pytest.raises(ConfigError, match="95th percentile of its errors as they were measured"):
        profile_store.save(KEY, changing)


def change(**parts):
    return lambda text: json.dumps({**json.loads(text), **parts})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        change(version=0),
        change(key={"machine": "another"}),
        change(coefficients={"base": -1.0}),
        change(coefficients={"base": 1.0, "per_moon": 1.0}),
        change(coefficients=[1, 2]),
        change(heldout_single={}),
        change(heldout_single={"mape": "small", "p95_error": 0.1}),
    ],
)
def test_a_file_that_is_spoiled_or_foreign_is_ignored_and_logged(spoil, caplog):
    path = profile_store.save(KEY, profile())
    path.write_text(spoil(path.read_text()))
    with caplog.at_level(logging.WARNING):
        assert profile_store.load(KEY) is None
    assert f"the profile {path} is ignored" in caplog.text


def test_a_file_that_cannot_be_read_is_ignored_and_logged(caplog):
    path = profile_store.save(KEY, profile())
    path.write_bytes(b"\xff\xfe\x00")
    assert profile_store.load(KEY) is None
    assert f"the profile {path} is ignored" in caplog.text
    path.unlink()
    path.mkdir()
    assert profile_store.load(KEY) is None
    assert caplog.text.count("no profile is used") == 1


def test_a_folder_that_cannot_be_made_is_told(cache):
    (cache / "grape_lc").write_text("in the way")
    with pytest.raises(ConfigError, match="cannot write the profile"):
        profile_store.save(KEY, profile())


def test_the_processor_has_a_name():
    assert profile_store.processor().strip()
