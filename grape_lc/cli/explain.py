"""``grape explain``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from grape_lc.cli.common import app, check_writable, clear_errors, given_json
from grape_lc.errors import ConfigError
from grape_lc.files import write_whole

if TYPE_CHECKING:
    from grape_lc.adapters.explained import GraphExplanation
    from grape_lc.adapters.flow_file import FlowFile
    from grape_lc.flow.taskflow import TaskFlow

_STDOUT = "-"
_SHOWN = 8  # denied effects that are named


@app.command()
def explain(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:GRAPH|FILE.json",
            help="A graph, traced in a sandbox; or a flow: of grape trace -o, or flow.to_json().",
        ),
    ],
    json_file: Annotated[
        str | None,
        typer.Option("--json", metavar="FILE", help="Write plain data; - for standard output."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page that stands for itself to this file.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Count tokens by this model's tokenizer: a folder, or the embedded model's name. "
            "Default: an estimate."
        ),
    ] = None,
    example: Annotated[
        str | None, typer.Option(help="An input of the graph as JSON, or @FILE, for the trace.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for the trace.")] = 60.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="An effect that the trace does not deny; repeatable."),
    ] = None,
) -> None:
    """Say what of each prompt is prefilled ahead, what that saved in the last runs, and why not.

    The last runs are those of attached graphs on this machine with the same code. The module is
    imported in the sandbox of grape trace only.
    """
    with clear_errors():
        check_writable(html)
        if json_file not in (None, _STDOUT):
            check_writable(Path(str(json_file)))
        given = _given(target, example, timeout, allow or [])
        found = _explained(given, model)
        if json_file is not None:
            text = json.dumps(found.to_dict(), ensure_ascii=False, indent=2) + "\n"
            _write(json_file, text)
        if html is not None:
            _write(str(html), found.to_html())
        if json_file != _STDOUT:
            typer.echo(str(found))


class _Given(NamedTuple):
    """What is to be explained. name: how the graph is called. sources: of the flow's tasks."""

    name: str
    flow: TaskFlow
    sources: Mapping[str, str]
    file: FlowFile


def _given(target: str, example: str | None, timeout: float, allow: list[str]) -> _Given:
    if target.endswith(".json") or (":" not in target and Path(target).exists()):
        from grape_lc.adapters.flow_file import load_flow_file

        file = load_flow_file(target)
        source = "declared" if file.source_hash is None else "traced"
        sources = {task.name: source for task in file.flow.tasks}
        return _Given(file.graph or file.flow.name, file.flow, sources, file)
    from grape_lc.adapters.sandbox import run_sandboxed

    value = None if example is None else given_json(example, "the example")
    traced = run_sandboxed(target, example=value, timeout_s=timeout, allow=allow)
    return _Given(target, traced.flow, traced.sources, traced.file)


def _explained(given: _Given, model: str | None) -> GraphExplanation:
    from grape_lc.adapters.explain import explain_flow
    from grape_lc.adapters.savings import runs_of

    count = None
    if model is not None:
        from grape_lc.engine.tokens import token_counter

        count = token_counter(model, progress=lambda text: typer.echo(text, err=True))
    source_hash = given.file.source_hash
    return explain_flow(
        given.name,
        given.flow,
        sources=given.sources,
        runs=() if source_hash is None else runs_of(source_hash),
        count_tokens=count,
        notes=_notes(given.file),
    )


def _notes(file: FlowFile) -> Iterator[str]:
    """What the trace had to say."""
    for warning in file.warnings:
        yield warning if warning.startswith("trace of ") else f"trace: {warning}"
    for effect in file.denied[:_SHOWN]:
        yield f"denied in the trace: {effect}"
    if len(file.denied) > _SHOWN:
        yield f"denied in the trace: {len(file.denied) - _SHOWN} more"


def _write(path: str, text: str) -> None:
    if path == _STDOUT:
        typer.echo(text, nl=False)
        return
    try:
        write_whole(path, text, shared=True)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    typer.echo(f"written: {path}", err=True)
