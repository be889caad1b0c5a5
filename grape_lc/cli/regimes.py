"""``grape regimes``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grape_lc.cli.common import Jobs, Resume, app, check_writable, clear_errors, wide_console


@app.command()
def regimes(
    quick: Annotated[
        bool, typer.Option("--quick", help="The corners of the map in little, not figures.")
    ] = False,
    programs: Annotated[int | None, typer.Option(help="Programs of each seed and point.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    hardware: Annotated[str, typer.Option(help="a100-40gb, h100 or h200.")] = "a100-40gb",
    model: Annotated[str, typer.Option(help="llama3-8b or qwen3-14b.")] = "llama3-8b",
    jobs: Jobs = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the map and its marks to this file.")
    ] = None,
    resume: Resume = None,
) -> None:
    """Simulate chains of all kinds at all loads: where grape gains, and where it does not."""
    from grape_lc.bench import regimes_report as report
    from grape_lc.bench.regimes import Regimes
    from grape_lc.bench.regimes_options import RegimeSettings
    from grape_lc.engine.simulator.hardware import machine

    with clear_errors():
        given = {
            "programs": programs,
            "seeds": seeds,
            "hardware": hardware,
            "model": model,
            "jobs": jobs,
        }
        sizes = RegimeSettings.quick() if quick else RegimeSettings()
        named = {name: value for name, value in given.items() if value is not None}
        settings = RegimeSettings.model_validate({**sizes.model_dump(), **named})
        machine(settings.hardware, settings.model)
        for path in (json_file, resume):
            check_writable(path)
        console = wide_console()

        def say(text: str) -> None:
            console.print(text, highlight=False, markup=False)

        found = Regimes(settings, say, resume).run()
        report.show(settings, found, console)
        if json_file is not None:
            report.write(settings, found, json_file)
