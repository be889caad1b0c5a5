"""The arms of a comparison: which scheduler, which engine arguments, which settings of ours.

    vllm            vLLM as it comes
    vllm-opt        vLLM tuned for programs: prefix caching, calls in the order of ``ranking``, and
                    a token budget that a sweep may choose
    grape           our scheduler, with the graph attached
    warm            vllm-opt+warm: the static head of every role's prompt in the cache beforehand
    layout          vllm-opt+layout: prompts that begin with what earlier calls have computed

    KIND+draft      the same with n-gram drafting
    KIND+warm       the same with the heads in the cache
    KIND+release    the same, each task released by the flow's driver and not by the graph
    KIND+layout     the same with prompts in a cache-friendly order
    vllm-opt+pipe   the same with answers piped to their readers in pieces of 128 tokens
    grape-NAME      without one mechanism of ours; several may go: grape-static-incremental
    KIND:a=1,b=no   the same with settings of its own

A setting is one of our scheduler (where it is ours), one of the engine arguments below, or
``order`` (where calls are ranked). Names of mechanisms, and what each is when it is off, are those
of ``PLAIN``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, cast, get_args

from grape_lc.bench.ranking import Order
from grape_lc.bench.settings import DRAFT
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PLAIN, PolicyConfig, Rule

STOCK = "vllm"
TUNED = "vllm-opt"
OURS = "grape"
BUDGET = "max_num_batched_tokens"
PIPE_TOKENS = 128
"""Tokens of a piece of an answer that ``+pipe`` hands on, as Parrot's pipes once did."""

_DRAFTING = "speculative_config"
_MOST = 1 << 24  # tokens, or requests

_KINDS: Mapping[str, Mapping[str, Any]] = {
    STOCK: {},
    TUNED: {"enable_prefix_caching": True, "scheduling_policy": "priority"},
    OURS: {},
}
_SHORT: Mapping[str, str] = {"warm": f"{TUNED}+warm", "layout": f"{TUNED}+layout"}
# Our scheduler with its policy off, save that prompts grow while they wait. A piece is handed on
# as soon as the step has room for all of it.
PIPE: Mapping[str, Any] = {
    **{name: off if isinstance(off, bool) else str(off) for name, off in PLAIN.items()},
    "incremental": True,
    "static": True,
    "rule": str(Rule.HOPS),
    "chunk": PIPE_TOKENS,
    "lump": PIPE_TOKENS,
    "near_steps": 0,
    "open_cap": _MOST,
    "prefill_cap": None,
}
_EXTRA = re.compile(r"([+-])([a-z_]+)")
# What each may be: true or false, or a number of at least so much.
_ENGINE_SETTINGS: Mapping[str, int | None] = {
    "async_scheduling": None,
    "enable_prefix_caching": None,
    "long_prefill_token_threshold": 0,
    BUDGET: 1,
    "max_num_seqs": 1,
}
_WORDS: Mapping[str, Any] = {"none": None, "yes": True, "no": False}


@dataclass(frozen=True)
class Arm:
    """One way to serve the programs of a comparison.

    name: as it was written; unique in a comparison. kind: ``vllm``, ``vllm-opt`` or ``grape``.
    engine: engine arguments that differ from vLLM's defaults.
    grape: settings of our scheduler that differ from its defaults.
    warmed: whether the static heads of prompts are in the cache when a run begins.
    piped: whether our scheduler is in the engine for its open prompts alone.
    released: whether the flow's driver makes the calls, in the place of the graph.
    layout: whether prompts are in the order that a prefix cache serves best.
    order: what calls that carry a priority are ordered by first; see ``ranking``.
    """

    name: str
    kind: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    grape: Mapping[str, Any] = field(default_factory=dict)
    warmed: bool = False
    piped: bool = False
    released: bool = False
    layout: bool = False
    order: Order = "stage"

    @property
    def plain(self) -> bool:
        """Whether it is its kind, perhaps without some mechanism, and nothing is added."""
        extras = (self.warmed, self.piped, self.released, self.layout, _DRAFTING in self.engine)
        return not any(extras)

    @property
    def scheduler(self) -> Literal["grape", "stock"]:
        """The scheduler in the engine."""
        return "grape" if self.kind == OURS or self.piped else "stock"

    @property
    def attached(self) -> bool:
        """Whether the engine is told of the programs before they make their calls."""
        return self.scheduler == "grape"

    @property
    def ranked(self) -> bool:
        """Whether calls carry a priority; see ``ranking``."""
        return self.engine.get("scheduling_policy") == "priority"

    @property
    def comparable(self) -> bool:
        """Whether its prompts are those of other arms, so that answers should be equal."""
        return not self.layout

    @property
    def budget(self) -> int | None:
        """Most tokens of a step; None is vLLM's default."""
        return self.engine.get(BUDGET)

    def engine_args(self) -> dict[str, Any]:
        """Engine arguments as ``GrapeEngine`` takes them."""
        return {**self.engine, **({"grape": dict(self.grape)} if self.grape else {})}


def parse_arm(text: str) -> Arm:
    """One arm from ``KIND``, with extras and with ``:name=value,name=value``.

    Raises ConfigError for an unknown kind, extra or setting, with the known ones.
    """
    head, _, rest = text.partition(":")
    base = _base(head)
    engine, grape, order = dict(base.engine), dict(base.grape), base.order
    ours = {item.name for item in fields(PolicyConfig)} if base.scheduler == "grape" else set()
    for setting in filter(None, rest.split(",")):
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"arm {text!r}: {setting!r} is no setting; write name=value")
        if name in ours:
            grape[name] = _value(value)
        elif name in _ENGINE_SETTINGS:
            engine[name] = _checked(text, name, _value(value))
        elif name == "order" and base.ranked:
            order = _order(text, value)
        else:
            known = ", ".join([*sorted(ours), *_ENGINE_SETTINGS, *(["order"] * base.ranked)])
            raise ConfigError(f"arm {text!r} has no setting {name!r}; there are: {known}")
    try:
        PolicyConfig.from_mapping(grape)
    except ValueError as error:
        raise ConfigError(f"arm {text!r}: {error}") from error
    return _fitting(replace(base, name=text, engine=engine, grape=grape, order=order))


def _base(head: str) -> Arm:
    """What stands before the colon: a kind, and what is added to it or taken away."""
    first = re.split("[+-]", head, maxsplit=1)[0]
    written = _SHORT.get(first, first) + head.removeprefix(first)
    fitting = [kind for kind in _KINDS if re.fullmatch(f"{kind}([+-].*)?", written)]
    if not fitting:
        raise ConfigError(f"no arm {head!r}; there are: {known_arms()}")
    kind = max(fitting, key=len)  # vllm-opt is no vllm without opt
    rest = written.removeprefix(kind)
    if _EXTRA.sub("", rest):
        raise ConfigError(f"no arm {head!r}; there are: {known_arms()}")
    arm = Arm(head, kind, _KINDS[kind])
    for sign, name in _EXTRA.findall(rest):
        arm = _changed(arm, sign, name)
    if arm.released and arm.layout:
        raise ConfigError(
            f"arm {head!r}: only graphs know the other layout, and +release runs without them"
        )
    return arm


def _fitting(arm: Arm) -> Arm:
    """The arm, with pieces of at most half its budget: a larger one fits beside no decodes."""
    if not arm.piped or arm.budget is None:
        return arm
    most = max(1, arm.budget // 2)
    pieces = {name: min(arm.grape[name], most) for name in ("chunk", "lump")}
    return replace(arm, grape={**arm.grape, **pieces})


def _changed(arm: Arm, sign: str, name: str) -> Arm:
    """The arm with one extra, or without one mechanism of ours."""
    match sign + name:
        case "+draft":
            return replace(arm, engine={**arm.engine, _DRAFTING: dict(DRAFT)})
        case "+warm":
            return replace(arm, warmed=True)
        case "+release":
            return replace(arm, released=True)
        case "+layout":
            return replace(arm, layout=True)
        case "+pipe" if arm.kind == TUNED:
            # Our scheduler orders the calls then, by a rule to the same end.
            engine = {k: value for k, value in arm.engine.items() if k != "scheduling_policy"}
            return replace(arm, engine=engine, grape=dict(PIPE), piped=True)
    if sign == "-" and arm.kind == OURS and name in PLAIN:
        off = PLAIN[name]
        return replace(arm, grape={**arm.grape, name: off if isinstance(off, bool) else str(off)})
    raise ConfigError(
        f"arm {arm.name!r} has no {sign}{name}; there are: +draft, +warm, +release, "
        f"+layout, for {TUNED} +pipe, and for {OURS} -{', -'.join(PLAIN)}"
    )


def known_arms() -> str:
    """The kinds, for errors."""
    return ", ".join([*_KINDS, *_SHORT])


def _checked(arm: str, name: str, value: Any) -> Any:
    """The value of an engine setting; ConfigError for one that no engine takes."""
    least = _ENGINE_SETTINGS[name]
    if least is None:
        if value is not None and type(value) is not bool:
            raise ConfigError(f"arm {arm!r}: {name} is true or false, not {value!r}")
    elif value is not None and not (type(value) is int and least <= value <= _MOST):
        raise ConfigError(
            f"arm {arm!r}: {name} is a number from {least} to {_MOST}, not {value!r:.40}"
        )
    return value


def _order(arm: str, value: str) -> Order:
    for order in get_args(Order):
        if value == order:
            return cast(Order, order)
    raise ConfigError(f"arm {arm!r}: order is {' or '.join(get_args(Order))}, not {value!r:.40}")


def parse_arms(text: str) -> tuple[Arm, ...]:
    """Arms separated by commas, in this order.

    Since no kind holds an equals sign, ``grape:a=1,b=2,vllm`` are two arms. Raises ConfigError
    as ``parse_arm`` does, when there is none, and when one stands there twice.
    """
    specs: list[str] = []
    for piece in (piece.strip() for piece in text.split(",")):
        if "=" in piece and ":" not in piece and specs and ":" in specs[-1]:
            specs[-1] += f",{piece}"
        elif piece:
            specs.append(piece)
    if not specs:
        raise ConfigError(f"no arm in {text!r}; there are: {known_arms()}")
    twice = sorted({spec for spec in specs if specs.count(spec) > 1})
    if twice:
        raise ConfigError(f"{', '.join(twice)} stands twice among the arms {text!r}")
    return tuple(parse_arm(spec) for spec in specs)


def tuned_name(arms: Sequence[Arm]) -> str | None:
    """The arm that ratios are against unless told otherwise: the first tuned one.

    One that is tuned and nothing else goes before warmed and drafting ones.
    """
    tuned = sorted((arm for arm in arms if arm.kind == TUNED), key=lambda arm: not arm.plain)
    return tuned[0].name if tuned else None


def with_budget(arms: Sequence[Arm], budget: int | None) -> tuple[Arm, ...]:
    """``arms`` with this token budget for the tuned ones that name none.

    One that names ``none`` keeps vLLM's default. budget: None changes nothing.
    """
    if budget is None:
        return tuple(arms)
    return tuple(
        _fitting(replace(arm, engine={**arm.engine, BUDGET: budget}))
        if arm.kind == TUNED and BUDGET not in arm.engine
        else arm
        for arm in arms
    )


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
