"""Bars of what each mechanism is worth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from grape_lc.bench.html_cells import OURS, Cell, figure_title
from grape_lc.bench.html_ratios import ablations, interval_of, ratio_cell
from grape_lc.bench.intervals import Ratio
from grape_lc.bench.plots import INK, SERIES, Plot, drawing, label, plain_ticks, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TITLE = 15  # characters of a line above a narrow panel


def ablation_plot(cell: Cell, name: str) -> Plot | None:
    """grape without each mechanism against grape, with intervals; None where there is no pair.

    name: unique on the page.
    """
    found = ablations(cell)
    if not found:
        return None
    variants = list(dict.fromkeys(variant for column in found.values() for variant in column))
    alt = (
        f"{cell.title}: {OURS} without a mechanism against {OURS}; below 1 is worse. "
        + "; ".join(
            f"{figure_title(path)}: "
            + ", ".join(f"{variant} {_text(ratio)}" for variant, ratio in column.items())
            for path, column in found.items()
        )
    )
    with drawing() as figure_of:
        height = 1.2 + 0.26 * len(variants)
        figure = figure_of(figsize=(8.2, height), layout="constrained")
        panels = figure.subplots(1, len(found), sharey=True, squeeze=False)[0]
        for axes, (path, column) in zip(panels, found.items(), strict=True):
            _draw(axes, column, variants)
            axes.set_title("\n".join(wrap(figure_title(path), _TITLE)))
        panels[0].set_yticks(range(len(variants)), list(map(label, variants)))
        panels[0].invert_yaxis()
        svg = to_svg(figure, name, alt)
    caption = (
        f"{OURS} without a mechanism against {OURS}: ratio and 95% interval over repeats. Bars to "
        "the left of 1 are worse without it, so the mechanism helps. Full bars: the interval "
        "leaves out 1. Open bars: no difference shown."
    )
    return Plot(svg, caption, alt)


def _draw(axes: Axes, column: Mapping[str, Ratio], variants: Sequence[str]) -> None:
    axes.axvline(1, color=INK, linewidth=0.8)
    for row, variant in enumerate(variants):
        if (ratio := column.get(variant)) is None:
            continue
        colour = SERIES[1] if ratio.ratio < 1 else SERIES[0]
        axes.barh(
            row,
            ratio.ratio - 1,
            left=1,
            height=0.6,
            color=colour if ratio.shown else "none",
            edgecolor=colour,
            hatch=None if ratio.ratio < 1 else "////",
        )
        if (interval := interval_of(ratio)) is not None:
            axes.plot(interval, [row, row], color=INK, linewidth=1.2, marker="|")
    axes.set_xscale("log")
    low, high = _ends(column.values())
    axes.set_xlim(low, high)
    plain_ticks(axes.xaxis, few=True)
    axes.set_xlabel("ratio")
    axes.grid(visible=False, axis="y")


def _ends(ratios: Iterable[Ratio]) -> tuple[float, float]:
    """Ends of an axis that has room for all intervals, and for 5% either way at least."""
    ends = [end for r in ratios for end in (r.ratio, r.low, r.high) if end is not None]
    return min(0.95, *(end / 1.03 for end in ends)), max(1.05, *(end * 1.03 for end in ends))


def _text(ratio: Ratio) -> str:
    return ratio_cell(ratio.ratio, interval_of(ratio), ratio.pairs).text
