"""``grape bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grape_lc.bench.settings import installed_device
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
    wide_console,
)


@app.command()
def bench(
    workflow: Annotated[str, typer.Argument(help="Name of an example workflow.")] = "code",
    programs: Annotated[int, typer.Option(help="How many programs a repeat has.")] = 8,
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="PATTERN",
            help="poisson, gamma:CV (3 comes in bursts), trace:FILE (the gaps of a .csv with "
            "arrival_s or a .jsonl with timestamp, scaled to the rate), or closed:N (N programs "
            "at a time).",
        ),
    ] = "poisson",
    rate: Annotated[
        str, typer.Option(help="Arrivals a second, or auto: --load times what vllm-opt can carry.")
    ] = "auto",
    load: Annotated[float, typer.Option(help="For --rate auto: share of the saturated rate.")] = (
        0.85
    ),
    repeats: Annotated[
        int, typer.Option(help="Workloads; each arm runs each of them once, in rotated order.")
    ] = 3,
    max_tokens: MaxTokens = 64,
    arms: Annotated[
        str,
        typer.Option(
            help="vllm, vllm-opt, warm or grape, separated by commas, each with extras "
            "(vllm-opt+draft, grape-governor) and settings of its own if need be: "
            "grape:incremental=false,constraint=cap"
        ),
    ] = "vllm,vllm-opt,grape",
    base: Annotated[
        str | None, typer.Option(help="Arm that ratios are against; default: vllm-opt.")
    ] = None,
    sweep: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="Token budgets to try for vllm-opt first: 64,128,default. The best is taken.",
        ),
    ] = "",
    sweep_repeats: Annotated[int, typer.Option(help="Workloads of the sweep.")] = 1,
    kv_blocks: Annotated[
        int | None, typer.Option(help="KV blocks of every engine; default: vLLM's own choice.")
    ] = None,
    kv_share: Annotated[
        float | None,
        typer.Option(help="KV as a share of what the largest calls of all programs hold."),
    ] = None,
    tenants: Annotated[
        int, typer.Option(help="Programs are dealt to so many tenants, in turn.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of the first repeat's inputs and arrival times.")] = 0,
    dtype: Dtype = None,
    model: Model = None,
    data: Data = None,
    slo: Annotated[
        str,
        typer.Option(
            metavar="NAME:MS,...",
            help="Count programs that meet targets: ttft and tbt of every call, and the whole "
            "program, in milliseconds: ttft:2000,tbt:100,program:60000",
        ),
    ] = "",
    quality: Annotated[
        bool,
        typer.Option(
            "--quality",
            help="Count right answers. For code that means to run the programs that the model "
            "wrote, confined, on public tests.",
        ),
    ] = False,
    limit: Annotated[
        float, typer.Option(help="Seconds after its last arrival at which a run is given up.")
    ] = 900.0,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep every run in this file when it is done; a comparison with the same "
            "settings goes on from it.",
        ),
    ] = None,
    json_file: Numbers = None,
    trace_file: Timeline = None,
) -> None:
    """Compare schedulers on one workload: figures, and ratios with 95% intervals.

    Every arm runs the same programs at the same times in each repeat. Ratios are paired by
    repeat. A run that fails is told and left out, and the exit code is then 1.
    """
    from grape_lc.bench import command, document, results
    from grape_lc.bench.options import BenchSettings, parse_rate, parse_sweep

    with clear_errors():
        settings = BenchSettings(
            workflow=workflow,
            programs=programs,
            rate=parse_rate(rate),
            load=load,
            repeats=repeats,
            max_tokens=max_tokens,
            arms=arms,
            base=base,
            sweep=parse_sweep(sweep),
            sweep_repeats=sweep_repeats,
            kv_blocks=kv_blocks,
            kv_share=kv_share,
            arrivals=arrivals,
            tenants=tenants,
            seed=seed,
            dtype=dtype,
            model=model,
            data=data,
            slo=slo,
            quality=quality,
            limit_s=limit,
        )
        for path in (json_file, trace_file, resume):
            check_writable(path)
        console, device = wide_console(), installed_device()
        console.print(results.describe(settings, device), highlight=False, markup=False)
        engines = command.real_engine(settings, console)
        run = command.Bench(settings, console, engines, device, resume).run()
        results.show(settings, run, console)
        document.write(settings, run, device, json_file, trace_file)
    if run.comparison.failures:
        raise typer.Exit(1)
