"""Waiting and running calls, and what they get of a step."""

from __future__ import annotations

from grape_lc.scheduler.batching import Room
from grape_lc.scheduler.selection import choose_calls
from grape_lc.scheduler.settings import PolicyConfig, Rule
from grape_lc.scheduler.types import Limit
from tests.unit.scheduler.factories import make_decodes, make_prefill, make_snapshot, make_view

CONFIG = PolicyConfig(rule=Rule.DEADLINE, adopted_first=100)
PHASELESS = CONFIG.but(two_phase=False)
NONE = frozenset[str]()


def call(key, pending, **fields):
    """A waiting call that is ranked by its arrival."""
    fields.setdefault("rank", (float(key[1:]),))
    return make_view(key, tokens=pending, **fields)


def follower(key, pending, **fields):
    fields.setdefault("rank", (float(key[1:]),))
    return make_view(key, adopted=True, tokens=500, computed=500 - pending, **fields)


def prefill(key, pending, **fields):
    fields.setdefault("rank", (float(key[1:]),))
    return make_prefill(key, tokens=100 + pending, **fields)


def choose(tokens, config=CONFIG, limit=Limit.CAP, victims=NONE, **fields):
    fields.setdefault("decodes", make_decodes(1))
    return choose_calls(make_snapshot(**fields), config, Room(limit, tokens), victims)


def given_to(items):
    return {item.id: item.tokens for item in items}


def shares_of(calls):
    return {view.id: tokens for view, tokens in calls.shares}
