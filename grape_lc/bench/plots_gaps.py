"""Plots of gaps: which share of them is at most, and at least, so long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from grape_lc.bench.html_cells import Cell, records, whole_variants
from grape_lc.bench.metrics import ProgramRecord, percentile, switch_gaps, token_gaps
from grape_lc.bench.plots import Plot, drawing, label, legend, line_styles, plain_ticks, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

KINDS: Mapping[str, tuple[str, Callable[[ProgramRecord], list[float]]]] = {
    "itl": ("agentic ITL gap", token_gaps),
    "switch": ("task-switch gap", switch_gaps),
}
"""Kinds of gaps: their titles, and the function that takes them out of a program, in seconds."""

_POINTS = 100  # of a curve, evenly by rank; as many again in its tail


def gap_plot(cell: Cell, kind: str, name: str) -> Plot | None:
    """The distribution of a kind of gaps for each variant; None without any gap.

    kind: one of ``KINDS``. name: unique on the page. Variants that are grape without a mechanism
    are left out where grape itself is there. Raises ConfigError as ``records`` does.
    """
    title, gaps_of = KINDS[kind]
    gaps = {
        variant: sorted(
            1000 * gap for run in runs.values() for p in run.programs for gap in gaps_of(p)
        )
        for variant, runs in records(cell).items()
        if variant in whole_variants(cell)
    }
    gaps = {variant: values for variant, values in gaps.items() if any(v > 0 for v in values)}
    if not gaps:
        return None
    alt = f"Distribution of the {title} in {cell.title}. Median and P99: " + "; ".join(
        f"{variant} {percentile(values, 50):.1f} and {percentile(values, 99):.1f} ms"
        for variant, values in gaps.items()
    )
    with drawing() as figure_of:
        figure = figure_of(figsize=(8.2, 3.5), layout="constrained")
        whole, tail = figure.subplots(1, 2)
        _draw(whole, gaps, tail=False)
        _draw(tail, gaps, tail=True)
        whole.set_title("share of gaps up to this long")
        tail.set_title("the tail: share of gaps longer than this")
        for axes in (whole, tail):
            axes.set_xlabel(f"{title} (ms, logarithmic)")
        legend(figure, whole)
        svg = to_svg(figure, name, alt)
    caption = f"{title[0].upper()}{title[1:]}s, all repeats pooled. Further left is better."
    if len(whole_variants(cell)) < len(cell.variants):
        caption += " Variants without a mechanism are left out."
    return Plot(svg, caption, alt)


def _draw(axes: Axes, gaps: Mapping[str, Sequence[float]], *, tail: bool) -> None:
    styles = line_styles(list(gaps))
    for variant, values in gaps.items():
        points = thinned(values)
        lengths = [length for length, _ in points]
        shares = [1 - share if tail else share for _, share in points]
        if tail:  # the longest gap has no longer one; a logarithm cannot show that
            shares[-1] = 1 / len(values)
        style = styles[variant]
        axes.step(
            lengths,
            shares,
            where="post",
            color=style.colour,
            linestyle=style.dash,
            label=label(variant),
        )
    axes.set_xscale("log")
    plain_ticks(axes.xaxis)
    if tail:
        axes.set_yscale("log")
        plain_ticks(axes.yaxis)
    else:
        axes.set_ylim(0, 1.02)


def thinned(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """Some points of a distribution: a value, and the share of all values up to it.

    ordered: from the least to the greatest. Of many values a few hundred points are kept, denser
    towards the end, and both ends in any case. Zeros, as drafting makes them, have no place on a
    logarithmic axis: the curve begins at the least positive value, at the height of their share.
    """
    count = len(ordered)
    ranks = {round(i * (count - 1) / _POINTS) for i in range(_POINTS + 1)}
    # From the greatest value back: 0, 1, 2, ... and then ever further steps.
    ranks |= {count - 1 - round(count ** (i / _POINTS) - 1) for i in range(_POINTS)}
    first = next((rank for rank, value in enumerate(ordered) if value > 0), count)
    kept = sorted(rank for rank in ranks | {first} if first <= rank < count)
    return [(ordered[rank], (rank + 1) / count) for rank in kept]
