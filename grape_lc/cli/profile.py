"""``grape profile``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grape_lc.cli.common import Model, app, check_writable, clear_errors


@app.command()
def profile(
    model: Model = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="As the engine will run (demo and bench: float32 on a CPU). [auto]"),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Time for measuring, beyond the start of the engine.")
    ] = 150.0,
    seed: Annotated[int, typer.Option(help="Of prompts, their order, and the held-out part.")] = 0,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the profile and all steps to this file.")
    ] = None,
) -> None:
    """Measure how long steps take on this machine, and keep that for the scheduler.

    A fit whose errors are too large is not kept, and the exit code is then 1.
    """
    from rich.console import Console

    from grape_lc.bench import profile as bench

    with clear_errors():
        check_writable(json_file)
        console = Console()
        with bench.ProgressLine(console) as tell:
            document, steps = bench.run(model, dtype, seconds=seconds, seed=seed, tell=tell)
        bench.show(document, console)
        if json_file is not None:
            bench.write(document, steps, json_file)
        path, refusal = bench.store(document)
    if refusal is not None:
        typer.echo(f"grape: the profile is not kept: {refusal}", err=True)
        raise typer.Exit(1)
    typer.echo(f"kept for engines of this kind: {path}")
