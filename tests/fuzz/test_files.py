"""Files: what was learned, what was saved, profiles, results, records, traces of arrivals."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from grape_lc.adapters import savings
from grape_lc.adapters.template_store import FORMAT, TemplateStore
from grape_lc.bench.arms import parse_arms
from grape_lc.bench.arrival_trace import read_arrival_times
from grape_lc.bench.batch import Kept
from grape_lc.bench.html_input import read_documents
from grape_lc.bench.recorded import recorded_metrics
from grape_lc.bench.run_log import RunLog
from grape_lc.bench.simulation_options import read_cost
from grape_lc.bench.synthetic_shape import workload_shape
from grape_lc.cli.common import given_json
from grape_lc.engine import profile_store
from grape_lc.engine.simulator.recorded import from_record
from grape_lc.scheduler import record
from grape_lc.scheduler.cost import LinearCost
from tests.fuzz.hostile import damaged, documents, mutated, value_or_ours

LEARNED = {
    "format": FORMAT,
    "version": 1,
    "graph": "g",
    "source": "s",
    "content": True,
    "salt": "51aa",
    "tasks": {
        "plan": {
            "messages": [
                ["system", [{"text": "x"}, {"size": 16, "sha256": "7" * 64}]],
                ["user", [{"input": "a", "through": "strip", "or": ["repr"]}, {"end": True}]],
                ["user", [{"answer": "plan"}]],
            ],
            "tools": [{"function": {"name": "f"}}],
        }
    },
}
SAVED = {
    "version": 1,
    "runs": [{"id": "a", "at": 1.5, "calls": [["plan", 1, 2, 3, 4, "adopted", "open"]]}],
}
ERRORS = {"mape": 0.1, "p95_error": 0.1}
PROFILE = {
    "version": profile_store.VERSION,
    "key": {"machine": "m"},
    "heldout_single": ERRORS,
    "heldout_unpaced": ERRORS,
    "coefficients": {"base": 0.1, "per_token": 0.001, "hinges": [[16, 0.0001]]},
}


def in_file(data: bytes, use: Callable[[Path], Any], name: str = "data.json") -> Any:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        return use(path)


def quietly(use: Callable[[], Any]) -> Any:
    logging.disable(logging.CRITICAL)
    try:
        return use()
    finally:
        logging.disable(logging.NOTSET)


@settings(max_examples=80)
@given(documents(LEARNED))
def test_learned_prompts(data):
    """A file that cannot be used is no reason for a run to fail."""

    def load(path: Path) -> Any:
        return quietly(TemplateStore(path, "g", "s", content=True).load)

    found = in_file(data, load)
    assert found is None or all(found.lessons.values())


@settings(max_examples=60)
@given(documents(SAVED))
def test_savings(data):
    runs = quietly(lambda: in_file(data, savings.load))
    assert len(savings.merged(runs, ())) <= savings.MOST_RUNS


@settings(max_examples=60)
@given(documents(PROFILE))
def test_profiles(data):
    def load(path: Path) -> Any:
        with patch.object(profile_store, "path_of", lambda key: path):
            return quietly(lambda: profile_store.load({"machine": "m"}))

    cost = in_file(data, load)
    assert cost is None or isinstance(cost, LinearCost)
    value_or_ours(lambda: in_file(data, read_cost))


CALL = {
    "task": "plan",
    "submitted": 0.0,
    "prompt_tokens": 10,
    "cached_tokens": 2,
    "ahead_tokens": 0,
    "tokens": [[0.5, 1], [0.6, 1]],
}
RUN = {
    "arm": "grape",
    "programs": [
        {"program": "p", "arrived": 0.0, "finished": 1.0, "calls": [CALL], "tenant": ""},
        {"program": "q", "arrived": 0.5, "finished": 2.0, "calls": [CALL]},
    ],
}
PLACE = {"workload": "code", "rate": 1.0, "load": 0.5, "variant": "grape"}
RESULTS = {
    "meta": {"settings": {}, "cells": [{**PLACE, "kv_blocks": 10}]},
    "metrics": [{**PLACE, "metrics": {"ttft": {"p50": 1.0}}}],
    "runs": [{**PLACE, "repeat": 1, "metrics": {}, **RUN}],
    "pairs": [{**PLACE, "metric": "m", "baseline": "b", "ratio": 1.5, "ci95": [1, 2], "n": 3}],
    "regimes": [{"depth": 1, "output": 2, "static": 3, "rho": 0.5, "metric": "m", "ratio": 1}],
}


@settings(max_examples=80)
@given(documents(RESULTS))
def test_results(data):
    value_or_ours(lambda: in_file(data, lambda path: read_documents([path])))
    value_or_ours(lambda: in_file(data, lambda path: recorded_metrics(path, 0)))
    value_or_ours(lambda: in_file(data, from_record))


HEAD = {"kind": "head", "format": 2, "device": "cpu"}
LINES = (
    {
        "kind": "run",
        "part": "p",
        "repeat": 1,
        "position": 0,
        "offered": 1.0,
        "counters": {"a": 1},
        "engine": {},
        "budget": None,
        **RUN,
    },
    {"kind": "probe", "workload": "code", "kv_blocks": None, "tokens_per_s": 1.0, "largest": [1]},
)


@settings(max_examples=60)
@given(st.lists(st.one_of(*map(documents, LINES)), max_size=2), documents(HEAD))
def test_files_that_a_bench_goes_on_from(lines, head):
    good = json.dumps(HEAD).encode()
    for first in (good, head):
        data = b"\n".join([first, *lines, b""])
        value_or_ours(partial(in_file, data, lambda path: RunLog(path, {"device": "cpu"})))
    kept = [json.dumps({"code": "c", "key": "k", "result": 1}).encode(), *lines, b"{"]
    value_or_ours(lambda: in_file(b"\n".join(kept), lambda path: Kept(path, "c")))


@settings(max_examples=40)
@given(documents({"timestamp": 5}), documents({"timestamp": 7}))
def test_traces_of_arrivals(first, second):
    data = b"\n".join([first, second])
    value_or_ours(lambda: in_file(data, read_arrival_times, "a.jsonl"))
    value_or_ours(lambda: in_file(b"arrival_s,x\n" + data, read_arrival_times, "a.csv"))


@settings(max_examples=40)
@given(documents(SAVED))
def test_values_of_options(data):
    value_or_ours(lambda: given_json(data.decode("utf-8", "surrogateescape"), "--x"))
    value_or_ours(lambda: in_file(data, lambda path: given_json(f"@{path}", "--x")))


@settings(max_examples=60)
@given(damaged("grape:order=stage,vllm-opt:max_num_batched_tokens=512,vllm", most=4))
@example("grape:level=" + "9" * 5000)
@example("grape:level=" + "[" * 3000)
def test_names_of_arms(text):
    value_or_ours(lambda: parse_arms(text))
    value_or_ours(lambda: workload_shape(f"synthetic:{text}"))


STEP = {
    "step": 1,
    "snapshot": {
        "step": 1,
        "now": 0.0,
        "max_tokens": 10,
        "free_rows": 2,
        "least_call_tokens": 1,
        "pool": {"free": 1, "total": 2},
        "decodes": {},
        "signals": {},
        "cost": None,
        "served": {},
        "views": [],
        "prefills": [],
        "running": [],
        "waiting": [],
        "opens": [],
    },
    "plan": {},
    "ran": {"a": 1},
    "load": [1, 2, 3, 0.0],
}


@settings(max_examples=60)
@given(mutated({"v": 1, "config": {}}), mutated(STEP))
def test_records(head, step):
    """The scheduler knows no errors of ours; ``grape replay`` turns these into one."""
    try:
        config, steps = record.read([json.dumps(head), json.dumps(step)])
        for item in steps:
            record.replan(item, config)
    except (ValueError, TypeError):
        pass
