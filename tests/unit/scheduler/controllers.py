"""A controller and what a driver tells it."""

from __future__ import annotations

from grape_lc.scheduler.controller import Controller, Machine
from grape_lc.scheduler.settings import PolicyConfig, Rule
from grape_lc.scheduler.types import Stage
from tests.unit.scheduler.factories import BLOCK, make_view

CONFIG = PolicyConfig(rule=Rule.DEADLINE, hold_s=0.012, grace_s=0.02, wide_margin=0.25)
MACHINE = Machine(max_tokens=512, free_rows=8, free=1000, total=1000)


def controller(config=CONFIG, **fields):
    return Controller(config, block_size=BLOCK, **fields)


def arrive(engine, key="c1", now=0.0, **fields):
    view = make_view(key, **{"arrived": now, **fields})
    engine.call_arrived(view, now)
    return view


def end(engine, view, now, output=20, *, complete=True, limited=False):
    """A call ends that had run; views are the driver's."""
    if view.stage is Stage.WAITING:
        engine.call_started(view, Stage.PREFILL)
    view.output = output
    engine.call_ended(view, now, complete=complete, limited=limited)


def teach(engine, output, task="plan", calls=8, flow="flow"):
    """Calls of a task end one after another."""
    for number in range(calls):
        view = arrive(engine, f"c{900 + number}", flow=flow, task=task)
        end(engine, view, 0.5, output)


def signals(engine, now=0.0, machine=MACHINE, running=()):
    engine.validate()
    return engine.look(now, machine, running).signals


def feed(engine, now, program="p", **fields):
    """A call that feeds others ends."""
    view = arrive(engine, "c1", now=now - 1, program=program, feeds=True)
    end(engine, view, now, **fields)
