"""``grape demo``."""

from __future__ import annotations

from typing import Annotated

import typer

from grape_lc.bench.settings import DemoSettings, describe, installed_device
from grape_lc.cli.common import (
    Data,
    Dtype,
    MaxTokens,
    Model,
    Numbers,
    Timeline,
    app,
    check_writable,
    clear_errors,
)

_DEFAULT = DemoSettings()


@app.command()
def demo(
    programs: Annotated[int, typer.Option(help="How many programs run.")] = _DEFAULT.programs,
    rate: Annotated[
        float, typer.Option(help="Arrivals a second, on average (Poisson).")
    ] = _DEFAULT.rate,
    seed: Annotated[
        int, typer.Option(help="Of the choice of problems and the arrivals.")
    ] = _DEFAULT.seed,
    max_tokens: MaxTokens = _DEFAULT.max_tokens,
    dtype: Dtype = None,
    model: Model = None,
    data: Data = None,
    order: Annotated[str, typer.Option(help="Arms in the order of their runs.")] = ",".join(
        _DEFAULT.order
    ),
    draft: Annotated[bool, typer.Option("--draft", help="n-gram drafting in both arms.")] = False,
    json_file: Numbers = None,
    trace_file: Timeline = None,
) -> None:
    """Run a five-role workflow on plain vLLM and on grape, and compare."""
    from rich.console import Console

    from grape_lc.bench import demo as bench

    with clear_errors():
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
            check_writable(path)
        console, device = Console(), installed_device()
        console.print(describe(settings, device), highlight=False)
        result = bench.run_demo(
            settings,
            console,
            engine_of=lambda arm: bench.grape_engine(arm, settings, device),
        )
        bench.show(settings, result, console)
        bench.write_outputs(settings, result, device, json_file, trace_file)
