"""Followers: who is due, for how long, and what is learned from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.scheduler.followers import Followers


def test_due_until_it_arrives():
    followers = Followers(patience=0.1, late=0.5)
    assert followers.waiting_since(1.0) is None
    followers.ended("a", 1.0)
    followers.ended("b", 1.02)
    assert followers.waiting_since(1.03) == pytest.approx(0.03), "the oldest counts"
    followers.arrived("a", 1.04)
    assert followers.waiting_since(1.05) == pytest.approx(0.03)
    followers.arrived("b", 1.05)
    assert followers.waiting_since(1.06) is None
    followers.arrived("c", 1.07)
    assert 0 < followers.expected < 0.04, "unknown programs teach nothing"


def test_a_follower_that_stays_away_counts_as_late():
    followers = Followers(patience=0.1, late=0.5)
    followers.ended("a", 1.0)
    assert followers.waiting_since(1.1) is None
    assert followers.expected == pytest.approx(0.125)
    followers.arrived("a", 1.2)
    assert followers.expected == pytest.approx(0.125), "given up already"


@given(st.lists(st.floats(0.001, 0.05), min_size=1, max_size=60))
def test_the_mean_lies_among_what_was_seen(delays):
    followers = Followers(patience=0.1, late=0.5)
    for number, delay in enumerate(delays):
        followers.ended("a", number)
        followers.arrived("a", number + delay)
    assert 0 <= followers.expected <= max(delays) + 1e-9


def test_it_recovers_after_misses():
    followers = Followers(patience=0.015, late=0.024)
    for second in range(20):
        followers.ended("a", second)
        followers.waiting_since(second + 0.5)
    assert followers.expected > 0.02
    for second in range(20, 30):
        followers.ended("a", second)
        followers.arrived("a", second + 0.003)
    assert followers.expected < 0.006
