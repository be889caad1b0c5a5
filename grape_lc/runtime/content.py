"""Calls that name no program, found by what they say.

A call made in a bare thread comes without a word of the run that it belongs to. Its prompt tells:
no other call begins with the texts of this very run.

    known of a task that was not called yet        the call is the task's if its prompt
    all of it                                      equals that text
    a beginning, with answers of the run in it     begins with that text

A beginning without answers says little: whoever shares a system prompt, or asks about the same
thing, sends it too. So does a beginning whose next value is being written just now: the call that
reads it cannot have come.

Of several tasks the one with the longest known text is meant. What is left then is the same text,
in one program (say, a prompt that is sent three times) or in several (two runs with the same
input). In one program the calls are taken in the flow's order, as calls of a node are numbered in
the order in which they come. Of several programs it does not matter which one gets a call that
decodes greedily, since all of them will read the same answer: the oldest one does. A sampled
answer is that of one run only, and fed to another it would prepare what nobody sends, so such a
call is left alone; what it has in common with the open prompts it finds in the prefix cache.

Nothing here can change an answer: what is handed over is compared token by token as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from grape_lc.engine.base import CallRequest
from grape_lc.flow.taskflow import Task
from grape_lc.flow.template import PromptTemplate, Slot

MARK_START, MARK_END = "\ue1f0", "\ue1f1"
"""Stand around the number of a value that is not known when a prompt is rendered."""

LEAST_ANSWERS = 16
"""Characters of the run's answers that the beginning of a prompt must have to tell a call."""

Render = Callable[[list[dict[str, Any]] | str], str]

TextOf = Callable[[Slot], str | None]
"""The text that stands in a slot; None while it is not known."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the prompt of a task that was not called yet.

    chat: it is made of messages. text: rendered, up to the first value that is missing.
    whole: none is. answers: characters of upstream answers in ``text``.
    """

    program: str
    task: str
    chat: bool
    text: str
    whole: bool
    answers: int

    @property
    def tells(self) -> bool:
        """Whether enough is known to tell a call by it."""
        return self.whole or self.answers >= LEAST_ANSWERS

    def fits(self, text: str, *, chat: bool) -> bool:
        """Whether a call with this prompt is one of the task."""
        if chat != self.chat or not self.tells:
            return False
        return text == self.text if self.whole else text.startswith(self.text)


class Choice(NamedTuple):
    """The task that a call was found to be; ``ambiguous``: none, since several fit alike."""

    known: Known | None = None
    ambiguous: bool = False


def prompt_of(request: CallRequest) -> list[dict[str, Any]] | str | None:
    """The prompt as it is rendered, without tools; None of a call that sends token ids."""
    if request.messages is not None:
        return [dict(message) for message in request.messages]
    return request.text


def is_greedy(request: CallRequest) -> bool:
    """Whether calls with this request's prompt all get the same answer."""
    return request.sampling.temperature == 0


def choose(text: str, known: Iterable[Known], *, chat: bool, greedy: bool) -> Choice:
    """The task of a call with this rendered prompt.

    known: programs oldest first, tasks of each in the flow's order; ties go to the first.
    """
    fits = [item for item in known if item.fits(text, chat=chat)]
    if not fits:
        return Choice()
    longest = max(len(item.text) for item in fits)
    best = [item for item in fits if len(item.text) == longest]
    if not greedy and len({item.program for item in best}) > 1:
        return Choice(ambiguous=True)
    return Choice(best[0])


def known_prefix(
    template: PromptTemplate, text_of: TextOf, render: Render
) -> tuple[str, Slot | None]:
    """A prompt's text up to the first slot whose text is not known, and that slot."""
    missing: list[Slot] = []

    def fill(slot: Slot) -> str:
        text = text_of(slot)
        # A value with a mark in it would be read as one: the prompt ends before it.
        if text is not None and MARK_START not in text:
            return text
        missing.append(slot)
        return f"{MARK_START}{len(missing) - 1}{MARK_END}"

    text = render(template.render_partial(fill))
    at = text.find(MARK_START)
    if at < 0:
        return text, None
    number = int(text[at + 1 : text.index(MARK_END, at)])
    return text[:at], missing[number]


def known_of(
    program: str,
    task: Task,
    text_of: TextOf,
    writers: Mapping[str, str],
    running: Collection[str],
    render: Render,
) -> Known | None:
    """What is known of a task's prompt; None while a task that it reads next is running.

    writers: the task that writes each variable. running: tasks with a call in flight.
    """
    text, missing = known_prefix(task.prompt, text_of, render)
    if missing is not None and writers.get(missing.variable) in running:
        return None
    filled = takewhile(lambda slot: slot != missing, task.prompt.slots)
    answers = sum(len(text_of(slot) or "") for slot in filled if slot.variable in writers)
    chat = task.prompt.messages is not None
    return Known(program, task.name, chat, text, missing is None, answers)
