"""Prompts of a graph, learned from its own runs.

A run that was watched tells what each call was sent and what it answered. In the prompts the known
texts (the run's inputs, and the answers of earlier calls) are found again and become slots; what
is left is literal text. What two runs agree on will probably be so in the next run:

    run 1   "Review this: " [answer of draft] " Today is Mon"
    run 2   "Review this: " [answer of draft] " Today is Tue"
    kept    "Review this: " {draft_text} " Today is " {opaque}

What an earlier process learned counts like a run of this one: one run that agrees is enough.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grape_lc.adapters.agreement import agreement, size, symbolic
from grape_lc.adapters.edges import value_in
from grape_lc.adapters.flow_builder import (
    ABOUT_TOOLS,
    TEXT,
    FlowBuilder,
    Messages,
    PlannedCall,
    in_order,
    reads,
    texts_of,
)
from grape_lc.adapters.foretold import Expected, Sent
from grape_lc.adapters.forms import forms_of
from grape_lc.adapters.markers import Damaged, Found
from grape_lc.adapters.outlines import (
    Kind,
    Lesson,
    Outlines,
    has_tools,
    is_hidden,
    lesson_of,
    revealed,
    shown,
)
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.taskflow import TaskFlow

_LEAST = 4  # characters of a text that is searched for: a shorter one is found anywhere
_AGREEING = 2  # runs, before a prompt is prepared
MISSES = 3
"""Runs in a row that agree on little, after which a template is given up."""
LITTLE = 0.25
"""Of a prompt's characters."""
_MOST_TASKS = 256
_MOST_PARTS = 1024  # literal texts and values of all tasks: building the flow takes time for each
_MOST_SEARCHED = 32_000_000
"""Characters of prompts times known texts of a run: some 30 ms, which its caller waits for."""
_FORMS_COST = 100  # of making the forms of a text, in searches of as many characters
_MOST_NAMES = 1024
"""Of inputs and tasks: more are remembered only where tasks read them."""
_MOST_REST = 31


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call that ended.

    messages: as they were sent, in OpenAI's form; text: a prompt that is no chat. Neither is there
    of a call that is not to be prepared, but whose answer others may read. tools: that the model
    was shown, in OpenAI's form. max_tokens: the most that its answer may have.
    """

    task: str
    messages: Sequence[Mapping[str, Any]]
    answer: str
    text: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    max_tokens: int | None = None

    @property
    def sent(self) -> Sent:
        """Role and text of each message; nothing for a call that is not to be prepared."""
        return tuple(texts_of(self.messages)) if self.text is None else ((TEXT, self.text),)

    def answer_only(self) -> SeenCall:
        """The call as one that others may read, but that is not to be learned from."""
        return SeenCall(self.task, (), self.answer)


@dataclass(slots=True)
class _Learned:
    """A task: what all of its runs agree on, in how many, and how many of late agreed little.

    anew: how often it was learned anew without a run that agreed on more. rest: runs to come that
    are not looked at: what never agrees must not cost every run. limits: of its answers' tokens in
    this process, two of them at most, since then there is no common one.
    """

    messages: Messages
    tools: tuple[dict[str, Any], ...] = ()
    runs: int = 1
    misses: int = 0
    anew: int = 0
    rest: int = 0
    limits: set[int | None] = field(default_factory=set)

    @property
    def sampling(self) -> Sampling:
        """With the limit that all calls had; engines are not told, but readers are."""
        return Sampling(max_tokens=next(iter(self.limits)) if len(self.limits) == 1 else None)

    def limited(self, limit: int | None) -> bool:
        """A call had this limit; whether that changes the common one."""
        if limit in self.limits or len(self.limits) > 1:
            return False
        before = self.sampling
        self.limits.add(limit)
        return self.sampling != before

    def missed(self, *, much: bool) -> None:
        """A run agreed on little; or on ``much``, so the guess is as good as ever."""
        self.misses = 0 if much else self.misses + 1
        self.anew = 0 if much else self.anew


class Learner:
    """What is known of a graph's prompts. Usable from any thread.

    name: of the flow. kept: what an earlier process learned. Lessons with their texts are templates
    at once, hidden ones when a run agrees with them.
    """

    def __init__(self, name: str, kept: Outlines | None = None) -> None:
        self.name = name
        self._salt = "" if kept is None else kept.salt
        self._hidden: dict[str, Lesson] = {}
        self._numbers: dict[tuple[Kind, str], int] = {}
        self._next_number = 0
        self._tasks: dict[str, _Learned] = {}
        self._flow: TaskFlow | None = None
        self._lock = threading.Lock()
        for task, lesson in () if kept is None else list(kept.lessons.items())[:_MOST_TASKS]:
            self._number("answer", task)
            if is_hidden(lesson):
                self._hidden[task] = lesson
            else:
                messages = revealed(lesson, (), self._number, self._salt)
                self._tasks[task] = _Learned(messages, shown(lesson), _AGREEING)
        if self._tasks:
            self._flow = self._build()

    @property
    def flow(self) -> TaskFlow | None:
        """Tasks that at least two runs agreed on; None while there are none."""
        return self._flow

    @property
    def lessons(self) -> dict[str, Lesson]:
        """What another process may begin with: tasks of the flow, and hidden ones not yet seen."""
        with self._lock:
            names = {number: name for name, number in self._numbers.items()}
            return self._hidden | {
                task: lesson_of(known.messages, known.tools, names)
                for task, known in self._tasks.items()
                if known.runs >= _AGREEING
            }

    def watch(
        self,
        inputs: Mapping[str, str],
        calls: Sequence[SeenCall],
        earlier: Mapping[str, str] | None = None,
    ) -> bool:
        """Learn from a run; whether that changed anything.

        calls: in the order in which they began, each once. earlier: answers by task from before an
        interruption of the run, which others may read; their calls were learned from then.

        The work of a run is bounded. A call that is too much of it is not learned from this time,
        but when those before it are as foretold, and need no search.
        """
        with self._lock:
            expected = None if self._flow is None else Expected(self._flow, inputs, earlier or {})
            values = _Values()
            for name, text in inputs.items():
                values.add(self._number("input", name), text)
            for task, text in (earlier or {}).items():
                values.add(self._number("answer", task), text)
            changed = False
            for call in calls:
                # In most runs all is as foretold, and nothing has to be searched for.
                if expected is None or not _foretells(expected, call):
                    changed |= self._see(call, values)
                elif (known := self._tasks.get(call.task)) is not None:
                    known.missed(much=True)
                if call.sent and (known := self._tasks.get(call.task)) is not None:
                    changed |= known.limited(call.max_tokens) and known.runs >= _AGREEING
                if expected is not None:
                    expected.answered(call.task, call.answer)
                values.add(self._number("answer", call.task), call.answer)
            if changed:
                self._flow = self._build()
            self._forget_names()
            return changed

    def _see(self, call: SeenCall, values: _Values) -> bool:
        """Take in a call; whether that changes the flow."""
        if not call.sent:
            return False
        known = self._tasks.get(call.task)
        if known is not None and known.rest:
            known.rest -= 1
            return False
        if known is None and self._is_full():
            return False
        messages = values.found_in(call.sent)
        if messages is None:
            return False
        if known is None:
            return self._begin(call, messages)
        common = agreement(known.messages, messages) if known.tools == call.tools else ()
        known.missed(much=size(common) >= LITTLE * size(messages))
        if known.misses >= MISSES:
            # The program has changed. Its callers are not told: nothing was wrong but a guess.
            rest = min(2**known.anew - 1, _MOST_REST)
            self._tasks[call.task] = _Learned(messages, call.tools, anew=known.anew + 1, rest=rest)
            return True
        if not common:
            return False  # shown other tools: nothing of it is alike
        known.runs += 1
        changed = common != known.messages or known.runs == _AGREEING
        known.messages = common
        return changed

    def _begin(self, call: SeenCall, messages: Messages) -> bool:
        """The first run of a task: an earlier process may have seen it."""
        self._tasks[call.task] = _Learned(messages, call.tools)
        lesson = self._hidden.pop(call.task, None)
        if lesson is None:
            return False
        common = agreement(revealed(lesson, messages, self._number, self._salt), messages)
        if size(common) >= LITTLE * size(messages) and has_tools(lesson, call.tools, self._salt):
            self._tasks[call.task] = _Learned(common, call.tools, _AGREEING)
        # Kept no longer, if it does not fit.
        return True

    def _is_full(self) -> bool:
        parts = sum(len(parts) for known in self._tasks.values() for _, parts in known.messages)
        return len(self._tasks) >= _MOST_TASKS or parts >= _MOST_PARTS

    def _number(self, kind: Kind, name: str) -> int:
        number = self._numbers.setdefault((kind, name), self._next_number)
        self._next_number += number == self._next_number
        return number

    def _forget_names(self) -> None:
        """Keys of inputs may be others in each run: they must not fill the memory."""
        if len(self._numbers) <= _MOST_NAMES:
            return
        read = {n for known in self._tasks.values() for n in reads(known.messages)}
        self._numbers = {
            (kind, name): number
            for (kind, name), number in self._numbers.items()
            if number in read or (kind == "answer" and name in self._tasks)
        }

    def _build(self) -> TaskFlow | None:
        inputs = {n: name for (kind, name), n in self._numbers.items() if kind == "input"}
        ready = in_order(
            PlannedCall(
                task, self._number("answer", task), known.messages, known.sampling, known.tools
            )
            for task, known in self._tasks.items()
            if known.runs >= _AGREEING
        )
        return FlowBuilder(self.name, inputs, ready).build() if ready else None


class _Values:
    """The texts of a run that were known before a call, and where they stand in its prompt."""

    def __init__(self) -> None:
        self._new: list[tuple[int, str]] = []
        self._forms: dict[str, Found] = {}
        self._searched = 0

    def add(self, number: int, text: str) -> None:
        """One more text is known; of equal forms the first text's is taken."""
        self._new.append((number, text))

    def found_in(self, sent: Sent) -> Messages | None:
        """The prompt with the known texts in it told apart, the longest first.

        None where the search would be more than a run may take.
        """
        length = sum(len(text or "") for _, text in sent)
        # Of texts that were not looked at yet it is not known how many forms they have.
        work = length * (len(self._forms) + len(self._new)) + _FORMS_COST * sum(
            len(text) for _, text in self._new
        )
        if self._searched + work > _MOST_SEARCHED:
            return None
        self._searched += work
        for number, text in self._new:
            for form, specs in forms_of(text).items():
                if len(form.strip()) >= _LEAST:
                    self._forms.setdefault(form, value_in(number, form, specs))
        self._new.clear()
        forms = sorted(self._forms.items(), key=lambda item: (-len(item[0]), item[1].number))
        return tuple(
            (role, (Damaged(ABOUT_TOOLS),) if text is None else symbolic(text, forms))
            for role, text in sent
        )


def _foretells(expected: Expected, call: SeenCall) -> bool:
    """Whether the call was sent what the flow says, as far as it says much."""
    match = expected.match(call.task, call.sent, call.tools)
    return match is not None and match.differs is None and match.share >= LITTLE
