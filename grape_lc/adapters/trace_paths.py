"""The paths of a graph: run after run on markers, each making other choices.

    1. a first run, whose choices follow the rule of trace_choices.py
    2. runs that choose otherwise at one place of an earlier run, then at two, and so on. A run
       that showed nothing new is not varied further.
    3. runs that are sent to ends of conditional edges which no run has reached by itself
    4. runs on the second variant of all that is no text (numbers, lengths), for each call that
       was seen, to find out what in its prompt does not hold
    5. runs whose answers begin with thoughts, to find out which programs cut these off

All of it is deterministic, and ends: at a number of runs that the caller gives.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grape_lc.adapters.markers import marker
from grape_lc.adapters.recording import RecordedCall, RecordingEngine
from grape_lc.adapters.trace_answers import Answer, answer
from grape_lc.adapters.trace_choices import ROUNDS, Choices, Key
from grape_lc.adapters.trace_documents import Documents
from grape_lc.adapters.trace_ends import Ends
from grape_lc.adapters.trace_input import SymbolicInput
from grape_lc.adapters.trace_lanes import Lane, Lanes, Place
from grape_lc.adapters.trace_numbers import Numbers
from grape_lc.adapters.trace_run import AnyGraph, Ran, Stop, run_once
from grape_lc.adapters.trace_thoughts import cuts_thoughts
from grape_lc.adapters.trace_volatile import shows_time
from grape_lc.engine.base import CallRequest

MOST_CALLS = 200
"""Calls of the model in one run."""

_A_SECOND = 1.1
_MOST_FIRST = 24  # runs to find out what an input and answers have to have
SHIFT = 1_000_000
"""What the numbers of the markers are more by in a SECOND run, so that their lengths differ."""

SECOND, THINKING = 1, 2
"""Kinds of runs beside the usual ones, 0: see 4 and 5 above."""

Told = Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class Path:
    """A run that was made.

    told: the choices that it was told to make. kind: 0, SECOND or THINKING.
    calls: those that are kept of it. stop: why it did not come to the end; None: it did.
    """

    told: Told
    kind: int
    calls: tuple[RecordedCall, ...]
    choices: Choices
    stop: Stop | None


class Paths:
    """Runs a graph as often as it may. most: runs in all, at least one."""

    def __init__(
        self, graph: AnyGraph, graph_input: SymbolicInput, numbers: Numbers, most: int
    ) -> None:
        self._graph = graph
        self._input = graph_input
        self._numbers = numbers
        self._most = most
        self._ends = Ends(graph)
        self._tried: set[frozenset[tuple[Key, int]]] = set()
        self._known: set[object] = set()
        self.runs = 0
        self._resume = False
        self._documents = Documents()
        self.paths: list[Path] = []
        self.foreign: Counter[str] = Counter()
        """Calls of models that are not ours in one run, by their class."""
        self.left_out = False
        """Whether there was more to try than runs were allowed."""

    def follow(self) -> None:
        """Make the runs."""
        first = self._first()
        if self._most == 1:
            return
        # Room is kept for the second variants: a path that was not checked is worth little.
        self._vary([first], limit=max(1, self._most * 2 // 3))
        self._check()
        reached = self._reached()
        self.paths = [_shortened(path, reached) for path in self.paths]

    def _first(self) -> Path:
        """The first run that counts: those before it show what input and answers have to have."""
        kept: Path | None = None
        for _ in range(min(self._most, _MOST_FIRST)):
            path, ran = self._run({}, 0)
            if kept is not None and len(path.calls) < len(kept.calls):
                self._input.take_back()
                break
            kept = path
            failed, missing = path.stop is not None, _missing(path.stop)
            error = None if path.stop is None else path.stop.error
            if self.runs >= self._most:
                break
            interrupted = path.stop is not None and path.stop.interrupted
            if interrupted and not self._resume:
                self._resume = True
            elif not (
                self._input.seen(ran.written, missing, failed=failed)
                or self._documents.learn(error, self._numbers.named("call"))
            ):
                break
        assert kept is not None
        self._add(kept)
        return kept

    def _vary(self, paths: Sequence[Path], limit: int) -> None:
        level = list(paths)
        while level or (level := [*self._forced(limit)]):
            following: list[Path] = []
            for path in level:
                for told in self._variations(path):
                    if self.runs >= limit:
                        self.left_out = True
                        return
                    other, _ = self._run(told, 0)
                    if self._add(other):
                        following.append(other)
            level = following

    def _variations(self, path: Path) -> Iterator[Told]:
        """Other choices at one place of a path, the earliest rounds first."""
        for key, choice in sorted(path.choices.made.items(), key=lambda item: item[0][::-1]):
            if key.visit > ROUNDS or key in path.told:
                continue
            for option in range(choice.options):
                told = {**path.told, key: option}
                if option != choice.chosen and self._is_new(told):
                    yield told

    def _forced(self, limit: int) -> Iterator[Path]:
        """Runs to the ends that no run has reached; those that showed something new."""
        reached = self._reached()
        for path in list(self.paths):
            for key in sorted(path.choices.passed, key=lambda key: key[::-1]):
                if path.kind or key.visit > ROUNDS or key in path.told:
                    continue
                for option, end in enumerate(path.choices.edges[key.place].ends):
                    told = {**path.told, key: option}
                    if end in reached[key.place] or not self._is_new(told):
                        continue
                    if self.runs >= limit:
                        self.left_out = True
                        return
                    other, _ = self._run(told, 0)
                    if self._add(other):
                        yield other

    def _reached(self) -> dict[str, set[str]]:
        """The ends that runs went to by themselves, by the places of the edges."""
        reached: dict[str, set[str]] = {}
        for path in self.paths:
            for place, edge in path.choices.edges.items():
                reached.setdefault(place, set()).update(edge.reached)
        return reached

    def _check(self) -> None:
        """Runs of the other kinds, of paths that together make every call."""
        calls = [call for path in self.paths for call in path.calls]
        if any(shows_time(str(call.request.messages or call.request.text)) for call in calls):
            # A time of day is then another one. Not sleep(), which a sandbox cuts short.
            threading.Event().wait(_A_SECOND)
        for kind in (SECOND, THINKING):
            self._repeat(kind)

    def _repeat(self, kind: int) -> None:
        unchecked = {call.task for path in self.paths for call in path.calls}
        for path in [path for path in self.paths if not path.kind]:
            if not unchecked:
                return
            if unchecked.isdisjoint(call.task for call in path.calls):
                continue
            if self.runs >= self._most:
                self.left_out = True
                return
            other, _ = self._run(path.told, kind)
            self.paths.append(other)
            if kind == THINKING and not cuts_thoughts(other.calls):
                return
            unchecked.difference_update(call.task for call in other.calls)
            # What only a longer list calls has no second variant.
            unchecked.difference_update(call.task for call in path.calls)

    def _is_new(self, told: Told) -> bool:
        key = frozenset(told.items())
        if key in self._tried:
            return False
        self._tried.add(key)
        return True

    def _add(self, path: Path) -> bool:
        """Keep a path; whether it showed a call or a choice that none before it has."""
        self.paths.append(path)
        shown: set[object] = {call.task for call in path.calls}
        shown.update(path.choices.made)
        shown.update((place, end) for place, e in path.choices.edges.items() for end in e.reached)
        shown.update(path.choices.passed.items())
        new = bool(shown - self._known)
        self._known |= shown
        return new

    def _run(self, told: Told, kind: int) -> tuple[Path, Ran]:
        self.runs += 1
        self._is_new(told)
        run = _Run(Choices(told), self._numbers, self._ends, self._documents, kind)
        recorder = RecordingEngine(run.answer, run.number, run.lanes, MOST_CALLS)
        graph_input = self._input.make(kind % 2)
        ran = run_once(self._graph, graph_input, recorder, run, resume=self._resume)
        self.foreign |= Counter(ran.foreign)
        calls = recorder.calls
        if ran.stop is not None and ran.stop.endless:
            calls = tuple(call for call in calls if call.visit <= ROUNDS)
        return Path(told, kind, calls, run.choices, ran.stop), ran


class _Run:
    """Answers and decides in one run. A ``Director``."""

    def __init__(
        self, choices: Choices, numbers: Numbers, ends: Ends, documents: Documents, kind: int
    ) -> None:
        self.choices = choices
        self._numbers = numbers
        self._ends = ends
        self._documents = documents
        self._names: dict[int, str] = {}
        self.lanes = Lanes()
        self._variant, self._thinks = kind % 2, kind == THINKING

    def number(self, node: str, place: Place) -> int:
        """The number of the marker for a call of a node."""
        where = ".".join(map(str, place))
        name = f"{node} {where}"
        number = self._numbers.of("call", name) + SHIFT * self._variant
        self._names[number] = name
        return number

    def answer(self, request: CallRequest, node: str, number: int) -> Answer:
        """What a call is answered."""
        self.choices.called()
        document = self._documents.answer(self._names[number], number)
        if document is not None and not request.sampling.structured_outputs:
            return document

        def choose(what: str, options: int) -> int:
            return self.choices.choose(f"{node}: {what}", options)

        return answer(request, number, choose, self._variant, thinks=self._thinks)

    def edge(
        self,
        site: str,
        function: Callable[..., Any] | None,
        ends: Sequence[str] | None,
        natural: Sequence[str],
    ) -> str | None:
        """See ``Director``."""
        possible = self._ends.of_edge(site, function, ends)
        name = getattr(function, "__name__", "edge")
        return self.choices.pass_edge(f"{site} -> {name}", natural, possible)

    def goto(self, site: str, natural: Sequence[str]) -> str | None:
        """See ``Director``."""
        return self.choices.pass_edge(f"{site} -> goto", natural, self._ends.of_node(site))

    def lane(self, site: str) -> Lane:
        """See ``Director``."""
        return Lane(self.lanes.of(site).next())

    def unknown(self, what: str) -> str:
        """See ``Director``."""
        return marker(self._numbers.of("unknown", what) + SHIFT * self._variant)


def _shortened(path: Path, reached: Mapping[str, set[str]]) -> Path:
    """A path up to where it left a loop, if others came to that end by themselves.

    A program that leaves a loop has a reason to, such as an answer in its state.
    """
    ends = [e.calls for e in path.choices.exits if e.end in reached[e.place]]
    return replace(path, calls=path.calls[: min(ends)]) if ends else path


def _missing(stop: Stop | None) -> list[str]:
    """Keys of the state that a node, or the state's class, could not do without."""
    error = stop.error if stop is not None else None
    if isinstance(error, KeyError):
        return [key for key in error.args if isinstance(key, str)]
    errors = getattr(error, "errors", None)
    if callable(errors):  # pydantic's
        return [str(e["loc"][0]) for e in errors() if e.get("type") == "missing" and e.get("loc")]
    return []
