"""``grape report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from grape_lc.cli.common import app, check_writable, clear_errors
from grape_lc.errors import ConfigError


@app.command()
def report(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.json...",
            help="Files of grape bench, grape regimes or grape paper --json; all go into one "
            "report.",
        ),
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write a self-contained page with plots.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="OUT", help="Write the tables as Markdown.")
    ] = None,
) -> None:
    """Make a page, or Markdown tables, of recorded comparisons.

    Without --html and --markdown the Markdown is printed.
    """
    from grape_lc.bench.html_input import read_documents
    from grape_lc.bench.html_report import render
    from grape_lc.bench.markdown import to_markdown
    from grape_lc.bench.report import write_text

    with clear_errors():
        for path in (html, markdown):
            check_writable(path)
        _check_distinct([*files, *(path for path in (html, markdown) if path is not None)])
        documents = read_documents(files)
        if html is not None:
            write_text(html, render(documents))
        if markdown is not None:
            write_text(markdown, to_markdown(documents))
        if html is None and markdown is None:
            typer.echo(to_markdown(documents), nl=False)


def _check_distinct(paths: list[Path]) -> None:
    """Nothing is read twice, or overwritten by what is made of it. Raises ConfigError."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise ConfigError(f"{path} is named twice")
        seen.add(path.resolve())
