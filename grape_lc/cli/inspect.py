"""``grape model``."""

from __future__ import annotations

from typing import Annotated

import typer

from grape_lc.cli.common import app, clear_errors


@app.command()
def model(
    name: Annotated[
        str | None, typer.Argument(help="Folder or hub name; default: the embedded model.")
    ] = None,
) -> None:
    """Print what is loaded for a model; fetches and converts the embedded one where needed."""
    from grape_lc.engine.models import resolve_model

    with clear_errors():
        typer.echo(resolve_model(name, progress=lambda text: typer.echo(text, err=True)))
