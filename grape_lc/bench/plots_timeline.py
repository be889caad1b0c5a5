"""One program under each variant: when its calls waited, and when they decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from grape_lc.bench.html_cells import Cell, records, whole_variants
from grape_lc.bench.metrics import ProgramRecord, upstream_of
from grape_lc.bench.plots import INK, SERIES, Plot, drawing, label, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WAIT, _DECODE, _EARLY = SERIES[1], SERIES[0], SERIES[2]


def chosen_program(cell: Cell) -> tuple[int, str, dict[str, ProgramRecord]] | None:
    """A program that every variant with records ran: repeat, name, and its record by variant.

    Of the first repeat that has any: the one whose time under the first variant is the median, of
    two in the middle the quicker one, the name deciding between equals. None if there is none.
    Raises ConfigError as ``records`` does.
    """
    whole = whole_variants(cell)
    found = {variant: runs for variant, runs in records(cell).items() if variant in whole}
    repeats = sorted(set[int]().union(*found.values()))
    for repeat in repeats:
        ran = {
            variant: {p.program: p for p in runs[repeat].programs if any(c.tokens for c in p.calls)}
            for variant, runs in found.items()
            if repeat in runs
        }
        common = set.intersection(*(set(programs) for programs in ran.values()))
        if common:
            first = next(iter(ran.values()))
            ordered = sorted(common, key=lambda name: (_seconds(first[name]), name))
            name = ordered[(len(ordered) - 1) // 2]
            return repeat, name, {variant: programs[name] for variant, programs in ran.items()}
    return None


def timeline_plot(cell: Cell, name: str) -> Plot | None:
    """The program of ``chosen_program`` as bars, a row a variant; None where there is none.

    name: unique on the page. Raises ConfigError as ``records`` and ``drawing`` do.
    """
    chosen = chosen_program(cell)
    if chosen is None:
        return None
    repeat, program, by_variant = chosen
    alt = f"Program {program} of {cell.title}, repeat {repeat}, under each variant. " + "; ".join(
        f"{variant}: {_seconds(record):.2f} s, calls begin to decode at "
        + ", ".join(f"{c.first - record.due:.2f}" for c in record.calls if c.tokens)
        for variant, record in by_variant.items()
    )
    with drawing() as figure_of:
        figure = figure_of(figsize=(8.2, 1.2 + 0.55 * len(by_variant)), layout="constrained")
        axes = figure.subplots()
        _draw(axes, by_variant)
        axes.set_xlabel("seconds since the program was due")
        axes.set_title(f"program {label(program)}, repeat {repeat}")
        handles, labels = axes.get_legend_handles_labels()
        once = dict(zip(labels, handles, strict=True))
        figure.legend(once.values(), once.keys(), loc="outside lower center", ncols=3)
        svg = to_svg(figure, name, alt)
    caption = (
        "One program under each variant: the one of median duration. Hatched: a call waits for its "
        "first token. Full: it decodes; the number is its place in the program. Thin, below: "
        "prompt tokens of a later call were computed early. The engine does not tell when each "
        "piece was, so they are drawn over the time in which its upstream decoded."
    )
    return Plot(svg, caption, alt)


def _draw(axes: Axes, by_variant: Mapping[str, ProgramRecord]) -> None:
    for row, record in enumerate(by_variant.values()):
        zero, calls = record.due, [call for call in record.calls if call.tokens]
        for number, call in enumerate(calls, start=1):
            begin, first, last = (at - zero for at in (call.submitted, call.first, call.last))
            axes.barh(
                row,
                first - begin,
                left=begin,
                height=0.34,
                color=_WAIT,
                hatch="//////",
                linewidth=0,
                label="waits for its first token",
            )
            axes.barh(row, last - first, left=first, height=0.34, color=_DECODE, label="decodes")
            axes.text(first, row - 0.22, str(number), color=INK, fontsize=7, va="bottom")
            upstream = upstream_of(call, record.calls)
            if call.ahead_tokens and upstream is not None:
                axes.barh(
                    row + 0.28,
                    upstream.last - upstream.first,
                    left=upstream.first - zero,
                    height=0.1,
                    color=_EARLY,
                    label="a later call is prefilled early",
                )
    axes.set_yticks(range(len(by_variant)), [label(variant) for variant in by_variant])
    axes.set_ylim(len(by_variant) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")


def _seconds(record: ProgramRecord) -> float:
    return record.finished - record.due
