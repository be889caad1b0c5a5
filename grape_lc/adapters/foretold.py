"""How much of a prompt that was sent its template had foretold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grape_lc.adapters.edges import same_start
from grape_lc.adapters.flow_builder import TEXT
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.template import Literal_, PromptTemplate, Segment

Sent = Sequence[tuple[str, str | None]]
"""A prompt as it was sent: role and text of each message. ``TEXT`` is the role of a prompt that is
no chat; a text of None is a message that templates cannot hold, with which the prompt ends."""


@dataclass(frozen=True, slots=True)
class Foretold:
    """A template held against the prompt that was sent.

    covered: characters from the prompt's start that were foretold. total: characters sent.
    differs: message and character, from 1, of the first one that was foretold wrongly; None: what
        was foretold is right, and behind it stands a value that was not known.
    """

    covered: int
    total: int
    differs: tuple[int, int] | None = None

    @property
    def share(self) -> float:
        """``covered`` by ``total``, 0 to 1; 1 for an empty prompt."""
        return self.covered / self.total if self.total else 1.0


class Expected:
    """What a flow expects of the calls of one run, by what is known before each of them.

    inputs: texts of the run; those that the flow does not name are left out. earlier: answers from
        before the run was interrupted, by task.
    """

    def __init__(
        self, flow: TaskFlow, inputs: Mapping[str, str], earlier: Mapping[str, str]
    ) -> None:
        self._flow = flow
        self._tasks = {task.name: task for task in flow.tasks}
        given = {var.name for var in flow.variables if var.kind == "input"}
        self._values = {name: text for name, text in inputs.items() if name in given}
        for task, text in earlier.items():
            self.answered(task, text)

    def match(self, task: str, sent: Sent, tools: Sequence[Mapping[str, Any]]) -> Foretold | None:
        """What was foretold of a call; None of one without a prompt, or of no task of the flow."""
        known = self._tasks.get(task)
        return (
            None if known is None or not sent else foretold(known.prompt, self._values, sent, tools)
        )

    def answered(self, task: str, text: str) -> None:
        """A call has ended: later ones may read its answer."""
        if (known := self._tasks.get(task)) is not None:
            self._values |= dict.fromkeys(self._flow.written_by(known), text)


def _text_of(segment: Segment, values: Mapping[str, str]) -> str | None:
    """What stands here; None for a value that is not known, or not of the form that is needed."""
    if isinstance(segment, Literal_):
        return segment.text
    value = values.get(segment.variable)
    return None if value is None else segment.transducer.settled(value, done=True)


def foretold(
    prompt: PromptTemplate,
    values: Mapping[str, str],
    sent: Sent,
    tools: Sequence[Mapping[str, Any]] = (),
) -> Foretold:
    """Hold a template against the prompt that was sent, with ``tools`` that the model was shown.

    values: by names of its variables. Chat templates put tools in front: with others than those of
    the template nothing of it is right.
    """
    total = sum(len(text or "") for _, text in sent)
    if list(prompt.tools) != list(tools):
        return Foretold(0, total, (1, 1))
    covered = 0
    sections = prompt.sections
    for index, ((role, segments), (sent_role, text)) in enumerate(
        zip(sections, sent, strict=False), 1
    ):
        if (TEXT if role is None else role) != sent_role:
            return Foretold(covered, total, (index, 1))
        if text is None:
            return Foretold(covered, total)
        at = 0
        for segment in segments:
            piece = _text_of(segment, values)
            if piece is None:
                return Foretold(covered + at, total)
            if not text.startswith(piece, at):
                at += same_start(piece, text[at : at + len(piece)])
                return Foretold(covered + at, total, (index, at + 1))
            at += len(piece)
        covered += at
        if at < len(text):
            return Foretold(covered, total, (index, at + 1))
    if len(sections) != len(sent):
        return Foretold(covered, total, (min(len(sections), len(sent)) + 1, 1))
    return Foretold(covered, total)
