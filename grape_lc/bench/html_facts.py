"""What was run, for the head of a report: from the ``meta`` of each file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from grape_lc.bench.html_input import Document

_LONGEST = 400  # characters of a value; what is longer is cut
UNKNOWN = "not recorded"


class Facts(NamedTuple):
    """main: what a reader asks first; all: every recorded setting by its path."""

    main: tuple[tuple[str, str], ...]
    all: tuple[tuple[str, str], ...]


def facts_of(document: Document) -> Facts:
    """What a file says about how it was measured."""
    meta = document.meta
    environment = _part(meta, "environment")
    settings = _part(meta, "settings")
    cores = environment.get("cores")
    machine = [
        environment.get("processor"),
        None if cores is None else f"{cores} cores",
        environment.get("device"),
        environment.get("system"),
    ]
    main = [
        ("command", _text(environment.get("command"))),
        ("date", _text(environment.get("date"))),
        ("machine", ", ".join(_text(part) for part in machine if part is not None) or UNKNOWN),
        ("Python", _text(environment.get("python"))),
        ("versions", _versions(environment.get("versions", meta.get("version")))),
        ("model", _model(settings)),
        ("equal answers", equal_text(document)),
    ]
    if not document.runs and not document.metrics:
        # A map or a table of simulations has no machine, and no answers.
        main = [fact for fact in main if fact[1] != UNKNOWN]
    return Facts(tuple(main), tuple(_flat(meta, "")))


def equal_text(document: Document) -> str:
    """How many answers of the other variants are those of the baseline, and of which not all."""
    equal = document.equal
    compared, identical = equal.get("compared"), equal.get("identical")
    if not compared:
        return UNKNOWN
    text = f"{identical} of {compared} are letter by letter those of {equal.get('baseline', '?')}"
    parts = _part(equal, "variants")
    short = [
        f"{name} {found.get('identical')} of {found.get('compared')}"
        for name, found in parts.items()
        if isinstance(found, Mapping) and found.get("identical") != found.get("compared")
    ]
    return text + (f"; not all: {', '.join(short)}" if short else "")


def _part(data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = data.get(name)
    return part if isinstance(part, Mapping) else {}


def _model(settings: Mapping[str, Any]) -> str:
    if "model" not in settings:
        return UNKNOWN
    return "the embedded model" if settings["model"] is None else _text(settings["model"])


def _versions(versions: Any) -> str:
    if not isinstance(versions, Mapping):
        return _text(versions)
    return ", ".join(f"{name} {_text(version)}" for name, version in versions.items()) or UNKNOWN


def _text(value: Any) -> str:
    if value is None:
        return UNKNOWN
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Every value by its path; a list is one value, unless there are mappings in it."""
    parts: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        parts = enumerate(value)
    if parts:
        for name, part in parts:
            yield from _flat(part, f"{path}.{name}" if path else str(name))
    elif path:
        yield path, "none" if value is None else _text(value)
