"""Answers of a traced call in the form it asks for: a text, JSON of a schema, a call of a tool.

Texts are markers, so that they are found again in later prompts:

    {"plan": "<marker of the field plan>", "steps": ["<marker>", "<marker>"], "kind": "bug"}

What is no free text is chosen (trace_choices.py), or differs between the two variants of a trace:
numbers and the lengths of lists. What then differs in a prompt is not known beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grape_lc.adapters.chat_tools import name_of
from grape_lc.adapters.markers import marker, short_marker
from grape_lc.engine.base import CallPiece, CallRequest
from grape_lc.flow.transducers import IDENTITY, json_spec

LENGTHS = (3, 2)
"""Items of a list in an answer, in either variant of a trace."""

NUMBERS = (1, 2)
"""A number in an answer, in either variant."""

_MOST_TOOLS = 4  # that are tried as the answer of one call
_DEEPEST = 6  # levels of a schema that refers to itself
_SHORT = ("text", "words")  # where the schema has no room for a marker
_FORMATS = {
    "date": ("2001-02-03", "2002-03-04"),
    "date-time": ("2001-02-03T04:05:06Z", "2002-03-04T05:06:07Z"),
    "time": ("04:05:06Z", "05:06:07Z"),
    "duration": ("P1D", "P2D"),
    "email": ("a@example.com", "b@example.com"),
    "uri": ("https://example.com/a", "https://example.com/b"),
    "uuid": ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002"),
}

Choose = Callable[[str, int], int]
"""A choice: what it is about, how many options there are; gives the index of one."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of a traced call.

    chosen: texts of it that were chosen among several, by the transducer that takes them out.
    document: whether the text is JSON.
    """

    text: str
    calls: tuple[CallPiece, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)
    document: bool = False


def answer(
    request: CallRequest, number: int, choose: Choose, variant: int, *, thinks: bool
) -> Answer:
    """An answer of the form that ``request`` asks for.

    number: of its marker. variant: 0 or 1. thinks: a free text begins with thoughts.
    """
    rules = _rules(request)
    if request.tools and not _is_forced(rules):
        option = choose("tool", 1 + min(len(request.tools), _MOST_TOOLS))
        # A call first: what follows it is the more to be known.
        if option < min(len(request.tools), _MOST_TOOLS):
            return _call(request.tools[option], choose, variant)
    if (schema := _schema(rules)) is not None:
        filled = _Filler(number, schema, choose, variant)
        text = json.dumps(filled.value(schema, ()), ensure_ascii=False)
        return Answer(text, chosen=filled.chosen, document=True)
    if words := rules.get("choice"):
        word = str(words[choose("choice", len(words))])
        return Answer(word, chosen={IDENTITY.name: word})
    return Answer(marker(number, thinks=thinks))


def _call(tool: Mapping[str, Any], choose: Choose, variant: int) -> Answer:
    parameters = tool["function"].get("parameters") or {}
    # The arguments are no part of the answer's text, so that no slot can stand for them.
    filled = _Filler(None, parameters, choose, variant)
    arguments = filled.value({"type": "object", **parameters}, ("arguments",))
    name = name_of(tool)
    piece = CallPiece(0, json.dumps(arguments, ensure_ascii=False), name, f"call_{name}")
    return Answer("", calls=(piece,))


def _rules(request: CallRequest) -> Mapping[str, Any]:
    rules = request.sampling.structured_outputs
    return rules if isinstance(rules, Mapping) else {}


def _is_forced(rules: Mapping[str, Any]) -> bool:
    return "json" in rules


def _schema(rules: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON schema of an answer that is no call."""
    schema = rules.get("json")
    if isinstance(schema, str):
        schema = json.loads(schema)
    tag = rules.get("structural_tag")
    if schema is None and isinstance(tag, str):
        elements = json.loads(tag).get("format", {}).get("elements", ())
        schema = next((e["json_schema"] for e in elements if e.get("type") == "json_schema"), None)
    if schema is None and rules.get("json_object"):
        schema = {"type": "object"}
    return dict(schema) if isinstance(schema, Mapping) else None


class _Filler:
    """Makes values of a schema. chosen: texts that were chosen, by path."""

    def __init__(
        self, number: int | None, root: Mapping[str, Any], choose: Choose, variant: int
    ) -> None:
        self._number = number
        self._root = root
        self._choose = choose
        self._variant = variant
        self.chosen: dict[str, str] = {}

    def value(self, schema: Any, path: tuple[str, ...]) -> Any:
        """A value of ``schema``, which stands at ``path`` in the answer."""
        schema = self._resolved(schema)
        where = ".".join(path)
        if "const" in schema:
            return schema["const"]
        if options := schema.get("enum"):
            return self._picked(options, path)
        if several := self._alternatives(schema):
            option = self._choose(f"form of {where}", len(several)) if len(several) > 1 else 0
            return self.value(several[option], path)
        match self._kind(schema):
            case "object":
                return self._object(schema, path)
            case "array":
                return [self.value(s, (*path, str(n))) for n, s in enumerate(self._items(schema))]
            case "boolean":
                return self._choose(f"field {where}", 2) == 0
            case "integer" | "number" as kind:
                return self._number_of(schema, whole=kind == "integer")
            case "null":
                return None
        return self._text(schema, path)

    def _resolved(self, schema: Any) -> Mapping[str, Any]:
        for _ in range(_DEEPEST):
            reference = schema.get("$ref") if isinstance(schema, Mapping) else None
            if not isinstance(reference, str):
                break
            found: Any = self._root
            for key in reference.removeprefix("#/").split("/"):
                found = found.get(key, {}) if isinstance(found, Mapping) else {}
            schema = {**{k: v for k, v in schema.items() if k != "$ref"}, **found}
        whole = schema.get("allOf") if isinstance(schema, Mapping) else None
        if isinstance(whole, list):
            merged: dict[str, Any] = {k: v for k, v in schema.items() if k != "allOf"}
            for part in whole:
                merged = {**self._resolved(part), **merged}
            return merged
        return schema if isinstance(schema, Mapping) else {}

    def _alternatives(self, schema: Mapping[str, Any]) -> list[Any]:
        """What a value may be, without "nothing" where it can be something."""
        kinds = schema.get("type")
        several: list[Any] = [*(schema.get("anyOf") or schema.get("oneOf") or ())]
        if isinstance(kinds, list):
            several = [{**schema, "type": kind} for kind in kinds]
        something = [s for s in several if self._resolved(s).get("type") != "null"]
        return something or several

    @staticmethod
    def _kind(schema: Mapping[str, Any]) -> str:
        if "type" not in schema and "properties" in schema:
            return "object"
        if "type" not in schema and ("items" in schema or "prefixItems" in schema):
            return "array"
        return str(schema.get("type", "string"))

    def _picked(self, options: Sequence[Any], path: tuple[str, ...]) -> Any:
        where = ".".join(path)
        picked = (
            options[self._choose(f"field {where}", len(options))] if options[1:] else options[0]
        )
        if isinstance(picked, str):
            self.chosen[json_spec(path)] = picked
        return picked

    def _object(self, schema: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        required = schema.get("required") or ()
        return {
            name: self.value(inner, (*path, name))
            for name, inner in (schema.get("properties") or {}).items()
            if name in required or len(path) < _DEEPEST
        }

    def _items(self, schema: Mapping[str, Any]) -> list[Any]:
        first = [*(schema.get("prefixItems") or ())]
        wanted = max(schema.get("minItems", 0), LENGTHS[self._variant], len(first))
        size = min(wanted, schema.get("maxItems", wanted))
        items = schema.get("items")
        return [*first, *[items if isinstance(items, Mapping) else {}] * (size - len(first))]

    def _number_of(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        wanted = NUMBERS[self._variant]
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        if low is not None and wanted <= low:
            wanted = low + wanted if "minimum" not in schema else low + wanted - 1
        if high is not None and wanted >= high:
            inside = high if "maximum" in schema else (high - 1 if whole else high / 2)
            wanted = inside if whole or low is None else (low + high) / (2 + self._variant)
        return int(wanted) if whole else float(wanted)

    def _text(self, schema: Mapping[str, Any], path: tuple[str, ...]) -> str:
        if schema.get("format") in _FORMATS:
            return _FORMATS[schema["format"]][self._variant]
        texts = [_SHORT[self._variant]]
        if self._number is not None and path:
            texts = [marker(self._number, path), short_marker(self._number, path), *texts]
        least, most = schema.get("minLength", 0), schema.get("maxLength", len(texts[0]))
        fits = (text for text in texts if least <= len(text) <= most)
        return next(fits, texts[-1][:most].ljust(least, "."))
