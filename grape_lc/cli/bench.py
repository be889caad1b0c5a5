"""``grape bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from grape_lc.bench.settings import installed_device
from grape_lc.cli.common import (
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
    context: typer.Context,
    workloads: Annotated[
        str,
        typer.Option(
            help="code, summary, search or synthetic, separated by commas, with axes if need be: "
            "synthetic:depth=8,fan_out=2"
        ),
    ] = "code,summary,search",
    variants: Annotated[
        str,
        typer.Option(
            help="vllm, vllm-opt, warm, layout or grape, separated by commas, each with extras "
            "(vllm-opt+draft, grape-governor) and settings of its own if need be: "
            "grape:incremental=false,constraint=cap"
        ),
    ] = "vllm,vllm-opt,grape",
    base: Annotated[
        str | None, typer.Option(help="Variant that ratios are against; default: vllm-opt.")
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="RATE,RATE,...",
            help="Each workload runs at each of them: 0.85x is that share of what vllm-opt can "
            "carry of it, 0.2 so many programs a second. Default: 0.85x.",
            show_default=False,
        ),
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="PATTERN",
            help="poisson, gamma:CV (3 comes in bursts), trace:FILE (the gaps of a .csv with "
            "arrival_s or a .jsonl with timestamp, scaled to the rate), or closed:N (N programs "
            "at a time).",
        ),
    ] = "poisson",
    programs: Annotated[int, typer.Option(help="How many programs a repeat has.")] = 8,
    repeats: Annotated[
        int, typer.Option(help="Draws of programs; each variant runs each of them once.")
    ] = 5,
    seed: Annotated[int, typer.Option(help="Of the first repeat's inputs and arrival times.")] = 0,
    max_tokens: MaxTokens = 64,
    lengths: Annotated[
        Literal["eos", "fixed"],
        typer.Option(
            help="eos: an answer ends where the model ends it; fixed: it has --max-tokens."
        ),
    ] = "eos",
    data: Annotated[
        Path | None,
        typer.Option(
            help="JSONL file, or a folder with livecode.jsonl, papers.jsonl and hotpotqa.jsonl, of "
            "which each workload takes its own."
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Few and short programs, two repeats, vllm-opt and grape: a first look within six "
            "minutes on two quiet cores. Options given beside it hold.",
        ),
    ] = False,
    sweep: Annotated[
        str,
        typer.Option(
            metavar="N,N,...",
            help="Token budgets to try for vllm-opt first: 64,128,default; and at the best of "
            "them the other order of calls. The best is taken.",
        ),
    ] = "",
    sweep_repeats: Annotated[int, typer.Option(help="Repeats of the sweep.")] = 1,
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
    dtype: Dtype = None,
    model: Model = None,
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
    html_file: Annotated[
        Path | None, typer.Option("--html", help="Write a report with plots to this file.")
    ] = None,
    trace_file: Timeline = None,
) -> None:
    """Compare schedulers on several workloads and rates: figures, and ratios with 95% intervals.

    Every variant runs the same programs at the same times in each repeat. Ratios are paired by
    repeat. A run that fails is told and left out, and the exit code is then 1.
    """
    from grape_lc.bench import command, document, results
    from grape_lc.bench.options import QUICK, BenchSettings, parse_sweep

    with clear_errors():
        asked: dict[str, Any] = {
            "workloads": workloads,
            "arms": variants,
            "base": base,
            "rates": rates,
            "arrivals": arrivals,
            "programs": programs,
            "repeats": repeats,
            "seed": seed,
            "max_tokens": max_tokens,
            "lengths": lengths,
            "data": data,
            "sweep": parse_sweep(sweep),
            "sweep_repeats": sweep_repeats,
            "kv_blocks": kv_blocks,
            "kv_share": kv_share,
            "tenants": tenants,
            "dtype": dtype,
            "model": model,
            "slo": slo,
            "quality": quality,
            "limit_s": limit,
        }
        if quick:
            asked |= {name: QUICK[name] for name in QUICK if not _given(context, name)}
        settings = BenchSettings(**asked)
        for path in (json_file, html_file, trace_file, resume):
            check_writable(path)
        if html_file is not None:
            from grape_lc.bench import html_report  # a second, for who asks for a page

            html_report.check_installed()
        console, device = wide_console(), installed_device()
        console.print(results.describe(settings, device), highlight=False, markup=False)
        engines = command.real_engine(settings, console)
        result = command.Bench(settings, console, engines, device, resume).run()
        results.show(settings, result, console)
        document.write(
            settings,
            result,
            device,
            json_file=json_file,
            html_file=html_file,
            trace_file=trace_file,
        )
    if result.failures:
        raise typer.Exit(1)


def _given(context: typer.Context, setting: str) -> bool:
    """Whether the option of a setting stands on the command line."""
    option = {"arms": "variants"}.get(setting, setting)
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"
