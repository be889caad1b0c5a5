"""What a file of results says about how it was made."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

from grape_lc.bench.surroundings import environment


def test_the_command_can_be_typed_again_and_the_date_has_a_zone(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/some/where/bin/grape", "bench", "--data", "a b.jsonl"])
    found = environment("cpu")
    assert found["command"] == "grape bench --data 'a b.jsonl'"
    assert datetime.fromisoformat(found["date"]).utcoffset() == timedelta(0)
    assert found["device"] == "cpu"
