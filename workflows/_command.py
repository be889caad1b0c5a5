"""What the command lines of the example agents have in common."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")


def command(name: str, description: str | None, thing: str) -> argparse.ArgumentParser:
    """The options that every example has. thing: what it works on, such as ``problem``."""
    parser = argparse.ArgumentParser(prog=f"python -m workflows.{name}", description=description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--llm", default="grape_lc:ChatGrape", metavar="MODULE:NAME")
    parser.add_argument(f"--{thing}", type=int, default=0, metavar="N", help="0 is the first")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help=f"JSONL files with a {thing} a line"
    )
    parser.add_argument("--max-tokens", type=int, default=200, metavar="N", help="per role")
    return parser


def loaded(
    parser: argparse.ArgumentParser, load: Callable[[Path | None], _T], source: Path | None
) -> _T:
    """What ``load`` finds there; if it can't be read or lacks a library, the program ends with a
    message.
    """
    try:
        return load(source)
    except (OSError, ValueError, ModuleNotFoundError) as error:
        parser.error(str(error) if source is None else f"--data {source}: {error}")


def chosen(
    parser: argparse.ArgumentParser, thing: str, items: Sequence[_T], options: argparse.Namespace
) -> _T:
    """The item that the command line asks for; an unknown one ends the program with a message."""
    number: int = getattr(options, thing)
    if not 0 <= number < len(items):
        parser.error(f"--{thing} {number}: there are {thing}s 0 to {len(items) - 1}")
    return items[number]


def model(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Any:
    """A chat model of the class that the command line names, with temperature 0."""
    module, _, name = options.llm.partition(":")
    try:
        return getattr(importlib.import_module(module), name)(temperature=0)
    except (ImportError, AttributeError) as error:
        parser.error(f"--llm {options.llm}: {error}")


def show(graph: Any, state: Mapping[str, Any]) -> None:
    """Run a graph and print each text that a node writes, as it is finished."""
    for update in graph.stream(dict(state), stream_mode="updates"):
        for role, written in update.items():
            for document in _texts(written):
                print(f"## {role}\n\n{document}\n", flush=True)


def _texts(written: Mapping[str, Any]) -> list[str]:
    """The texts that a node writes, those in lists and objects too; one that is the same once."""
    values: list[Any] = []
    for value in written.values():
        match value:
            case list():
                values += value
            case dict():
                values += value.values()
            case _:
                values.append(value)
    return list(dict.fromkeys(value for value in values if isinstance(value, str)))
