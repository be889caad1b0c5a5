"""``grape simulate`` and ``grape replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grape_lc.cli.common import app, check_writable, clear_errors, wide_console
from grape_lc.errors import ConfigError


@app.command()
def simulate(
    workload: Annotated[
        str,
        typer.Option(
            help="code, code-short, summary, summary-first, search or mapreduce; or "
            "synthetic:depth=8,fan_out=2, with axes as in grape bench."
        ),
    ] = "code",
    record: Annotated[
        Path | None,
        typer.Option(
            "--from-record", help="A file of grape demo or bench --json: simulate its programs."
        ),
    ] = None,
    record_run: Annotated[int, typer.Option(help="Place of the run in that file.")] = 0,
    hardware: Annotated[str, typer.Option(help="a100-40gb, h100 or h200.")] = "a100-40gb",
    model: Annotated[str, typer.Option(help="llama3-8b or qwen3-14b.")] = "llama3-8b",
    tp: Annotated[int, typer.Option(help="GPUs of a replica: 1 or 2.")] = 1,
    link: Annotated[str | None, typer.Option(help="pcie or nvlink, where both exist.")] = None,
    cost: Annotated[
        Path | None, typer.Option(help="A file of grape profile --json, instead of a GPU.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="Whose default settings grape takes: cpu or gpu.")
    ] = "gpu",
    kv_blocks: Annotated[int | None, typer.Option(help="KV blocks; default: what fits.")] = None,
    block_size: Annotated[int, typer.Option(help="Tokens of a KV block.")] = 16,
    rho: Annotated[
        float, typer.Option(help="Load, relative to what the tuned vllm-opt can carry.")
    ] = 0.85,
    rate: Annotated[float | None, typer.Option(help="Programs a second, instead of rho.")] = None,
    closed: Annotated[
        int | None, typer.Option(help="Programs at a time, instead of arrivals.")
    ] = None,
    cv: Annotated[float, typer.Option(help="Of the arrivals: 1 is Poisson, 3 is bursts.")] = 1.0,
    programs: Annotated[int, typer.Option(help="Programs of each seed.")] = 300,
    seeds: Annotated[int, typer.Option(help="How many seeds.")] = 3,
    first: Annotated[int, typer.Option(help="The first seed.")] = 0,
    arms: Annotated[
        str,
        typer.Option(
            "--variants", "--arms", help="As in grape bench: vllm,vllm-opt,grape:rule=hops"
        ),
    ] = "vllm,vllm-opt,grape",
    base: Annotated[
        str | None, typer.Option(help="Arm that ratios are against; default: vllm-opt.")
    ] = None,
    sweep: Annotated[
        str, typer.Option(metavar="N,N,...", help="Token budgets to tune vllm-opt with.")
    ] = "256,512,1024,2048,4096",
    noise: Annotated[float, typer.Option(help="Spread of step times, 0 to 1.")] = 0.0,
    hop_ms: Annotated[float, typer.Option(help="From a call's end to the next one's arrival.")] = (
        10.0
    ),
    differ: Annotated[
        float, typer.Option(help="Share of calls whose prompt is not what was predicted.")
    ] = 0.0,
    copy_rate: Annotated[
        float, typer.Option(help="Share of answers copied from their prompts, for +draft.")
    ] = 0.3,
    learned: Annotated[
        bool, typer.Option("--learned", help="The policy learns step times; it is not told.")
    ] = False,
    replicas: Annotated[int, typer.Option(help="Engines.")] = 1,
    jobs: Annotated[int | None, typer.Option(help="Simulations at a time; default: cores.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write all figures to this file.")
    ] = None,
    records: Annotated[
        Path | None,
        typer.Option(help="Write the record of each step of the last arm, on the first seed."),
    ] = None,
) -> None:
    """Compare schedulers on a simulated engine: any GPU, any load, thousands of programs."""
    from grape_lc.bench import simulate as front
    from grape_lc.bench import simulation_report as report
    from grape_lc.bench.options import parse_sweep
    from grape_lc.bench.simulation_options import SimulationSettings

    with clear_errors():
        given = {
            "workload": workload,
            "record": record,
            "record_run": record_run,
            "hardware": hardware,
            "model": model,
            "tp": tp,
            "link": link,
            "cost": cost,
            "device": device,
            "kv_blocks": kv_blocks,
            "block_size": block_size,
            "rho": rho,
            "rate": rate,
            "closed": closed,
            "cv": cv,
            "programs": programs,
            "seeds": seeds,
            "first": first,
            "arms": arms,
            "base": base,
            "sweep": parse_sweep(sweep),
            "noise": noise,
            "hop_s": hop_ms / 1e3,
            "differ": differ,
            "copy_rate": copy_rate,
            "learned": learned,
            "replicas": replicas,
            **({} if jobs is None else {"jobs": jobs}),
        }
        settings = SimulationSettings.model_validate(given)
        for path in (json_file, records):
            check_writable(path)
        if records is not None:
            front.check_records(settings)
            if json_file is not None and records.resolve() == json_file.resolve():
                raise ConfigError(f"--json and --records name the same file, {records}")
        console = wide_console()

        def say(text: str) -> None:
            console.print(text, highlight=False, markup=False)

        say(settings.describe())
        result = front.Simulation(settings, say).run()
        report.show(settings, result, console)
        if json_file is not None:
            report.write(settings, result, json_file)
        if records is not None:
            arm = result.arms[-1]
            count = front.write_records(settings, result.rate, arm, records)
            say(f"{count} records of {arm.name}: {records}")


@app.command()
def replay(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.jsonl", help="Records of steps, real or simulated.")
    ],
) -> None:
    """Plan every recorded step anew; exit code 1 if a plan differs from the recorded one."""
    from grape_lc.bench.simulation_report import replay as again

    with clear_errors():
        different = again(file, typer.echo)
    if different:
        raise typer.Exit(1)
