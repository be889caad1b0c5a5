"""The compiled graph that ``module:graph`` names.

    app:graph               module ``app``, found in the current folder or installed
    pkg.agents:make_graph   a function that returns a graph is called, without arguments or with
                            an empty config, as langgraph.json allows
    src/app.py:graph        a file, its folder searched for what it imports
    app:holder.graph        an attribute of an attribute

A graph that is not compiled yet is compiled. Importing a module and calling a function run the
user's code, whatever it does: ``grape trace`` does it in a sandbox.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from langgraph.graph.state import StateGraph
from langgraph.pregel import Pregel

from grape_lc.errors import ConfigError, TraceError
from grape_lc.files import import_file

AnyGraph = Pregel[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A graph's place: ``module`` is a dotted name or a file that ends in ``.py``."""

    module: str
    attribute: str

    @classmethod
    def parse(cls, text: str) -> Target:
        """``module:attribute``. Raises ConfigError for anything else."""
        module, colon, attribute = text.rpartition(":")
        names = attribute.split(".")
        dotted = module.endswith(".py") or all(name.isidentifier() for name in module.split("."))
        if not colon or not dotted or not all(name.isidentifier() for name in names):
            raise ConfigError(
                f"{text!r} names no graph: give module:graph, such as app:graph, "
                "pkg.app:make_graph or src/app.py:graph"
            )
        return cls(module, attribute)

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


def load_graph(target: Target | str, folder: Path) -> AnyGraph:
    """Import the module and give its graph, compiled.

    folder: where relative files and modules are looked for, in front of installed ones. It stays
        on ``sys.path``, for modules that are imported later.

    Raises ConfigError when there is no such module, file, attribute or graph; TraceError when the
    module or the function that makes the graph fails, with the user's error as the cause.
    """
    if isinstance(target, str):
        target = Target.parse(target)
    module = _module(target, folder)
    found: Any = module
    for name in target.attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            graphs = ", ".join(_graphs(module)) or "none"
            raise ConfigError(
                f"{target.module} has no {target.attribute!r}; graphs in it: {graphs}"
            ) from None
    return _compiled(_made(found, target), target, module)


def _module(target: Target, folder: Path) -> ModuleType:
    path = folder / target.module if target.module.endswith(".py") else None
    if path is not None and not path.is_file():
        raise ConfigError(f"cannot load {target}: there is no file {path}")
    for place in (folder, *([path.resolve().parent] if path is not None else [])):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
    try:
        return importlib.import_module(target.module) if path is None else _from_file(path)
    except ModuleNotFoundError as error:
        if path is None and error.name and f"{target.module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"cannot load {target}: there is no module {error.name!r} in {folder} or installed"
            ) from None
        raise TraceError(f"{target.module} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        raise TraceError(
            f"{target.module} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _from_file(path: Path) -> ModuleType:
    """The module of a file, under the name by which other modules would import it."""
    path = path.resolve()
    name = path.stem
    known = sys.modules.get(name)
    if known is not None and getattr(known, "__file__", None) == str(path):
        return known
    if known is not None or not name.isidentifier():
        name = f"_grape_{''.join(c if c.isalnum() else '_' for c in name)}"
    module = import_file(name, path)
    if module is None:
        raise ConfigError(f"{path} is not a Python file")
    return module


def _made(found: Any, target: Target) -> Any:
    """``found``, or what it returns if it makes graphs."""
    if isinstance(found, Pregel | StateGraph | type) or not callable(found):
        return found
    try:
        parameters = inspect.signature(found).parameters.values()
        needed = [
            p.name
            for p in parameters
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        # LangGraph's servers call a function of one parameter with the config of the run.
        made = found({"configurable": {}}) if len(needed) == 1 else found()
        return _awaited(made) if inspect.isawaitable(made) else made
    except (Exception, SystemExit) as error:
        raise TraceError(f"{target} failed: {type(error).__name__}: {error}") from error


def _awaited(made: Any) -> Any:
    """The result of an asynchronous function, in a thread: the caller may be in a loop."""

    async def wait() -> Any:
        return await made

    with ThreadPoolExecutor(1, thread_name_prefix="grape-load") as executor:
        return executor.submit(lambda: asyncio.run(wait())).result()


def _compiled(found: Any, target: Target, module: ModuleType) -> AnyGraph:
    if isinstance(found, StateGraph):
        try:
            return found.compile()
        except ValueError as error:
            raise TraceError(f"{target} does not compile: {error}") from error
    if isinstance(found, Pregel):
        return found
    graphs = ", ".join(_graphs(module)) or "none"
    raise ConfigError(
        f"{target} is no LangGraph graph but {type(found).__name__}; graphs in "
        f"{target.module}: {graphs}"
    )


def _graphs(module: ModuleType) -> Iterator[str]:
    content: Mapping[str, Any] = vars(module)
    yield from (name for name, value in content.items() if isinstance(value, Pregel | StateGraph))
