"""The regime map: where ratios are above 1, and where they are below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from grape_lc.bench.html_input import Regime
from grape_lc.bench.html_ratios import SIGNS, metric_title, verdict
from grape_lc.bench.plots import INK, Plot, drawing, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BETTER, _EVEN, _WORSE = (0x2C, 0x7F, 0xB8), (0xF4, 0xF4, 0xF0), (0xD9, 0x5F, 0x0E)
_FULL = math.log(2)  # a ratio of 2, or of 1/2, has the full colour


def regime_plot(regimes: Sequence[Regime], metric: str, name: str) -> Plot | None:
    """A map of a metric: a panel for each depth and load, over output and static length.

    name: unique on the page. None where the metric has no point.
    """
    points = [point for point in regimes if point.metric == metric]
    if not points:
        return None
    depths, loads = sorted({p.depth for p in points}), sorted({p.rho for p in points})
    outputs, statics = sorted({p.output for p in points}), sorted({p.static for p in points})
    kinds = [verdict(point.ratio, point.ci95) for point in points]
    least = min(points, key=lambda point: (point.ratio, point.depth, point.rho))
    title = metric_title(metric)
    alt = (
        f"Regime map of {title}: {len(points)} points, {kinds.count('better')} shown to be better, "
        f"{kinds.count('worse')} shown to be worse. The lowest ratio is {least.ratio:.3f}, at "
        f"depth {least.depth:g}, output {least.output:g}, static {least.static:g}, load "
        f"{least.rho:g}."
    )
    panel = (0.62 * len(outputs) + 0.5, 0.34 * len(statics) + 0.6)
    size = (max(5.0, panel[0] * len(loads) + 0.8), panel[1] * len(depths) + 0.6)
    with drawing() as figure_of:
        figure = figure_of(figsize=size, layout="constrained")
        grid = figure.subplots(len(depths), len(loads), squeeze=False)
        for (row, depth), (column, rho) in product(enumerate(depths), enumerate(loads)):
            axes = grid[row][column]
            own = [point for point in points if (point.depth, point.rho) == (depth, rho)]
            if not own:
                axes.set_visible(False)
                continue
            _draw(axes, own, outputs, statics)
            axes.set_title(f"depth {depth:g}, load {rho:g}", fontsize=9)
        figure.supxlabel("output tokens of a call", fontsize=9, color=INK)
        figure.supylabel("static tokens of a prompt", fontsize=9, color=INK)
        svg = to_svg(figure, name, alt)
    caption = (
        f"{title}: ratio at each point, above 1 is better. {SIGNS['better']} and {SIGNS['worse']} "
        "mark those whose interval leaves out 1."
    )
    return Plot(svg, caption, alt)


def _draw(
    axes: Axes, points: Sequence[Regime], outputs: Sequence[float], statics: Sequence[float]
) -> None:
    for point in points:
        x, y = outputs.index(point.output), statics.index(point.static)
        kind = verdict(point.ratio, point.ci95)
        sign = SIGNS[kind] if kind in {"better", "worse"} else ""
        axes.barh(y, 1, left=x - 0.5, height=1, color=colour_of(point.ratio), edgecolor="#777777")
        ink = "#000000" if _luminance(point.ratio) > 0.4 else "#ffffff"
        axes.text(
            x, y, f"{sign}{point.ratio:.2f}", ha="center", va="center", fontsize=7.5, color=ink
        )
    axes.set_xticks(range(len(outputs)), [f"{value:g}" for value in outputs])
    axes.set_yticks(range(len(statics)), [f"{value:g}" for value in statics])
    axes.set_xlim(-0.5, len(outputs) - 0.5)
    axes.set_ylim(-0.5, len(statics) - 0.5)
    axes.grid(visible=False)


def colour_of(ratio: float) -> str:
    """From orange (worse) over near white (1) to blue (better), by the logarithm of the ratio."""
    part = 1.0 if ratio <= 0 else min(abs(math.log(ratio)) / _FULL, 1.0)
    end = _BETTER if ratio > 1 else _WORSE
    mixed = (round(a + part * (b - a)) for a, b in zip(_EVEN, end, strict=True))
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _luminance(ratio: float) -> float:
    """Of the colour of a ratio: 0 black, 1 white; without the correction for gamma."""
    text = colour_of(ratio)
    red, green, blue = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
