"""Ratios over programs: the same program in the same repeat, on two arms.

Beside the ratio over repeats, of which there are few, stands one over programs, of which there are
many: for every program its own figure on either arm, and the geometric mean of their ratios. The
interval resamples pairs of programs. Programs of a run share an engine, and a bad moment of the
machine hits several of them, so this interval is too narrow where runs differ; the one over
repeats does not know that programs differ. Where both leave out 1 there is a difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grape_lc.bench.intervals import Ratio, paired_ratio
from grape_lc.bench.metrics import RunRecord
from grape_lc.bench.outcomes import BENCH_FIGURES, Outcomes, outcomes
from grape_lc.bench.report import Figure, value_of

_OF_PROGRAMS = frozenset(
    {
        *(("agentic_itl_ms", kind) for kind in ("mean", "p50", "p95", "p99", "max")),
        *(("switch_gap_ms", kind) for kind in ("mean", "p95", "max")),
        *((name, "mean") for name in ("ttft_ms", "program_s", "idle_s")),
        *((name, "p50") for name in ("answer_s", "finish_s")),
    }
)
PROGRAM_LEVEL: tuple[Figure, ...] = tuple(f for f in BENCH_FIGURES if f.path in _OF_PROGRAMS)
"""Figures that one program has. Of several kinds of a time that it has but once, only the first."""


def program_gains(
    ours: Mapping[int, RunRecord], theirs: Mapping[int, RunRecord]
) -> dict[Figure, Ratio | None]:
    """How much better one arm is in each figure, over the programs of repeats that both have.

    ours, theirs: runs by repeat; ``theirs`` is the base. All figures are of ``PROGRAM_LEVEL``, so
    less is better; None without a pair.
    """
    pairs = _pairs(ours, theirs)
    return {figure: _ratio(figure, pairs) for figure in PROGRAM_LEVEL}


Pairs = Sequence[tuple[Outcomes, Outcomes]]


def _pairs(ours: Mapping[int, RunRecord], theirs: Mapping[int, RunRecord]) -> Pairs:
    """(base, ours) of every program, by repeat and then in the order of arrival."""
    pairs = []
    for repeat in sorted(ours.keys() & theirs.keys()):
        mine = {program.program: program for program in ours[repeat].programs}
        for program in theirs[repeat].programs:
            if program.program in mine:
                both = (program, mine[program.program])
                base, other = (outcomes([RunRecord("", (one,))]) for one in both)
                pairs.append((base, other))
    return pairs


def _ratio(figure: Figure, pairs: Pairs) -> Ratio | None:
    values = [(value_of(base, figure.path), value_of(ours, figure.path)) for base, ours in pairs]
    return paired_ratio(values)
