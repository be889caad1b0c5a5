"""The ``grape`` command.

Exit codes: 0 done; 2 wrong arguments, or an error of this package, told in one line; 130
interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError

from grape_lc import __version__
from grape_lc.bench.settings import DemoSettings, describe, installed_device
from grape_lc.errors import ConfigError, FlowError, GrapeError

app = typer.Typer(
    name="grape",
    help="Micro-task serving for LangGraph agents on stock vLLM.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


_DEFAULT = DemoSettings()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Turn our own errors into one line and exit code 2, Ctrl-C into exit code 130."""
    try:
        yield
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()]
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


@app.command()
def demo(
    programs: Annotated[int, typer.Option(help="How many programs run.")] = _DEFAULT.programs,
    rate: Annotated[
        float, typer.Option(help="Arrivals a second, on average (Poisson).")
    ] = _DEFAULT.rate,
    seed: Annotated[
        int, typer.Option(help="Of the choice of problems and the arrivals.")
    ] = _DEFAULT.seed,
    max_tokens: Annotated[
        int, typer.Option(help="Limit of each of a program's answers.")
    ] = _DEFAULT.max_tokens,
    dtype: Annotated[
        str | None,
        typer.Option(help="Default: float32 on a CPU (comparable answers), auto on a GPU."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder or hub name; default: the embedded model.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="JSONL file, or folder of them, with question_content fields."),
    ] = None,
    order: Annotated[str, typer.Option(help="Arms in the order of their runs.")] = ",".join(
        _DEFAULT.order
    ),
    draft: Annotated[bool, typer.Option("--draft", help="n-gram drafting in both arms.")] = False,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write figures and raw records to this file.")
    ] = None,
    trace_file: Annotated[
        Path | None,
        typer.Option("--trace", help="Write a timeline for chrome://tracing or Perfetto."),
    ] = None,
) -> None:
    """Run a five-role workflow on plain vLLM and on grape, and compare."""
    from rich.console import Console

    from grape_lc.bench import demo as bench

    with _clear_errors():
        settings = DemoSettings(
            programs=programs,
            rate=rate,
            seed=seed,
            max_tokens=max_tokens,
            dtype=dtype,
            model=model,
            data=data,
            order=tuple(arm.strip() for arm in order.split(",")),
            draft=draft,
        )
        for path in (json_file, trace_file):
            _check_writable(path)
        console, device = Console(), installed_device()
        console.print(describe(settings, device), highlight=False)
        result = bench.run_demo(
            settings,
            console,
            engine_of=lambda arm: bench.grape_engine(arm, settings, device),
        )
        bench.show(settings, result, console)
        bench.write_outputs(settings, result, device, json_file, trace_file)


def _check_writable(path: Path | None) -> None:
    """Say before a run of minutes, not after it, that its result has no place to go."""
    if path is None:
        return
    folder = path.parent
    if not folder.is_dir():
        raise ConfigError(f"cannot write {path}: there is no folder {folder}")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise ConfigError(f"cannot write {path}: it is a folder, or writing is not permitted")


@app.command()
def explain(
    flow_file: Annotated[
        Path, typer.Argument(metavar="FILE.json", help="A TaskFlow as JSON (flow.to_json()).")
    ],
) -> None:
    """Say how much of each prompt of a flow can be prefilled ahead, and what must wait."""
    from grape_lc.flow.taskflow import TaskFlow

    with _clear_errors():
        try:
            flow = TaskFlow.from_json(flow_file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {flow_file}: {error.strerror}") from error
        except (UnicodeDecodeError, FlowError) as error:
            raise ConfigError(f"{flow_file}: {error}") from error
        typer.echo(str(flow.explain()))


@app.command()
def model(
    name: Annotated[
        str | None, typer.Argument(help="Folder or hub name; default: the embedded model.")
    ] = None,
) -> None:
    """Print what is loaded for a model; fetches and converts the embedded one where needed."""
    from grape_lc.engine.models import resolve_model

    with _clear_errors():
        typer.echo(resolve_model(name, progress=lambda text: typer.echo(text, err=True)))


def main() -> None:
    """Entry point of the ``grape`` command."""
    app()


if __name__ == "__main__":
    main()
