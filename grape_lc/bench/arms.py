"""The names of the arms of a comparison, read.

    vllm            vLLM as it comes
    vllm-opt        vLLM tuned for programs: prefix caching, calls in the order of ``ranking``, and
                    a token budget and an order that a sweep may choose
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
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast, get_args

from grape_lc.bench.arm import (
    BUDGET,
    DRAFTING,
    KINDS,
    MOST,
    OURS,
    PIPE,
    TUNED,
    Arm,
    Tuning,
    fitting,
    tuned_name,
    with_tuning,
)
from grape_lc.bench.names import separate
from grape_lc.bench.ranking import Order
from grape_lc.bench.settings import DRAFT
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PLAIN, PolicyConfig

__all__ = [
    "BUDGET",
    "OURS",
    "TUNED",
    "Arm",
    "Tuning",
    "parse_arm",
    "parse_arms",
    "tuned_name",
    "with_tuning",
]

_SHORT: Mapping[str, str] = {"warm": f"{TUNED}+warm", "layout": f"{TUNED}+layout"}
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
    return fitting(replace(base, name=text, engine=engine, grape=grape, order=order))


def _base(head: str) -> Arm:
    """What stands before the colon: a kind, and what is added to it or taken away."""
    first = re.split("[+-]", head, maxsplit=1)[0]
    written = _SHORT.get(first, first) + head.removeprefix(first)
    fitting = [kind for kind in KINDS if re.fullmatch(f"{kind}([+-].*)?", written)]
    if not fitting:
        raise ConfigError(f"no arm {head!r}; there are: {known_arms()}")
    kind = max(fitting, key=len)  # vllm-opt is no vllm without opt
    rest = written.removeprefix(kind)
    if _EXTRA.sub("", rest):
        raise ConfigError(f"no arm {head!r}; there are: {known_arms()}")
    arm = Arm(head, kind, KINDS[kind])
    for sign, name in _EXTRA.findall(rest):
        arm = _changed(arm, sign, name)
    if arm.released and arm.layout:
        raise ConfigError(
            f"arm {head!r}: only graphs know the other layout, and +release runs without them"
        )
    return arm


def _changed(arm: Arm, sign: str, name: str) -> Arm:
    """The arm with one extra, or without one mechanism of ours."""
    match sign + name:
        case "+draft":
            return replace(arm, engine={**arm.engine, DRAFTING: dict(DRAFT)})
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
    return ", ".join([*KINDS, *_SHORT])


def _checked(arm: str, name: str, value: Any) -> Any:
    """The value of an engine setting; ConfigError for one that no engine takes."""
    least = _ENGINE_SETTINGS[name]
    if least is None:
        if value is not None and type(value) is not bool:
            raise ConfigError(f"arm {arm!r}: {name} is true or false, not {value!r}")
    elif value is not None and not (type(value) is int and least <= value <= MOST):
        raise ConfigError(
            f"arm {arm!r}: {name} is a number from {least} to {MOST}, not {value!r:.40}"
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
    return tuple(map(parse_arm, separate(text, "arm", known_arms())))


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # thousands of digits or levels, too
        return text
