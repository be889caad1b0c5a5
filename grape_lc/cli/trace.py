"""``grape trace``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from grape_lc.cli.common import app, check_writable, clear_errors, given_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grape_lc.adapters.flow_file import FlowFile
    from grape_lc.adapters.sandbox import SandboxedTrace

_SHOWN = 40  # lines of a list


@app.command()
def trace(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:GRAPH",
            help="A compiled graph or a function that returns one: app:graph, src/app.py:make.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write the flow to this file, for attach(graph, FILE)."
        ),
    ] = None,
    example: Annotated[
        str | None,
        typer.Option(help="An input of the graph as JSON, or @FILE: its texts stand for any."),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds for everything, imports included.")
    ] = 60.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="An effect not to deny, such as network; repeatable."),
    ] = None,
    show_output: Annotated[
        bool, typer.Option("--show-output", help="Print the end of what the program printed.")
    ] = False,
) -> None:
    """Find the prompts of a graph by running it without a model, in a sandbox.

    The module is imported and its nodes are run in a process of their own, on texts that stand for
    any. Network, processes, threads and files elsewhere are denied there, and reported.
    """
    with clear_errors():
        check_writable(output)
        given = None if example is None else given_json(example, "the example")
        from grape_lc.adapters.flow_file import save_flow_file
        from grape_lc.adapters.sandbox import run_sandboxed

        result = run_sandboxed(target, example=given, timeout_s=timeout, allow=allow or ())
        _show(result)
        if show_output and result.output:
            typer.echo(f"\nIt printed:\n{result.output.rstrip()}")
        if output is None:
            typer.echo("\nNot written: -o FILE keeps the flow for attach(graph, FILE).")
        else:
            save_flow_file(result.file, output)
            typer.echo(f"\nWritten: {output}, for attach(graph, {str(output)!r})")


def _show(result: SandboxedTrace) -> None:
    file = result.file
    network = (
        "no network at all" if result.offline else "its network guarded by the audit hook only"
    )
    typer.echo(f"Traced {file.graph} in {result.wall_s:.1f} s, in a process with {network}.")
    typer.echo()
    _show_tasks(file)
    _show_list("Denied", map(str, file.denied))
    # Behind what was denied, since some tell what came of it.
    _show_list("Warnings", file.warnings)
    _show_list("Let be, since it ends with the process", map(str, file.confined))
    _show_list("Environment variables whose values were withheld", result.withheld)


def _show_tasks(file: FlowFile) -> None:
    from grape_lc.flow.template import Literal_

    flow = file.flow
    given = [variable for variable in flow.variables if variable.kind == "input"]
    inputs = {variable.name for variable in given if not variable.opaque}
    unknown = {variable.name for variable in given if variable.opaque}
    rows = [("task", "waits for", "inputs", "unknown", "known text")]
    for task in flow.order():
        reads = dict.fromkeys(task.prompt.variables)
        known = sum(
            len(segment.text)
            for _, segments in task.prompt.sections
            for segment in segments
            if isinstance(segment, Literal_)
        )
        rows.append(
            (
                task.name,
                ", ".join(flow.upstream(task)) or "-",
                ", ".join(name for name in reads if name in inputs) or "-",
                ", ".join(name for name in reads if name in unknown) or "-",
                f"{known} characters",
            )
        )
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    for row in rows:
        typer.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _show_list(title: str, lines: Iterable[str]) -> None:
    items = list(lines)
    if not items:
        return
    typer.echo(f"\n{title}:")
    for line in items[:_SHOWN]:
        typer.echo(f"  {line}")
    if len(items) > _SHOWN:
        typer.echo(f"  ... and {len(items) - _SHOWN} more, in the file")
