"""One self-contained page of a comparison: tables, plots, and where it does not help.

The page holds no script and refers to nothing outside of itself. What comes from the files is
escaped by the template; plots hold text only where XML has escaped it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from grape_lc.bench.html_content import content_of
from grape_lc.bench.html_input import Document, parse_document
from grape_lc.bench.plots import printable
from grape_lc.bench.report import write_text
from grape_lc.errors import ConfigError


def check_installed() -> None:
    """Say before a run of minutes, not after it, that a page could not be made.

    Raises ConfigError without the extra ``report``.
    """
    for name in ("jinja2", "matplotlib"):
        try:
            import_module(name)
        except ModuleNotFoundError as error:
            raise ConfigError(f"{error}; a report needs: pip install 'grape-lc[report]'") from error


def write_html(document: dict[str, Any], path: Path) -> None:
    """Write the report of one document of ``grape bench`` (or regimes, or paper).

    Raises ConfigError for a document of another form, a file that cannot be written, and without
    the extra ``report``.
    """
    write_text(path, render([parse_document(document, "the document")]))


def render(documents: Sequence[Document]) -> str:
    """The page of several documents. Raises ConfigError as ``write_html`` does."""
    check_installed()
    from jinja2 import DictLoader, Environment, StrictUndefined

    folder = resources.files("grape_lc.bench")
    texts = {
        name: folder.joinpath(name).read_text(encoding="utf-8")
        for name in ("html_report.jinja", "html_report.css")
    }
    environment = Environment(
        loader=DictLoader(texts),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_final,
    )
    return environment.get_template("html_report.jinja").render(content_of(documents))


def _final(value: Any) -> Any:
    """What is put into the page; of texts from outside, without what a page must not hold.

    Exactly ``str``: its subclass ``Markup`` is ours, made by macros and plots.
    """
    if type(value) is str:
        return "\n".join(map(printable, value.split("\n")))
    return value
