"""Views and snapshots with sane defaults, and strategies that draw any possible ones."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from grape_lc.scheduler.cost import LinearCost
from grape_lc.scheduler.settings import Constraint, Eviction, PolicyConfig, Rule
from grape_lc.scheduler.types import (
    Decodes,
    Hint,
    Pool,
    RequestView,
    Signals,
    Snapshot,
    Stage,
)

BLOCK = 16

# About what a small CPU shows: 16 ms a step, 0.6 ms a token.
CPU = LinearCost(0.016, 0.0005, 0.0006, 2e-6, 5e-7)
# An accelerator: tokens cost next to nothing up to the knee.
GPU = LinearCost(0.012, 1e-5, 1e-7, 1e-8, 0.0, ((400, 5e-5),))

_HINTS = frozenset(Hint.__dataclass_fields__)


def _number(key: str) -> int:
    digits = "".join(letter for letter in key if letter.isdigit())
    return int(digits or 0)


def make_view(key: str = "c1", stage: Stage = Stage.WAITING, **fields: Any) -> RequestView:
    """A request; fields of its hint may be given beside its own.

    The number in its name is its place in the order of arrival, a tenth of a second apart. It
    waits with 200 tokens, of which an open prompt or a running call has computed what holds
    its blocks: 100, or all but the last one of a decoding call.
    """
    hint = {name: fields.pop(name) for name in list(fields) if name in _HINTS}
    if stage is Stage.OPEN:
        hint.setdefault("hops", 1)
    number = _number(key)
    tokens = fields.setdefault("tokens", 200)
    ready = {
        Stage.WAITING: 0,
        Stage.OPEN: min(100, tokens - 1),
        Stage.PREFILL: min(100, tokens - 1),
        Stage.DECODE: tokens - 1,
    }
    computed = fields.setdefault("computed", ready[stage])
    defaults: dict[str, Any] = {
        "seq": number,
        "arrived": number * 0.1,
        "hint": Hint(**hint),
        "hold_back": 1 if stage is Stage.OPEN else 0,
        "output": 10 if stage is Stage.DECODE else 0,
        "max_output": 100,
        "held_blocks": -(-computed // BLOCK),
    }
    return RequestView(id=key, stage=stage, **{**defaults, **fields})


def make_open(key: str = "o1", **fields: Any) -> RequestView:
    """An open prompt of the next hop with 100 of 200 tokens computed."""
    return make_view(key, Stage.OPEN, **fields)


def make_prefill(key: str = "p1", **fields: Any) -> RequestView:
    """A running call with 100 of its 200 prompt tokens computed."""
    return make_view(key, Stage.PREFILL, **fields)


def make_decode(key: str = "d1", **fields: Any) -> RequestView:
    """A running call with 10 of at most 100 output tokens."""
    return make_view(key, Stage.DECODE, **fields)


def make_decodes(rows: int, context: int = 200, **fields: Any) -> Decodes:
    """Running calls that each take one token behind ``context`` tokens."""
    return Decodes(**{"rows": rows, "tokens": rows, "kv_tokens": rows * context, **fields})


def make_pool(free: int = 1000, total: int = 1000, **fields: Any) -> Pool:
    """A pool of small blocks, all of them free."""
    return Pool(**{"free": free, "total": total, "block_size": BLOCK, **fields})


def make_snapshot(**fields: Any) -> Snapshot:
    """An idle engine with plenty of everything; fields of the signals may be given too."""
    signals = {name: fields.pop(name) for name in list(fields) if name in Signals._fields}
    if signals:
        fields["signals"] = Signals(**signals)
    defaults: dict[str, Any] = {
        "step": 1,
        "now": 100.0,
        "max_tokens": 512,
        "free_rows": 8,
        "pool": make_pool(),
    }
    return Snapshot(**{**defaults, **fields})


# ------------------------------------------------------------------ strategies

# A machine that is busy with something else makes no test fail.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

times = st.integers(0, 400).map(lambda quarter: quarter / 4)


def _hint(dice: Random, hops: int) -> Hint:
    return Hint(
        program=dice.choice([None, "p1", "p2", "p3"]),
        flow=dice.choice([None, "flow"]),
        task=dice.choice([None, "plan", "write"]),
        tenant=dice.choice(["", "", "a", "b"]),
        depth=dice.choice([None, 0, 1, 4]),
        hops=hops,
        feeds=dice.random() < 0.5,
        ttft_s=dice.choice([None, 0.02, 3.0]),
        tbt_s=dice.choice([None, 0.02, 3.0]),
        deadline_s=dice.choice([None, 1.0, 30.0]),
    )


def _view(dice: Random, stage: Stage, key: str, number: int) -> RequestView:
    """A request with any fields that fit each other; sizes near block borders come often."""
    opened, decodes, waits = (stage is s for s in (Stage.OPEN, Stage.DECODE, Stage.WAITING))
    some = dice.choice([dice.randint(1, 600), dice.randint(1, 20), BLOCK * dice.randint(1, 20)])
    tokens = max(1, some + dice.randint(-1, 1))
    computed = dice.choice([0, tokens // 2, tokens - 1, dice.randint(0, tokens - 1)])
    if decodes:
        computed = tokens - 1
    elif waits and dice.random() < 0.5:
        computed = 0
    output = dice.randint(1, tokens) if decodes else 0
    left = dice.randint(1, 300)
    known = dice.choice([None, 0, 0.5, 1])
    arrived, touched = dice.randint(0, 400) / 4, dice.randint(0, 400) / 4
    since = dice.choice([None, 0, 0.5, 1])
    one, two, three, rarely = (dice.random() < 0.5 for _ in range(4))
    return RequestView(
        id=key,
        seq=number,
        arrived=arrived,
        stage=stage,
        tokens=tokens,
        hint=_hint(dice, dice.randint(0, 3) if opened else 0),
        program_arrived=None if since is None else arrived * since,
        computed=computed,
        in_flight=min(2, computed) if one else 0,
        hold_back=dice.randint(1, 9) if opened else 0,
        output=output,
        max_output=output + left,
        held_blocks=-(-computed // BLOCK),
        adopted=two and not opened,
        whole=one and two and not opened,
        blocked=three and rarely and waits,
        early=one and rarely and opened,
        final=two and opened,
        stalled=three and opened,
        static=dice.choice([1, min(computed, 100), tokens]) if opened else 0,
        touched=touched,
        last_token=touched if decodes else None,
        remaining=None if known is None else left * known,
        sure=left * known / 2 if known is not None and three else None,
        path_s=left / 50 if rarely else 0.0,
        tbt_s=0.05 if three and not opened else None,
        end_blocks=-(-(tokens + left) // BLOCK),
        rank=(arrived, number),
    )


@st.composite
def views(
    draw: st.DrawFn,
    stages: tuple[Stage, ...] = tuple(Stage),
    least: int = 0,
    most: int = 6,
    prefix: str = "r",
    first: int = 0,
) -> list[RequestView]:
    """From ``least`` to ``most`` requests, in any order.

    One draw for each: field by field it would take many times as long as what is tested.
    """
    seeds = draw(st.lists(st.integers(0, 1 << 30), min_size=least, max_size=most))
    drawn: list[RequestView] = []
    for number, seed in enumerate(seeds, start=first):
        dice = Random(seed)
        drawn.append(_view(dice, dice.choice(stages), f"{prefix}{number}", number))
    Random(sum(seeds)).shuffle(drawn)
    return drawn


def _flags(count: int) -> st.SearchStrategy[list[bool]]:
    """So many booleans for the price of one draw."""
    return st.integers(0, 2**count - 1).map(
        lambda bits: [bool(bits >> n & 1) for n in range(count)]
    )


_SWITCHES = ("incremental", "static", "two_phase", "admission", "governor", "handover")


def configs() -> st.SearchStrategy[PolicyConfig]:
    """Any settings that fit each other."""
    targets = st.none() | st.sampled_from([0.03, 1.0])

    def make(switches: list[bool], margins: list[int], **settings: Any) -> PolicyConfig:
        chosen: dict[str, Any] = dict(zip(_SWITCHES, switches, strict=True))
        return PolicyConfig(
            **chosen,
            margin=margins[0] / 100,
            wide_margin=margins[1] / 100,
            **settings,
        )

    return st.builds(
        make,
        _flags(len(_SWITCHES)),
        st.tuples(st.integers(0, 90), st.integers(0, 90)).map(sorted),
        rule=st.sampled_from(Rule),
        constraint=st.sampled_from(Constraint),
        eviction=st.sampled_from(Eviction),
        ttft_s=targets,
        tbt_s=targets,
        deadline_s=st.none() | st.just(30.0),
        chunk=st.integers(1, 64),
        lump=st.sampled_from([1, 64, 128]),
        prefill_cap=st.none() | st.integers(1, 128),
        open_cap=st.integers(1, 256),
        adopted_first=st.sampled_from([0, 40, 256]),
        grace_tokens=st.sampled_from([1, 8, 64]),
        grace_s=st.sampled_from([0.0, 0.015, 0.1]),
        hold_s=st.sampled_from([0.0, 0.006, 0.02]),
        stretch=st.sampled_from([1.0, 2.5, 10.0]),
        open_stretch=st.sampled_from([1.0, 1.1, 3.0]),
        horizon=st.sampled_from([0, 1, 128]),
        aging=st.sampled_from([0.0, 0.1, 1.0]),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Any snapshot whose parts agree with each other."""
    drafts = draw(st.integers(0, 4))
    running = draw(views((Stage.PREFILL, Stage.DECODE), prefix="c"))
    opens = draw(views((Stage.OPEN,), most=5, prefix="o", first=100))
    waiting = draw(views((Stage.WAITING,), most=4, prefix="w", first=200))
    decoding = [view for view in running if view.stage is Stage.DECODE]
    for view in decoding:
        view.step_tokens = 1 + view.tokens % (1 + drafts)
    taken = sum(view.step_tokens for view in decoding)
    held = sum(view.held_blocks for view in (*running, *opens, *waiting))
    free = draw(st.integers(0, 400))
    return Snapshot(
        step=draw(st.integers(0, 5)),
        now=200.0,
        max_tokens=draw(st.integers(max(1 + drafts, taken), 600)),
        free_rows=draw(st.integers(0, 8)),
        pool=Pool(
            free=free,
            total=max(1, free + held),
            block_size=BLOCK,
            growth=draw(st.integers(0, 100)),
            waiting=sum(-(-view.pending // BLOCK) for view in waiting),
        ),
        decodes=Decodes(
            rows=len(decoding),
            tokens=taken,
            kv_tokens=sum(view.tokens for view in decoding),
            blocks=sum(view.tokens % BLOCK == 1 for view in decoding),
            slack_s=draw(st.none() | st.sampled_from([-1.0, 0.0, 0.02, 0.5])),
        ),
        prefills=[view for view in running if view.stage is Stage.PREFILL],
        running=running if draw(st.booleans()) else (),
        waiting=waiting,
        opens=opens,
        signals=draw(signals()),
        cost=draw(st.sampled_from([None, CPU, GPU])),
        served=draw(st.dictionaries(st.sampled_from(["", "a", "b"]), st.floats(0, 1e4))),
        least_call_tokens=1 + drafts,
    )


def signals() -> st.SearchStrategy[Signals]:
    """Anything that may have been measured."""

    def make(seed: int) -> Signals:
        dice = Random(seed)
        some_s = (0.0, 0.004, 0.05, 0.25, 1.0, 20.0)
        return Signals(
            step_s=dice.choice([0.0, 0.005, 0.05]),
            error=dice.choice([None, dice.random()]),
            pressed=dice.random() < 0.3,
            thrashing=dice.random() < 0.3,
            hit_rate=dice.choice([0.0, 1.0, dice.random()]),
            misses=dice.randint(0, 10),
            queue=dice.uniform(0.0, 10.0),
            behind=dice.choice(some_s),
            tight=dice.choice([0.0, 0.0, dice.random()]),
            recomputed=dice.choice([0.0, dice.random()]),
            spikes=dice.choice([0.0, 1.0, dice.random()]),
            since_feeder=dice.choice([None, *some_s]),
            follower_s=dice.choice(some_s),
            switched=dice.random() < 0.5,
            weight=dice.choice([0, 0, dice.randint(1, 64)]),
        )

    return st.integers(0, 1 << 30).map(make)
