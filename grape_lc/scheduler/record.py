"""One structured record a step: what the policy saw, what it planned, what came of it.

The same form from the real engine and from the simulator, one JSON object a line. A record holds
its whole snapshot, so ``replan`` can make the plan anew, and ``differences`` says where that
differs. What equals its default is left out.

    {"v": 1, "config": {...}}                                       once, at the head
    {"step": 7, "snapshot": {...}, "plan": {...}, "ran": {"c1": 1, "c2": 64},
     "refused": {"o3": "the engine did not run it"}, "load": [2, 65, 310, 0.0],
     "seconds": 0.061}                                              one a step
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, NamedTuple

from grape_lc.scheduler.cost import LinearCost, StepLoad
from grape_lc.scheduler.policy import plan
from grape_lc.scheduler.settings import PolicyConfig
from grape_lc.scheduler.types import (
    Decodes,
    Hint,
    Item,
    Level,
    Limit,
    Plan,
    Pool,
    Reason,
    Refusal,
    RequestView,
    Signals,
    Snapshot,
    Stage,
    Victim,
)

VERSION = 1

_GROUPS = ("prefills", "running", "waiting", "opens")


@dataclass(slots=True)
class StepRecord:
    """A step as it was recorded.

    snapshot, plan: in JSON form, taken before the step ran. ran: tokens by request id. refused:
    what was planned and did not run, and why. load, seconds: as measured; None if the step was
    not measured.
    """

    step: int
    snapshot: dict[str, Any]
    plan: dict[str, Any]
    ran: dict[str, int] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    load: StepLoad | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, snapshot: Snapshot, planned: Plan) -> StepRecord:
        """A record of what was seen and planned; copies, since views change."""
        return cls(snapshot.step, encode_snapshot(snapshot), encode_plan(planned))

    def finish(self, planned: Plan, ran: Mapping[str, int]) -> None:
        """Note what the engine ran, and what of the plan it did not."""
        self.ran = dict(ran)
        for item in (*planned.prefills, *(planned.starts or ()), *planned.opens):
            if item.tokens > 0 and item.id not in ran:
                self.refused[item.id] = Refusal.ENGINE.value

    def to_json(self) -> str:
        """One line."""
        document: dict[str, Any] = {
            "step": self.step,
            "snapshot": self.snapshot,
            "plan": self.plan,
            "ran": self.ran,
        }
        if self.refused:
            document["refused"] = self.refused
        if self.load is not None:
            document["load"] = list(self.load)
        if self.seconds is not None:
            document["seconds"] = self.seconds
        return json.dumps(document, separators=(",", ":"))

    @classmethod
    def from_mapping(cls, document: Mapping[str, Any]) -> StepRecord:
        """Read what ``to_json`` wrote. Raises ValueError if something is missing or unknown."""
        known = {item.name for item in fields(cls)}
        unknown = sorted(set(document) - known)
        missing = sorted({"step", "snapshot", "plan"} - set(document))
        if unknown or missing:
            raise ValueError(f"a step record with unknown {unknown} and missing {missing} fields")
        values = dict(document)
        if values.get("load") is not None:
            values["load"] = StepLoad(*values["load"])
        return cls(**values)


class Difference(NamedTuple):
    """A part of a plan that came out otherwise."""

    step: int
    part: str
    recorded: Any
    planned: Any


def header(config: PolicyConfig) -> str:
    """The first line of a file of records."""
    return json.dumps({"v": VERSION, "config": asdict(config)}, separators=(",", ":"))


def read(lines: Iterable[str]) -> tuple[PolicyConfig, Iterator[StepRecord]]:
    """The settings and the records of a file; the records are read as they are asked for.

    Raises ValueError or TypeError, with the number of the line, for anything that is no record.
    """
    numbered = enumerate(lines, start=1)
    first = _object(*next(numbered, (1, "")))
    if first.get("v") != VERSION:
        raise ValueError(f"line 1: records of version {first.get('v')!r}, known is {VERSION}")
    try:
        config = PolicyConfig.from_mapping(first.get("config", {}))
    except (TypeError, ValueError) as error:
        raise ValueError(f"line 1: {error}") from error

    def records() -> Iterator[StepRecord]:
        for number, line in numbered:
            if line.strip():
                try:
                    yield StepRecord.from_mapping(_object(number, line))
                except (TypeError, ValueError) as error:
                    raise ValueError(f"line {number}: {error}") from error

    return config, records()


def replan(record: StepRecord, config: PolicyConfig) -> dict[str, Any]:
    """The plan that ``config`` makes of a recorded snapshot, in JSON form."""
    return encode_plan(plan(decode_snapshot(record.snapshot), config))


def differences(record: StepRecord, config: PolicyConfig) -> list[Difference]:
    """Where the plan made anew differs from the recorded one, part by part."""
    planned = replan(record, config)
    parts = sorted(set(planned) | set(record.plan))
    return [
        Difference(record.step, part, record.plan.get(part), planned.get(part))
        for part in parts
        if record.plan.get(part) != planned.get(part)
    ]


# ---------------------------------------------------------------------- snapshots


def encode_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """A snapshot as plain values. Raises TypeError unless its cost is a ``LinearCost``."""
    cost = snapshot.cost
    if cost is not None and not isinstance(cost, LinearCost):
        raise TypeError(f"only a LinearCost can be recorded, not a {type(cost).__name__}")
    views: dict[str, RequestView] = {}
    for name in _GROUPS:
        views |= {view.id: view for view in getattr(snapshot, name)}
    document: dict[str, Any] = {
        "step": snapshot.step,
        "now": snapshot.now,
        "max_tokens": snapshot.max_tokens,
        "free_rows": snapshot.free_rows,
        "least_call_tokens": snapshot.least_call_tokens,
        "pool": _given(snapshot.pool),
        "decodes": _given(snapshot.decodes),
        "signals": _given(snapshot.signals),
        "cost": None if cost is None else cost.to_mapping(),
        "served": dict(snapshot.served),
        "views": [_encode_view(view) for view in views.values()],
    }
    for name in _GROUPS:
        document[name] = [view.id for view in getattr(snapshot, name)]
    return document


def decode_snapshot(document: Mapping[str, Any]) -> Snapshot:
    """Read what ``encode_snapshot`` wrote. Raises ValueError or TypeError for anything else."""
    try:
        views = {view["id"]: _decode_view(view) for view in document["views"]}
        groups = {name: tuple(views[key] for key in document[name]) for name in _GROUPS}
        cost = document["cost"]
        return Snapshot(
            step=document["step"],
            now=document["now"],
            max_tokens=document["max_tokens"],
            free_rows=document["free_rows"],
            least_call_tokens=document["least_call_tokens"],
            pool=Pool(**document["pool"]),
            decodes=Decodes(**document["decodes"]),
            signals=Signals(**document["signals"]),
            cost=None if cost is None else LinearCost.from_mapping(cost),
            served=document["served"],
            **groups,
        )
    except KeyError as error:
        raise ValueError(f"a snapshot without {error}") from error


def encode_plan(planned: Plan) -> dict[str, Any]:
    """A plan as plain values."""
    return {
        "budget": planned.budget,
        "limit": planned.limit.value,
        "prefills": _items(planned.prefills),
        "starts": None if planned.starts is None else _items(planned.starts),
        "opens": _items(planned.opens),
        "preempt": [list(victim) for victim in planned.preempt],
        "refused": {key: why.value for key, why in sorted(planned.refused.items())},
        "reserve": planned.reserve,
        "level": planned.level.value,
        "level_reason": planned.level_reason,
        "predicted_s": planned.predicted_s,
    }


def decode_plan(document: Mapping[str, Any]) -> Plan:
    """Read what ``encode_plan`` wrote. Raises ValueError, TypeError or KeyError otherwise."""
    starts = document["starts"]
    return Plan(
        budget=document["budget"],
        limit=Limit(document["limit"]),
        prefills=_read_items(document["prefills"]),
        starts=None if starts is None else _read_items(starts),
        opens=_read_items(document["opens"]),
        preempt=tuple(Victim(*victim) for victim in document["preempt"]),
        refused={key: Refusal(why) for key, why in document["refused"].items()},
        reserve=document["reserve"],
        level=Level(document["level"]),
        level_reason=document["level_reason"],
        predicted_s=document["predicted_s"],
    )


def _items(items: Iterable[Item]) -> list[list[Any]]:
    return [[item.id, item.tokens, item.reason.value] for item in items]


def _read_items(rows: Iterable[Iterable[Any]]) -> tuple[Item, ...]:
    return tuple(Item(key, tokens, Reason(why)) for key, tokens, why in rows)


def _changed(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that differ from their defaults."""
    found = {}
    for item in fields(value):
        content = getattr(value, item.name)
        if item.default is MISSING or content != item.default:
            found[item.name] = _plain(content)
    return found


def _given(value: Pool | Decodes | Signals) -> dict[str, Any]:
    """The same of a tuple."""
    defaults = value._field_defaults
    return {
        name: content
        for name, content in value._asdict().items()
        if name not in defaults or content != defaults[name]
    }


def _plain(content: Any) -> Any:
    """The value that JSON gives back for it."""
    if isinstance(content, StrEnum):
        return content.value
    return list(content) if isinstance(content, tuple) else content


def _encode_view(view: RequestView) -> dict[str, Any]:
    document = _changed(view)
    if "hint" in document:
        document["hint"] = _changed(view.hint)
    return document


def _decode_view(document: Mapping[str, Any]) -> RequestView:
    values = dict(document)
    values["stage"] = Stage(values["stage"])
    values["rank"] = tuple(values.get("rank", ()))
    hint = dict(values.get("hint", {}))
    if "after" in hint:
        hint["after"] = tuple(hint["after"])
    values["hint"] = Hint(**hint)
    return RequestView(**values)


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise TypeError(f"line {number}: not an object but {type(document).__name__}")
    return document
