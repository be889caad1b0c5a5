"""One hash over what a graph's prompts depend on: its structure, and the source of its nodes.

A flow that was found in a graph holds for the code that the graph had then. The hash tells a
changed graph from the same one in another process. It goes over

- the nodes, edges, branches and channels of the compiled graph and of its subgraphs;
- the source of the functions of nodes, branches and reducers, and of what they name in the
  user's own modules: functions, classes, and what other names are assigned, such as a prompt;
- the values that functions close over, and texts of several words that were read at import.

Installed packages count by name only, unless nodes are of them. The name of the user's module does
not count, since ``python app.py`` calls it ``__main__``. What functions read while they run is not
seen.
"""

from __future__ import annotations

import builtins
import dataclasses
import enum
import functools
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.runnables import Runnable
from langgraph.channels.base import BaseChannel
from langgraph.pregel import Pregel
from pydantic import BaseModel

from grape_lc.adapters.callsite import function_of
from grape_lc.adapters.secrets import is_secret_name
from grape_lc.adapters.source_names import Bindings, is_framework, is_library, steady

_DEEPEST = 40  # of values in values; a hash must come to an end on any object

# Parts of a compiled graph or a runnable that say how it is watched and not what it does.
_UNSEEN = frozenset({"callbacks", "config", "metadata", "tags", "run_id", "verbose"})


def source_hash(graph: Pregel[Any, Any, Any, Any]) -> str:
    """SHA-256 (64 hexadecimal digits) of a compiled graph; the same in every process.

    Comments count, as they are part of a function's source. Without source, as for code made by
    ``exec``, the compiled code counts, which differs between versions of Python.
    """
    digest = hashlib.sha256()
    for line in _Walk().graph(graph):
        digest.update(line.encode("utf-8", "surrogatepass"))
        digest.update(b"\n")
    return digest.hexdigest()


class _Walk:
    """Puts what a graph is made of into lines; each thing once, then by its number."""

    def __init__(self) -> None:
        # Objects are kept, so that no id is used twice while the walk lasts.
        self._seen: dict[int, tuple[int, object]] = {}
        self._named: set[tuple[int, str]] = set()
        self._homes: set[str] = set()
        self._bindings = Bindings()
        self._depth = 0

    # -- graphs -----------------------------------------------------------------------------

    def graph(self, graph: Pregel[Any, Any, Any, Any]) -> Iterator[str]:
        builder = getattr(graph, "builder", None)
        for node in graph.nodes.values():
            self._at_home(node.bound)
        yield "graph"
        for name in sorted(graph.nodes):
            node = graph.nodes[name]
            yield f"node {name!r} {_texts(node.triggers)} {_texts(node.channels)}"
            spec = builder.nodes.get(name) if builder is not None else None
            if spec is None:
                yield from self.value(node.bound)
                continue
            yield from self.value(spec.runnable)
            yield f"ends {_texts(spec.ends)} {spec.defer} {spec.error_handler_node}"
        for name, channel in sorted(graph.channels.items()):
            yield f"channel {name!r} {type(channel).__name__}"
            if isinstance(channel, BaseChannel) and (reducer := getattr(channel, "operator", None)):
                yield from self.value(reducer)
        yield f"input {_texts(graph.input_channels)} output {_texts(graph.output_channels)}"
        if builder is None:
            return
        for edge in sorted(builder.edges):
            yield f"edge {edge!r}"
        for starts, end in sorted(builder.waiting_edges):
            yield f"edge {tuple(starts)!r} {end!r}"
        for source, branches in sorted(builder.branches.items()):
            for name, branch in sorted(branches.items()):
                yield f"branch {source!r} {name!r} {_texts(branch.ends)}"
                yield from self.value(branch.path)

    def _at_home(self, runnable: Any) -> None:
        """The package of a node is the user's, also where it is installed like a library."""
        function = function_of(runnable) or runnable
        while isinstance(function, functools.partial):
            function = function.func
        module = getattr(function, "__module__", None) or type(function).__module__
        if not is_framework(module):
            self._homes.add(module.partition(".")[0])

    def _is_library(self, module: str | None) -> bool:
        return is_library(module) and (module or "").partition(".")[0] not in self._homes

    # -- values -----------------------------------------------------------------------------

    def value(self, value: object) -> Iterator[str]:
        """Lines for a value: by its content where that is the same in every process."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            yield f"{type(value).__name__} {value!r}"
            return
        if isinstance(value, tuple):
            # Whether equal ones are one object depends on how the code was loaded.
            yield f"tuple {len(value)}"
            self._depth += 1
            if self._depth < _DEEPEST:
                for item in value:
                    yield from self.value(item)
            self._depth -= 1
            return
        if id(value) in self._seen:
            yield f"again {self._seen[id(value)][0]}"
            return
        if self._depth >= _DEEPEST:
            yield f"deep {type(value).__name__}"
            return
        self._seen[id(value)] = (len(self._seen), value)
        self._depth += 1
        try:
            yield from self._object(value)
        finally:
            self._depth -= 1

    def _object(self, value: Any) -> Iterator[str]:
        match value:
            case enum.Enum():
                yield f"{type(value).__name__}.{value.name}"
            case Mapping():
                yield f"mapping {len(value)}"
                for key, item in value.items():
                    yield from self._field(key, item)
            case frozenset():
                yield f"frozenset {sorted(map(_plain, value))}"
            case list():
                yield f"list {len(value)}"
                for item in value:
                    yield from self.value(item)
            case functools.partial():
                yield "partial"
                yield from self.value((value.func, value.args, value.keywords))
            case MethodType():
                yield from self.value(value.__self__)
                yield from self.value(value.__func__)
            case FunctionType():
                yield from self._function(value)
            case type():
                yield from self._class(value)
            case BuiltinFunctionType():
                yield f"built in {value.__module__}.{value.__qualname__}"
            case Pregel():
                yield from self.graph(value)
            case BaseLanguageModel() | ModuleType():
                # How a model samples and where it is does not change a prompt.
                yield f"{type(value).__name__}"
            case _:
                yield from self._instance(value)

    def _field(self, name: object, value: object) -> Iterator[str]:
        if isinstance(name, str) and is_secret_name(name):
            yield f"secret {name!r}"
            return
        yield f"field {_plain(name)}"
        yield from self.value(value)

    def _instance(self, value: Any) -> Iterator[str]:
        kind = type(value)
        library = self._is_library(kind.__module__)
        yield f"instance {kind.__qualname__}"
        if not library:
            yield from self.value(kind)
        function = getattr(value, "func", None)
        known = isinstance(value, Runnable | BaseModel) or dataclasses.is_dataclass(value)
        if library and not known:
            # Clients, locks and sets, which remember runs: what they hold differs between
            # processes. A ``func`` is what LangGraph's @task wraps.
            if isinstance(function, FunctionType | MethodType):
                yield from self.value(function)
            return
        for name, item in _fields(value):
            if name not in _UNSEEN:
                yield from self._field(name, item)

    # -- code -------------------------------------------------------------------------------

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield f"function {function.__qualname__}"
        if self._is_library(function.__module__):
            yield f"of {function.__module__}"
        else:
            yield from self._source(function)
            yield from self.value((function.__defaults__, function.__kwdefaults__))
            names = tuple(_names(function.__code__))
            for name in names:
                yield from self._global(function.__globals__, name, names)
        # A library's decorator closes over a function of the user's.
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            try:
                yield from self._field(name, cell.cell_contents)
            except ValueError:  # not filled yet
                yield f"empty {name!r}"

    def _class(self, kind: type) -> Iterator[str]:
        yield f"class {kind.__qualname__}"
        if self._is_library(kind.__module__):
            yield f"of {kind.__module__}"
            return
        yield from self._source(kind)
        for base in kind.__bases__:
            yield from self.value(base)
        for member in vars(kind).values():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if isinstance(function, FunctionType):
                yield from self.value(function)

    def _source(self, thing: FunctionType | type) -> Iterator[str]:
        try:
            yield textwrap.dedent(steady(lambda: inspect.getsource(thing)))
        except (OSError, TypeError):
            if isinstance(thing, FunctionType):
                yield from self._code(thing.__code__)

    def _code(self, code: CodeType) -> Iterator[str]:
        yield f"code {code.co_name} {code.co_code.hex()} {code.co_names} {code.co_varnames}"
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                yield from self._code(constant)
            else:
                yield from self.value(constant)

    def _global(
        self, module: Mapping[str, Any], name: str, names: tuple[str, ...]
    ) -> Iterator[str]:
        """Lines for what ``name`` means in a user's module; ``names`` stand in the same code."""
        if name not in module:
            if not hasattr(builtins, name):
                yield f"unknown {name!r}"
            return
        value = module[name]
        if isinstance(value, ModuleType):
            if not self._is_library(value.__name__):
                for inner in names:
                    if inner in value.__dict__:
                        yield from self._global(value.__dict__, inner, ())
            return
        if (id(module), name) in self._named:
            return
        self._named.add((id(module), name))
        yield f"name {name!r}"
        if isinstance(value, FunctionType | type | Pregel):
            yield from self.value(value)
            return
        bound = self._bindings.of(module, name)
        if bound is None:
            yield from self._field(name, value)
        elif bound.imported is None:
            # The source and not the value, which may come from this machine or this day.
            yield bound.text
            for inner in bound.names:
                yield from self._global(module, inner, bound.names)
            if isinstance(value, str) and len(value.split()) > 1:
                # A prompt that was read from a file; the digits of a date or a time left out.
                yield re.sub(r"[0-9]+", "0", value)
        elif not self._is_library(bound.imported[0]):
            yield from self._imported(bound.imported, value, names)

    def _imported(
        self, origin: tuple[str, str], value: object, names: tuple[str, ...]
    ) -> Iterator[str]:
        module = sys.modules.get(origin[0])
        if module is None:
            yield from self._field(origin[1], value)
        else:
            yield from self._global(module.__dict__, origin[1], names)


def _names(code: CodeType) -> Iterator[str]:
    """Names that a function and those inside of it look up; attributes are among them."""
    found = dict.fromkeys(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(dict.fromkeys(_names(constant)))
    yield from found


def _fields(value: object) -> Iterator[tuple[str, object]]:
    if dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        for name, item in getattr(value, "__dict__", {}).items():
            # A cached property is there only after the first run.
            if not isinstance(getattr(type(value), name, None), functools.cached_property):
                yield name, item


def _plain(value: object) -> str:
    return repr(value) if isinstance(value, str | int | float | bytes) else type(value).__name__


def _texts(value: object) -> str:
    """Names of channels or nodes, in any of the forms that LangGraph keeps them in."""
    if isinstance(value, Mapping):
        return repr(sorted((str(key), str(item)) for key, item in value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        return repr(sorted(str(item) for item in value))
    return repr(value)
