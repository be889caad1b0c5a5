"""What the controller keeps is told, and goes with the calls but for what is remembered."""

from __future__ import annotations

from tests.unit.scheduler.controllers import arrive, controller, end, signals


def test_sizes_follow_the_calls():
    engine = controller()
    assert set(engine.sizes.values()) == {0}
    view = arrive(engine, "c1", program="p", flow="flow", task="plan", feeds=True)
    assert engine.sizes["sources"] == engine.sizes["remembered_programs"] == 1
    end(engine, view, 1.0)
    left = engine.sizes
    assert left["sources"] == 0
    assert left["followers"] == 1, "its next call is due"
    assert left["lengths"] == 1
    assert left["remembered_programs"] == 1
    signals(engine, now=100.0)
    assert engine.sizes["followers"] == 0, "nobody is waited for as long as that"
    arrive(engine, "c2", program="p", flow="flow", task="plan")
    assert engine.sizes["memos"] == 1
    assert engine.sizes["remembered_programs"] == 1
