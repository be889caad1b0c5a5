"""Plots as SVG for a page: drawn by matplotlib, coloured by the page's style sheet.

Colours are placeholders while a plot is drawn. In the result they are CSS variables, so that one
plot is legible on a light page and on a dark one. Lines differ in their dashes as well, for readers
and printers without colour.
"""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple
from unicodedata import category

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#0a0b01"
MUTED = "#0a0b02"
GRID = "#0a0b03"
PAPER = "#0a0b04"
SERIES = tuple(f"#0a0c{number:02x}" for number in range(8))
"""Placeholders: text, lesser text, lines of a grid, the page itself, and the colours of series."""

_VARIABLES = {
    INK: "var(--ink)",
    MUTED: "var(--muted)",
    GRID: "var(--rule)",
    PAPER: "var(--paper)",
    **{colour: f"var(--series-{number})" for number, colour in enumerate(SERIES)},
}
_PLACEHOLDER = re.compile("|".join(_VARIABLES))
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_FONT_FAMILY = re.compile(r"\s*font-family:[^;]*;?")
_NUMBER = re.compile(r"-?\d+\.\d{3,}")

_STYLE = {
    "svg.fonttype": "none",  # text stays text: small, and read aloud
    "svg.hashsalt": "grape",  # the same plot gives the same bytes
    "text.parse_math": False,  # a $ in a name is a $
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "axes.titlecolor": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "hatch.color": PAPER,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
}

_LONGEST = 40  # characters of a label
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})  # classes of Unicode
_FEW_DECADES = 500  # last over first value of an axis with room for marks within decades
_PIXELS = 4 / 3  # of a page for each point of a plot

Dash = str | tuple[float, tuple[float, ...]]


class LineStyle(NamedTuple):
    """How a variant is drawn in every plot."""

    colour: str
    dash: Dash


class Plot(NamedTuple):
    """A plot for a page. svg: an element. alt: says in words what it shows."""

    svg: str
    caption: str
    alt: str


_DASHES: tuple[Dash, ...] = ("solid", (0, (6, 2)), (0, (3, 1.5, 1, 1.5)), (0, (1.2, 1.2)))
_FIXED = {
    "grape": LineStyle(SERIES[0], "solid"),
    "vllm-opt": LineStyle(SERIES[1], (0, (6, 2))),
    "vllm": LineStyle(SERIES[7], (0, (1.2, 1.2))),
}
_OTHERS = SERIES[2:7]


def line_styles(variants: Sequence[str]) -> dict[str, LineStyle]:
    """A style for each variant; the well-known ones look alike in every report.

    Five colours and four dashes give twenty styles before one is used again.
    """
    others = [name for name in variants if name not in _FIXED]
    found = {
        name: LineStyle(_OTHERS[i % len(_OTHERS)], _DASHES[i % len(_DASHES)])
        for i, name in enumerate(others)
    }
    return {name: _FIXED.get(name) or found[name] for name in variants}


@contextmanager
def drawing() -> Iterator[Callable[..., Figure]]:
    """Within it figures have our look; it gives the class to make them of.

    matplotlib keeps its settings for the whole process, so plots are drawn by one thread at a time.
    The extra ``report`` has it, which ``html_report.check_installed`` looks for.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        yield Figure


def to_svg(figure: Figure, name: str, alt: str) -> str:
    """The figure as an SVG element for the inside of a page.

    name: unique on the page; ids begin with it. alt: becomes the element's title.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # The reader's browser has glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    root = ET.fromstring(buffer.getvalue())  # noqa: S314 - matplotlib wrote it just now
    return _for_page(root, name, alt)


def legend(figure: Figure, axes: Axes) -> None:
    """One legend below all axes, of what is labelled in ``axes``."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=4, handlelength=3.2)


def label(name: str) -> str:
    """A name as a label: short, printable, and none that matplotlib keeps to itself (``_x``)."""
    text = printable(name)
    text = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return f"\u200b{text}" if text.startswith("_") else text


def printable(text: str) -> str:
    """A text in which a mark stands for each character that a page must not hold.

    Those are controls, ends of lines, halves of pairs, and what turns the direction of text.
    """
    return "".join("\ufffd" if category(char) in _UNPRINTABLE else char for char in text)


def plain_ticks(axis: Any, *, few: bool = False) -> None:
    """Write the ticks of a logarithmic axis as plain numbers.

    few: for a narrow axis, which may span less than a decade.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    decade = (1.0, 2.0, 5.0) if high / low < _FEW_DECADES else (1.0,)
    axis.set_major_locator(
        MaxNLocator(3, steps=[1, 2, 5, 10]) if few else LogLocator(base=10, subs=decade)
    )
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _for_page(root: ET.Element, name: str, alt: str) -> str:
    used = _references(root)
    for parent in root.iter():
        for child in [c for c in parent if _local(c.tag) in {"metadata", "style"}]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {_local(key): value for key, value in element.attrib.items()}
        if attributes.get("id") not in used:
            attributes.pop("id", None)
        element.attrib.clear()
        element.attrib.update({k: _attribute(k, v, name) for k, v in attributes.items()})
    wide = float(root.attrib["viewBox"].split()[2])
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib |= {
        "role": "img",
        "aria-labelledby": f"{name}-title",
        "style": f"max-width: {wide * _PIXELS:.0f}px",
    }
    title = ET.Element("title", {"id": f"{name}-title"})
    title.text = printable(alt)
    root.insert(0, title)
    return ET.tostring(root, encoding="unicode")


def _local(name: str) -> str:
    """A name without its namespace: a page needs none, and so holds no address at all."""
    return name.rpartition("}")[2]


def _references(root: ET.Element) -> set[str]:
    found: set[str] = set()
    for element in root.iter():
        for key, value in element.attrib.items():
            found.update(_REFERENCE.findall(value))
            if _local(key) == "href":
                found.add(value.removeprefix("#"))
    return found


def _attribute(key: str, value: str, name: str) -> str:
    if key == "id":
        return f"{name}-{value}"
    if key == "href":
        return f"#{name}-{value.removeprefix('#')}"
    value = _REFERENCE.sub(rf"url(#{name}-\1)", value)
    if key == "style":
        value = _FONT_FAMILY.sub("", value)  # the page's own
    elif key == "d":
        value = " ".join(value.split())
    value = _PLACEHOLDER.sub(lambda found: _VARIABLES[found.group()], value)
    return _NUMBER.sub(lambda found: f"{float(found.group()):.2f}", value)
