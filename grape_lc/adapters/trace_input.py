"""The input of a traced graph: markers in the place of all texts.

Without an example the input is made from the graph's schema. Which of its keys a run gives, and
which the nodes write, the schema does not say: the first trace gives all texts, and what a node is
seen to write is left out of the next. A key that a node then misses is given again.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin

from langchain_core.messages import HumanMessage
from langgraph.channels import LastValue
from langgraph.pregel import Pregel
from pydantic import BaseModel
from typing_extensions import is_typeddict

from grape_lc.adapters.inputs import WHOLE, identifier, input_items, replaced, with_texts
from grape_lc.adapters.markers import marker
from grape_lc.adapters.trace_answers import NUMBERS
from grape_lc.adapters.trace_numbers import Numbers

LISTS = (8, 7)
"""Texts in a list of an input, at least, in either variant of a trace."""

_MESSAGES = "messages"
_NOTHING = object()
_DEEPEST = 4


class SymbolicInput:
    """Makes the inputs of the runs of one trace."""

    def __init__(self, graph: Pregel[Any, Any, Any, Any], example: Any, numbers: Numbers) -> None:
        self._numbers = numbers
        self._example = example
        self._left_out: set[str] = set()
        self._given: set[str] = set()
        self._all = False
        schema = getattr(getattr(graph, "builder", None), "input_schema", None)
        self._hints: dict[str, Any] = {} if schema is None else typing.get_type_hints(schema)
        self._texts = [
            key
            for key, hint in self._hints.items()
            if _has_texts(hint, _DEEPEST)
            and type(graph.channels.get(key)) is LastValue
            and not _is_messages(hint)
        ]
        self._needed = [] if schema is None else _without_default(schema)

    def make(self, variant: int) -> Any:
        """The input of a run. variant: 0 or 1; what is no text, and lengths, differ in them."""
        example = self._from_schema(variant) if self._example is None else self._example
        if isinstance(example, str):
            return self._symbol(WHOLE)

        def resize(items: list[Any]) -> list[Any]:
            if not items or not _has_texts_in(items[-1]):
                return items
            size = max(LISTS[0], len(items) + 1) - (LISTS[0] - LISTS[1]) * variant
            return [*items, *[items[-1]] * (size - len(items))][:size]

        changed = {
            key: with_texts(value, identifier(key), self._symbol, resize)
            for key, value in input_items(example)
        }
        return replaced(example, changed)

    def seen(self, written: Iterable[str], missing: Sequence[str], *, failed: bool) -> bool:
        """Take in what a run showed; whether the next input is another one.

        written: keys that nodes wrote. missing: keys that one could not do without.
        """
        if self._example is not None:
            return False
        before = self._keys()
        wanted = [key for key in missing if key in self._hints and key not in before]
        if wanted:
            self._given.update(wanted)
        elif failed and _MESSAGES in self._hints and _MESSAGES not in before:
            self._given.add(_MESSAGES)
        elif not failed:
            self._left_out.update(key for key in written if key not in self._given)
        return self._keys() != before

    def take_back(self) -> None:
        """Leave nothing out any more: runs without some key came less far."""
        self._left_out.clear()

    @property
    def names(self) -> str:
        """Names of the input texts so far, for messages."""
        return ", ".join(self._numbers.named("input").values()) or "none"

    def _symbol(self, name: str) -> str:
        return marker(self._numbers.of("input", name))

    def _keys(self) -> list[str]:
        texts = [key for key in self._texts if key not in self._left_out]
        if not texts and _MESSAGES in self._hints:
            texts = [_MESSAGES]
        elif not texts:
            texts = self._texts
        return [*dict.fromkeys([*texts, *self._needed, *sorted(self._given)])]

    def _from_schema(self, variant: int) -> dict[str, Any]:
        made = {key: self._default(key, variant) for key in self._keys()}
        return {key: value for key, value in made.items() if value is not _NOTHING}

    def _default(self, key: str, variant: int) -> Any:
        hint = self._hints.get(key)
        if key == _MESSAGES or _is_messages(hint):
            return [HumanMessage("text")]
        return _default(hint, variant, _DEEPEST)


def _plain(hint: Any) -> Any:
    """A hint without what says how it is to be used."""
    while get_origin(hint) in (typing.Annotated, Required, NotRequired):
        hint = get_args(hint)[0]
    return hint


def _is_messages(hint: Any) -> bool:
    hint = _plain(hint)
    inner = get_args(hint)[:1]
    return get_origin(hint) in (list, Sequence) and bool(inner) and "Message" in str(inner[0])


def _has_texts(hint: Any, levels: int) -> bool:
    hint = _plain(hint)
    if hint is str:
        return True
    if not levels:
        return False
    if get_origin(hint) in (list, Sequence):
        return any(_has_texts(inner, levels - 1) for inner in get_args(hint)[:1])
    return any(_has_texts(inner, levels - 1) for inner in _fields_of(hint).values())


def _has_texts_in(item: Any) -> bool:
    return isinstance(item, str) or any(isinstance(v, str) for _, v in input_items(item))


def _fields_of(hint: Any) -> dict[str, Any]:
    if not isinstance(hint, type) or not (
        is_typeddict(hint) or issubclass(hint, BaseModel) or dataclasses.is_dataclass(hint)
    ):
        return {}
    try:
        return typing.get_type_hints(hint)
    except (NameError, TypeError):
        return {}


def _without_default(schema: Any) -> list[str]:
    """Fields of a class that has to have them."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        return [name for name, info in schema.model_fields.items() if info.is_required()]
    if dataclasses.is_dataclass(schema):
        return [
            item.name
            for item in dataclasses.fields(schema)
            if item.default is dataclasses.MISSING
            and item.default_factory is dataclasses.MISSING
            and item.init
        ]
    return []


def _default(hint: Any, variant: int, levels: int) -> Any:
    """A value of a type; ``_NOTHING`` where none can be made."""
    hint = _plain(hint)
    origin = get_origin(hint)
    simple = {str: "text", int: NUMBERS[variant], float: float(NUMBERS[variant]), bool: False}
    if hint in simple:
        return simple[hint]
    if origin is Literal:
        return get_args(hint)[0]
    if origin in (Union, types.UnionType):
        made = [_default(inner, variant, levels) for inner in get_args(hint)]
        return next((value for value in made if value is not _NOTHING), None)
    if origin in (list, Sequence) or hint is list:
        inner = [_default(one, variant, levels - 1) for one in get_args(hint)[:1]] if levels else []
        return [value for value in inner if value is not _NOTHING]
    if origin in (dict, Mapping) or hint is dict:
        return {}
    fields = _fields_of(hint) if levels else {}
    if not fields:
        return _NOTHING
    values = {key: _default(inner, variant, levels - 1) for key, inner in fields.items()}
    values = {key: value for key, value in values.items() if value is not _NOTHING}
    if is_typeddict(hint):
        return values
    return hint.model_construct(**values) if issubclass(hint, BaseModel) else hint(**values)
