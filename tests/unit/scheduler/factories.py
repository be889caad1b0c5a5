"""Views with sane defaults, and strategies that draw any possible view."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import strategies as st

from grape_lc.scheduler.types import OpenView, PolicyConfig, PrefillView, StepView


def open_view(key: str = "o1", **fields: Any) -> OpenView:
    """An open prompt with 100 of 200 tokens computed, all fields replaceable."""
    defaults: dict[str, Any] = {
        "key": key,
        "hops": 1,
        "opened": int(key[1:] or 0) if key[1:].isdigit() else 0,
        "tokens": 200,
        "computed": 100,
        "pending": 99,
        "held_blocks": 7,
    }
    return OpenView(**{**defaults, **fields})


def step_view(**fields: Any) -> StepView:
    """An idle engine with plenty of everything, all fields replaceable."""
    defaults: dict[str, Any] = {
        "max_tokens": 512,
        "decodes": 0,
        "decode_tokens": 0,
        "prefills": (),
        "adopted_waiting": (),
        "waiting": 0,
        "waiting_tokens": 0,
        "least_call_tokens": 1,
        "whole_tokens": 0,
        "free_rows": 8,
        "free_blocks": 1000,
        "total_blocks": 1000,
        "block_size": 16,
        "groups": 1,
        "needed_blocks": 0,
        "pressed": False,
        "since_feeder": None,
        "follower_s": 0.05,
        "step_s": 0.04,
        "switched": False,
        "opens": (),
    }
    return StepView(**{**defaults, **fields})


def configs() -> st.SearchStrategy[PolicyConfig]:
    shares = st.tuples(st.integers(0, 90), st.integers(0, 90)).map(sorted)
    return st.builds(
        lambda margins, **fields: PolicyConfig(
            margin=margins[0] / 100, wide_margin=margins[1] / 100, **fields
        ),
        shares,
        chunk=st.integers(1, 64),
        prefill_cap=st.none() | st.integers(1, 128),
        open_cap=st.integers(1, 256),
        adopted_first=st.integers(0, 300),
        grace_tokens=st.integers(1, 64),
        grace_s=st.sampled_from([0.0, 0.015, 0.1]),
        hold_s=st.sampled_from([0.0, 0.006, 0.02]),
    )


@st.composite
def open_views(draw: st.DrawFn) -> tuple[OpenView, ...]:
    count = draw(st.integers(0, 5))
    views = []
    for number in range(count):
        tokens = draw(st.integers(1, 600))
        computed = draw(st.integers(0, tokens - 1))
        views.append(
            OpenView(
                key=f"o{number}",
                hops=draw(st.integers(0, 3)),
                opened=number,
                tokens=tokens,
                computed=computed,
                pending=tokens - 1 - computed,
                held_blocks=-(-computed // 16),
                urgent=draw(st.booleans()),
                stalled=draw(st.booleans()),
            )
        )
    return tuple(draw(st.permutations(views)))


@st.composite
def step_views(draw: st.DrawFn) -> StepView:
    decodes = draw(st.integers(0, 6))
    drafts = draw(st.integers(0, 4))
    total = draw(st.integers(1, 400))
    prefills = draw(
        st.lists(st.tuples(st.integers(1, 700), st.booleans()), max_size=4).map(
            lambda items: tuple(
                PrefillView(f"p{number}", tokens, adopted)
                for number, (tokens, adopted) in enumerate(items)
            )
        )
    )
    return StepView(
        max_tokens=draw(st.integers(1 + drafts, 600)),
        decodes=decodes,
        decode_tokens=decodes * draw(st.integers(1, 1 + drafts)),
        prefills=prefills,
        adopted_waiting=draw(st.lists(st.integers(1, 400), max_size=3).map(tuple)),
        waiting=draw(st.integers(0, 3)),
        waiting_tokens=draw(st.integers(0, 800)),
        least_call_tokens=1 + drafts,
        whole_tokens=draw(st.sampled_from([0, 0, 300])),
        free_rows=draw(st.integers(0, 8)),
        free_blocks=draw(st.integers(0, total)),
        total_blocks=total,
        block_size=16,
        groups=1,
        needed_blocks=draw(st.integers(0, 500)),
        pressed=draw(st.booleans()),
        since_feeder=draw(st.sampled_from([None, 0.0, 0.004, 0.01, 0.05, 1.0])),
        follower_s=draw(st.sampled_from([0.0, 0.003, 0.01, 1.0])),
        step_s=draw(st.sampled_from([0.0, 0.005, 0.05])),
        switched=draw(st.booleans()),
        opens=draw(open_views()),
    )


def replace(view: StepView, **fields: Any) -> StepView:
    return dataclasses.replace(view, **fields)
