"""The ``grape`` command itself, and what its commands share."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from grape_lc import __version__
from grape_lc.errors import ConfigError, GrapeError

if TYPE_CHECKING:
    from rich.console import Console


app = typer.Typer(
    name="grape",
    help="Micro-task serving for LangGraph agents on stock vLLM.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

# Options that several commands have.
MaxTokens = Annotated[int, typer.Option(help="Limit of each of a program's answers.")]
Dtype = Annotated[
    str | None,
    typer.Option(help="Default: float32 on a CPU (comparable answers), auto on a GPU."),
]
Model = Annotated[str | None, typer.Option(help="Folder or hub name; default: the embedded model.")]
Data = Annotated[
    Path | None,
    typer.Option(help="JSONL file, or folder of them, with question_content fields."),
]
Numbers = Annotated[
    Path | None, typer.Option("--json", help="Write figures and raw records to this file.")
]
Timeline = Annotated[
    Path | None,
    typer.Option("--trace", help="Write a timeline for chrome://tracing or Perfetto."),
]

Jobs = Annotated[int | None, typer.Option(help="Simulations at a time; default: cores.")]
Resume = Annotated[
    Path | None,
    typer.Option(help="Keep finished simulations in this file, and go on from it."),
]

_WIDE = 140  # columns of tables that go to a file


@contextmanager
def clear_errors() -> Iterator[None]:
    """Turn our own errors into one line and exit code 2, Ctrl-C into exit code 130."""
    try:
        yield
    except ValidationError as error:
        lines = [": ".join([*map(str, e["loc"]), e["msg"]]) for e in error.errors()]
        typer.echo(f"grape: {'; '.join(lines)}", err=True)
        raise typer.Exit(2) from None
    except GrapeError as error:
        typer.echo(f"grape: {error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        typer.echo("grape: interrupted; engines are closed", err=True)
        raise typer.Exit(130) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"grape_lc {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


def check_writable(path: Path | None) -> None:
    """Say before a run of minutes, not after it, that its result has no place to go."""
    if path is None:
        return
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"cannot write {path}: it is a folder, or writing is not permitted")


def given_json(text: str, what: str) -> Any:
    """An option's value: JSON, or ``@`` and the path of a file that holds it.

    what: names it in errors. Raises ConfigError.
    """
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {what} {text[1:]}: {error}") from error
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{what} is no JSON: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{what} is nested too deeply to be read") from error


def wide_console() -> Console:
    """The terminal, or a file with room for tables."""
    from rich.console import Console  # takes a tenth of a second, which --help need not wait for

    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)
