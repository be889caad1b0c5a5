"""What is chosen where a traced graph may go on in several ways.

The value of an enum field, a call of a tool or an answer, the end of a conditional edge: nothing of
this is known in a trace, so one path through the graph makes one set of choices, and further
paths make others (trace_paths.py). A choice is known by its place and by how often that place was
passed in this path:

    place      "route", field "kind" of the answer       visit 1, 2, ...
    options    "bug", "question"                         an index is chosen

Choices that a path was not told are made by a rule: what this place has chosen least often so far,
the first option if several. So a loop is left again after each other way out of it was taken.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ROUNDS = 3
"""So often a path passes a place freely: loops are followed for so many rounds."""


class Key(NamedTuple):
    """A choice of a path: its place, and which visit of the place it is, from 1."""

    place: str
    visit: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that was made: how many options there were, and which was taken."""

    options: int
    chosen: int


@dataclass(slots=True)
class Edge:
    """A place at which the program itself decides where to go.

    ends: where it can go, in the order of declaration. reached: where it went of itself.
    """

    ends: tuple[str, ...]
    reached: set[str] = field(default_factory=set)


class Exit(NamedTuple):
    """A loop that was left although the program would go on. calls: of the model before."""

    place: str
    end: str
    calls: int


class Choices:
    """The choices of one path. Usable from any thread.

    told: the choices that this path is to make; all others follow the rule.
    """

    def __init__(self, told: Mapping[Key, int]) -> None:
        self._told = told
        self._visits: Counter[str] = Counter()
        self._taken: defaultdict[str, Counter[Hashable]] = defaultdict(Counter)
        self._lock = threading.Lock()
        self.made: dict[Key, Choice] = {}
        self.edges: dict[str, Edge] = {}
        self.passed: dict[Key, str] = {}
        self.exits: list[Exit] = []
        self._calls = 0

    def called(self) -> None:
        """A call of the model was made."""
        with self._lock:
            self._calls += 1

    def choose(self, place: str, options: int) -> int:
        """The index of the option to take at this visit of ``place``."""
        with self._lock:
            key = self._visit(place)
            taken = self._taken[place]
            chosen = self._told.get(key, min(range(options), key=lambda n: (taken[n], n)))
            taken[chosen] += 1
            self.made[key] = Choice(options, chosen)
            return chosen

    def pass_edge(self, place: str, natural: Sequence[str], ends: Sequence[str]) -> str | None:
        """Where to go instead of where the program wants to; None: where it wants to.

        natural: the ends that it chose by itself. An edge that chooses the same in each round goes
        elsewhere in the last one, for it may do so for ever.
        """
        with self._lock:
            key = self._visit(place)
            edge = self.edges.setdefault(place, Edge(tuple(ends)))
            told = self._told.get(key)
            if told is not None and told < len(ends):
                self.passed[key] = ends[told]
                self._taken[place][ends[told]] += 1
                return ends[told]
            taken = self._taken[place]
            if key.visit >= ROUNDS and all(taken[end] >= key.visit - 1 for end in natural):
                others = [end for end in ends if end not in natural]
                if others:
                    end = min(others, key=lambda e: (taken[e], ends.index(e)))
                    taken[end] += 1
                    self.passed[key] = end
                    self.exits.append(Exit(place, end, self._calls))
                    return end
            for end in natural:
                taken[end] += 1
            edge.reached.update(natural)
            self.passed[key] = ", ".join(natural)
            return None

    def _visit(self, place: str) -> Key:
        self._visits[place] += 1
        return Key(place, self._visits[place])
