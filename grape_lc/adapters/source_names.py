"""What the names in a user's modules are bound to, read from the modules' source."""

from __future__ import annotations

import ast
import contextlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

# Folders of code that is not the user's. A flow is not traced anew when a library is updated.
_LIBRARY_FOLDERS = tuple(
    {Path(sysconfig.get_path(key)) for key in ("stdlib", "platstdlib", "purelib", "platlib")}
)
T = TypeVar("T")

_FRAMEWORKS = frozenset({"grape_lc", "langchain", "langgraph", "pydantic", "pydantic_core"})
_OUR_EXAMPLES = "grape_lc._workflows"


def is_framework(module: str) -> bool:
    """Whether a module is of the standard library, of this package or of what graphs are made with.

    Its functions may be nodes, and are not the user's all the same.
    """
    if module == _OUR_EXAMPLES or module.startswith(f"{_OUR_EXAMPLES}."):
        return False
    top = module.partition(".")[0]
    if top == "__main__":
        return False
    return top in _FRAMEWORKS or top.startswith("langchain_") or top in sys.stdlib_module_names


def is_library(module: str | None) -> bool:
    """Whether a module is a framework's or of an installed package.

    A module without a file, such as a notebook's, is the user's.
    """
    name = module or "__main__"
    if is_framework(name):
        return True
    file = getattr(sys.modules.get(name), "__file__", None)
    if not isinstance(file, str):
        return False
    path = Path(file)
    return any(path.is_relative_to(folder) for folder in _LIBRARY_FOLDERS)


@dataclass(frozen=True, slots=True)
class Binding:
    """The statements at a module's top level that bind a name.

    text: their source. names: the names that they read, in the order of the text.
    imported: module and name that ``from module import name`` takes it from.
    """

    text: str
    names: tuple[str, ...]
    imported: tuple[str, str] | None = None


class Bindings:
    """How modules bind their names, each module read once. One for each hash: sources change."""

    def __init__(self) -> None:
        self._modules: dict[ModuleType, Mapping[str, Binding]] = {}

    def of(self, module_globals: Mapping[str, Any], name: str) -> Binding | None:
        """How the module with these globals binds ``name``; ``None`` when its source is silent."""
        module = sys.modules.get(str(module_globals.get("__name__")))
        if module is None or module.__dict__ is not module_globals:
            return None
        if module not in self._modules:
            self._modules[module] = _read(module)
        return self._modules[module].get(name)


def steady(parse: Callable[[], T]) -> T:
    """What ``parse`` returns, tried again where CPython 3.11 gets confused.

    It compares the recursion depth before and after it builds a syntax tree, and raises SystemError
    when another thread, or a garbage collection, did the same in between.
    """
    for _ in range(3):
        with contextlib.suppress(SystemError):
            return parse()
    return parse()


# A module's source and what was read in it: graphs are hashed again and again, and reading is slow.
_known: WeakKeyDictionary[ModuleType, tuple[str, Mapping[str, Binding]]] = WeakKeyDictionary()


def _read(module: ModuleType) -> Mapping[str, Binding]:
    try:
        source = inspect.getsource(module)
        known = _known.get(module)
        if known is not None and known[0] == source:
            return known[1]
        tree = steady(lambda: ast.parse(source))
    except (OSError, TypeError, SyntaxError, ValueError):
        return {}
    found = _bindings(module, source, tree)
    _known[module] = source, found
    return found


def _bindings(module: ModuleType, source: str, tree: ast.Module) -> Mapping[str, Binding]:
    package = str(module.__dict__.get("__package__") or "")
    found: dict[str, Binding] = {}
    for statement in _statements(tree.body):
        text = ast.get_source_segment(source, statement) or ""
        if isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                origin = _origin(statement, package)
                found[alias.asname or alias.name] = Binding(text, (), (origin, alias.name))
            continue
        read = tuple(
            dict.fromkeys(
                node.id
                for node in ast.walk(statement)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
            )
        )
        for name in _bound(statement):
            before = found.get(name)
            if before is None or before.imported:
                found[name] = Binding(text, read)
            else:
                found[name] = Binding(f"{before.text}\n{text}", (*before.names, *read))
    return found


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those that run when the module does, out of ``if``, ``try`` and ``with`` too."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While):
            for field in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from _statements(handler.body)
        else:
            yield statement


def _bound(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield statement.name
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _targets(target)
        case ast.AnnAssign(target=target, value=ast.expr()) | ast.AugAssign(target=target):
            yield from _targets(target)
        case _:
            pass


def _targets(target: ast.expr) -> Iterator[str]:
    """Names that an assignment binds; ``PROMPTS["plan"] = ...`` adds to what PROMPTS is."""
    match target:
        case ast.Name(id=name):
            yield name
        case ast.Subscript(value=value) | ast.Attribute(value=value) | ast.Starred(value=value):
            yield from _targets(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from _targets(part)
        case _:
            pass


def _origin(statement: ast.ImportFrom, package: str) -> str:
    if not statement.level:
        return statement.module or ""
    parts = package.split(".")
    base = parts[: len(parts) - statement.level + 1]
    return ".".join([*base, *([statement.module] if statement.module else [])])
