"""Plots over the rate of arrivals: attainment, goodput, and latency."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from grape_lc.bench.attainment import THRESHOLD
from grape_lc.bench.html_cells import Cell, figure_at, figure_title, whole_variants
from grape_lc.bench.plots import MUTED, Plot, drawing, label, legend, line_styles, to_svg

PANELS = (
    ("goodput", "strict_share"),
    ("goodput", "strict_per_s"),
    ("answer_s", "p95"),
    ("agentic_itl_ms", "p99"),
    ("tokens_per_s",),
)
"""Paths of the figures that are drawn; those that nobody measured have no panel."""

_COLUMNS = 3


def curves(cells: Sequence[Cell], path: tuple[str, ...]) -> dict[str, list[tuple[float, float]]]:
    """By variant, its points (rate, figure) in order of the rate; closed loops have none."""
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for cell in cells:
        for variant in whole_variants(cell):
            value = figure_at(cell.metrics.get(variant), path)
            if value is not None and cell.rate is not None:
                found[variant].append((cell.rate, value))
    return {variant: sorted(points) for variant, points in found.items()}


def rate_plot(workload: str, cells: Sequence[Cell], name: str) -> Plot | None:
    """Figures of a workload over its rates; None where fewer than two rates were measured.

    cells: those of the workload. name: unique on the page.
    """
    if len({cell.rate for cell in cells if cell.rate is not None}) < 2:
        return None
    panels = {path: found for path in PANELS if (found := curves(cells, path))}
    if not panels:
        return None
    variants = list(dict.fromkeys(v for cell in cells for v in cell.variants))
    styles = line_styles(variants)
    first, drawn = next(iter(panels.items()))
    alt = f"{workload} over the rate. {figure_title(first)}: " + "; ".join(
        f"{variant} {', '.join(f'{value:.3g} at {rate:.3g}/s' for rate, value in points)}"
        for variant, points in drawn.items()
    )
    rows = -(-len(panels) // _COLUMNS)
    with drawing() as figure_of:
        figure = figure_of(figsize=(8.2, 2.5 * rows + 0.5), layout="constrained")
        grid = list(figure.subplots(rows, min(len(panels), _COLUMNS), squeeze=False).flat)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        for axes, (path, lines) in zip(grid, panels.items(), strict=False):
            for variant, points in lines.items():
                style = styles[variant]
                rates, values = zip(*points, strict=True)
                axes.plot(
                    rates,
                    values,
                    color=style.colour,
                    linestyle=style.dash,
                    marker="o",
                    markersize=3.5,
                    label=label(variant),
                )
            if path == ("goodput", "strict_share"):
                axes.axhline(THRESHOLD, color=MUTED, linewidth=0.8)
                axes.set_ylim(0, 1.05)
            else:
                axes.set_ylim(bottom=0)
            axes.set_title(figure_title(path))
            axes.set_xlabel("programs/s")
        legend(figure, figure.axes[0])
        svg = to_svg(figure, name, alt)
    caption = f"{workload} over the rate of arrivals, a point for each rate that was measured."
    if ("goodput", "strict_share") in panels:
        caption += f" The thin line is {THRESHOLD:.0%} of programs within the SLO."
    return Plot(svg, caption, alt)
