"""One program under each variant: when its calls waited, and when they decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grape_lc.bench.html_cells import Cell, records, whole_variants
from grape_lc.bench.metrics import CallRecord, ProgramRecord, upstream_of
from grape_lc.bench.plots import INK, SERIES, Plot, drawing, label, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WAIT, _DECODE, _EARLY = SERIES[1], SERIES[0], SERIES[2]
_HIGHEST = 16.0  # inches of the plot


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

    name: unique on the page. Raises ConfigError as ``records`` does.
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
        height = min(1.2 + 0.55 * _lanes(by_variant), _HIGHEST)
        figure = figure_of(figsize=(8.2, height), layout="constrained")
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
        "first token. Full: it decodes; the number is its place in the program. Calls at the same "
        "time stand below each other. Thin, below: prompt tokens of a later call were computed "
        "early. The engine does not tell when each piece was, so they are drawn over the time in "
        "which its upstream decoded."
    )
    return Plot(svg, caption, alt)


def _lanes(by_variant: Mapping[str, ProgramRecord]) -> int:
    return sum(max(lanes_of(_called(record))) + 1 for record in by_variant.values())


def lanes_of(calls: Sequence[CallRecord]) -> list[int]:
    """A lane for each call, from 0, such that calls in one lane do not overlap; as few as can be.

    calls: with tokens, in order of submission.
    """
    ends: list[float] = []
    lanes = []
    for call in calls:
        free = (lane for lane, end in enumerate(ends) if end <= call.submitted)
        lane = next(free, len(ends))
        ends[lane : lane + 1] = [call.last]
        lanes.append(lane)
    return lanes


def _called(record: ProgramRecord) -> list[CallRecord]:
    calls = [call for call in record.calls if call.tokens]
    return sorted(calls, key=lambda call: (call.submitted, call.call_id))


def _draw(axes: Axes, by_variant: Mapping[str, ProgramRecord]) -> None:
    bottom, middles = 0.0, []
    for record in by_variant.values():
        calls = _called(record)
        places = {c.call_id: bottom + n for c, n in zip(calls, lanes_of(calls), strict=True)}
        _program(axes, record, calls, places)
        highest = max(places.values())
        middles.append((bottom + highest) / 2)
        bottom = highest + 1.2
    axes.set_yticks(middles, [label(variant) for variant in by_variant])
    axes.set_ylim(bottom - 0.6, -0.6)
    axes.grid(visible=False, axis="y")


def _program(
    axes: Axes, record: ProgramRecord, calls: Sequence[CallRecord], places: Mapping[int, float]
) -> None:
    """Bars of one program. places: the height of each call, by its id."""
    early = {}
    for number, call in enumerate(calls, start=1):
        place = places[call.call_id]
        begin, first, last = (at - record.due for at in (call.submitted, call.first, call.last))
        axes.barh(
            place,
            first - begin,
            left=begin,
            height=0.34,
            color=_WAIT,
            hatch="//////",
            linewidth=0,
            label="waits for its first token",
        )
        axes.barh(place, last - first, left=first, height=0.34, color=_DECODE, label="decodes")
        axes.text(first, place - 0.22, str(number), color=INK, fontsize=7, va="bottom")
        upstream = upstream_of(call, record.calls)
        if call.ahead_tokens and upstream is not None:
            early[upstream.call_id] = upstream
    for upstream in early.values():
        axes.barh(
            places[upstream.call_id] + 0.28,
            upstream.last - upstream.first,
            left=upstream.first - record.due,
            height=0.1,
            color=_EARLY,
            label="a later call is prefilled early",
        )


def _seconds(record: ProgramRecord) -> float:
    return record.finished - record.due
