"""``grape paper``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grape_lc.cli.common import Jobs, Resume, app, check_writable, clear_errors, wide_console


@app.command()
def paper(
    quick: Annotated[
        bool, typer.Option("--quick", help="In little: a look at the table, not figures.")
    ] = False,
    programs: Annotated[int | None, typer.Option(help="Programs of each seed and cell.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="A file of grape bench --json: tell the simulator's error against it."),
    ] = None,
    cost: Annotated[
        Path | None, typer.Option(help="With --record: grape profile --json of its machine.")
    ] = None,
    kv_blocks: Annotated[
        int | None, typer.Option(help="With --record: KV blocks; default: as the file says.")
    ] = None,
    block_size: Annotated[int, typer.Option(help="With --record: tokens of a KV block.")] = 32,
    jobs: Jobs = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write rows, marks and sweeps to this file.")
    ] = None,
    resume: Resume = None,
) -> None:
    """Simulate the paper's machines, workloads and loads; its figures beside ours."""
    from grape_lc.bench import paper_report as report
    from grape_lc.bench.paper import Paper
    from grape_lc.bench.paper_error import Cost, simulator_errors
    from grape_lc.bench.paper_options import PaperSettings

    with clear_errors():
        given = {
            "programs": programs,
            "seeds": seeds,
            "record": record,
            "cost": cost,
            "kv_blocks": kv_blocks,
            "block_size": block_size,
            "jobs": jobs,
        }
        sizes = PaperSettings.quick() if quick else PaperSettings()
        named = {name: value for name, value in given.items() if value is not None}
        settings = PaperSettings.model_validate({**sizes.model_dump(), **named})
        for path in (json_file, resume):
            check_writable(path)
        console = wide_console()

        def say(text: str) -> None:
            console.print(text, highlight=False, markup=False)

        # The shorter part first: a file that does not fit is told before the long one.
        errors = None
        if settings.record is not None and settings.cost is not None:
            machine = Cost(settings.cost, settings.kv_blocks, settings.block_size)
            errors = simulator_errors(settings.record, machine)
        table = Paper(settings, say, resume).run()
        report.show(settings, table, errors, console)
        if json_file is not None:
            report.write(settings, table, errors, json_file)
