"""The prompts of the synthetic agent: fixed instructions, a task, and what there is so far."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ._asking import Layout
from ._axes import Axes
from .inputs.words import text_of

CLOSING = "Write your note."

State = Mapping[str, Any]


def common_text(axes: Axes) -> str:
    """The part of the instructions that all calls have in common; may be empty."""
    return text_of(axes.static * axes.shared, "all roles")


def own_text(call: str, axes: Axes) -> str:
    """The part of the instructions that only one call has."""
    text = text_of(axes.static * (1 - axes.shared), call)
    return _joined(f"You write the note of {call}.", text)


def instructions(call: str, axes: Axes) -> str:
    """The fixed text of a call: first what all calls have in common, then its own."""
    return _joined(common_text(axes), own_text(call, axes))


class Prompts:
    """Makes the system prompt and the message of each call from a program's state."""

    def __init__(self, axes: Axes, layout: Layout) -> None:
        self._axes = axes
        # Made once for each call: they can be thousands of words.
        self._fixed = cache(lambda call: instructions(call, axes))
        self._own = cache(lambda call: own_text(call, axes))
        self._head = _joined("You write notes.", common_text(axes))
        self._of = self._role_first if layout == "role_first" else self._history_first

    def of(self, state: State, stage: int, call: str) -> tuple[str, str]:
        """System prompt and message of a call of a stage."""
        return self._of(state, stage, call)

    def _role_first(self, state: State, stage: int, call: str) -> tuple[str, str]:
        before = [number for number in range(1, stage) if self._written(state, number)]
        notes = self._notes(state, before[-1]) if before else ""
        found = self._found(state, stage)
        fixed, task = self._fixed(call), f"Task:\n\n{state['task']}\n\n"
        if self._axes.variable == "first":
            return f"{notes}{fixed}", f"{task}{found}{CLOSING}"
        return fixed, f"{task}{notes}{found}{CLOSING}"

    def _history_first(self, state: State, stage: int, call: str) -> tuple[str, str]:
        history = [f"Task:\n\n{state['task']}\n\n"]
        for number in range(1, stage):
            if self._written(state, number):
                history += [self._found(state, number), self._notes(state, number)]
        history.append(self._found(state, stage))
        return self._head, f"{''.join(history)}{self._own(call)}\n\n{CLOSING}"

    def _written(self, state: State, stage: int) -> bool:
        return self._axes.calls(stage)[0] in state.get("answers", {})

    def _notes(self, state: State, stage: int) -> str:
        notes = "\n\n".join(state["answers"][call] for call in self._axes.calls(stage))
        return f"Notes:\n\n{notes}\n\n"

    def _found(self, state: State, stage: int) -> str:
        if not self._axes.tools or stage == 1:
            return ""
        return f"Looked up:\n\n{state['found'][str(stage)]}\n\n"


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))
