"""What is known of a graph's calls: results of ``explain_graph`` and their plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from grape_lc.flow.explanation import Amount, TaskExplanation
from grape_lc.flow.layout import Advice

VERSION = 1
"""Of the plain data's form."""

Source = Literal["declared", "traced", "learned", "none"]
Basis = Literal["measured", "limit", "part", "unknown"]


@dataclass(frozen=True, slots=True)
class LastCalls:
    """A call in the last runs.

    runs: in how many it was made. calls: how often. The tokens are means for one call, of the
    fields that ``CallSaving`` has. outcomes: how often each take-over's outcome, or reason for
    which the call was in no program, came up; the most frequent first, ties by name. first: how
    often no other call of the run had ended before; it is not among the plain data.
    """

    runs: int
    calls: int
    prompt_tokens: float
    completion_tokens: float
    cached_tokens: float
    ahead_tokens: float
    outcomes: Mapping[str, int]
    first: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "runs": self.runs,
            "calls": self.calls,
            "prompt_tokens": round(self.prompt_tokens, 1),
            "completion_tokens": round(self.completion_tokens, 1),
            "cached_tokens": round(self.cached_tokens, 1),
            "ahead_tokens": round(self.ahead_tokens, 1),
            "outcomes": dict(self.outcomes),
        }


@dataclass(frozen=True, slots=True)
class CallReport:
    """One call of the graph.

    source: where its template comes from; ``none``: there is no template, and ``why`` says why.
    prompt: when its parts can be prefilled. last: None: not made in the last runs.
    """

    task: str
    source: Source
    prompt: TaskExplanation | None
    last: LastCalls | None
    why: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "task": self.task,
            "source": self.source,
            "prompt": None if self.prompt is None else self.prompt.to_dict(),
            "last": None if self.last is None else self.last.to_dict(),
            "why": self.why,
        }


@dataclass(frozen=True, slots=True)
class EdgeReport:
    """An answer that another call reads.

    known: known text that is prefilled while the upstream decodes.
    answer_ahead: whether the answer goes in before the call comes: while it is written itself, or
        as a whole while another is.
    answer_tokens: its size: as ``basis`` says measured (the mean of the last runs) or at most (its
        limit); None: not known, or it does not go in, or only a part of it does.
    saved, prompt_tokens: means for one call downstream in the last runs: tokens prefilled ahead
        that are this edge's, and of the whole prompt; None: it was not made.
    why: why nothing is expected or was saved, or why not more.
    """

    upstream: str
    downstream: str
    known: Amount
    answer_ahead: bool
    answer_tokens: float | None
    basis: Basis
    saved: float | None
    prompt_tokens: float | None
    why: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "upstream": self.upstream,
            "downstream": self.downstream,
            "expected": {
                "known": self.known.tokens,
                "unsized": list(self.known.unsized),
                "answer_ahead": self.answer_ahead,
                "answer_tokens": _rounded(self.answer_tokens),
                "basis": self.basis,
            },
            "saved": _rounded(self.saved),
            "prompt_tokens": _rounded(self.prompt_tokens),
            "why": list(self.why),
        }


@dataclass(frozen=True, slots=True)
class RunReport:
    """All calls of one of the last runs. at: when it began, in seconds since 1970."""

    at: float
    calls: int
    prompt_tokens: int
    cached_tokens: int
    ahead_tokens: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return {
            "at": self.at,
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "ahead_tokens": self.ahead_tokens,
        }


@dataclass(frozen=True, slots=True)
class GraphExplanation:
    """What of a graph's prompts is prepared, what that saved, and why not more.

    ``str()`` gives a text of at most 100 columns, ``to_dict()`` plain data, ``to_html()`` a page
    of its own; notebooks show it as a table.

    estimated: tokens of templates are estimates, marked ``~``; those of runs are the engine's.
    calls: as they are made, as far as that is known, those without a template among them.
    edges: by the downstream call, in the order in which its prompt reads them.
    runs: the latest last. notes: what holds of the whole graph.
    """

    graph: str
    estimated: bool
    calls: tuple[CallReport, ...]
    edges: tuple[EdgeReport, ...]
    advice: tuple[Advice, ...]
    runs: tuple[RunReport, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold; ``version`` counts up when its form changes."""
        return {
            "version": VERSION,
            "graph": self.graph,
            "estimated": self.estimated,
            "calls": [call.to_dict() for call in self.calls],
            "edges": [edge.to_dict() for edge in self.edges],
            "advice": [advice.to_dict() for advice in self.advice],
            "runs": [run.to_dict() for run in self.runs],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        from grape_lc.adapters.explain_text import text_of  # it imports this module

        return text_of(self)

    def to_html(self) -> str:
        """One page without scripts, which loads nothing from anywhere."""
        from grape_lc.adapters.explain_html import page_of  # it imports this module

        return page_of(self)

    def _repr_html_(self) -> str:
        """For notebooks."""
        from grape_lc.adapters.explain_html import part_of  # it imports this module

        return part_of(self)


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
