"""What happens while a flow runs, and its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class TokenUsage(Protocol):
    """Token counts of one call."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the whole prompt."""
        ...

    @property
    def completion_tokens(self) -> int:
        """Tokens sampled."""
        ...

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens whose KV existed when the call arrived, whatever the source."""
        ...

    @property
    def ahead_tokens(self) -> int:
        """The part of ``cached_tokens`` that was prefilled for this call ahead of time."""
        ...

    @property
    def ahead_outcome(self) -> str:
        """Why ``ahead_tokens`` is what it is."""
        ...


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """The call of a task was sent. ``at``: seconds on the monotonic clock, as in all events."""

    program: str
    task: str
    at: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """A task's answer grew by ``text`` (may be empty) and ``token_ids``."""

    program: str
    task: str
    text: str
    token_ids: tuple[int, ...]
    at: float


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A task's answer is complete. ``text`` is the whole answer."""

    program: str
    task: str
    text: str
    finish_reason: str
    usage: TokenUsage
    at: float


@dataclass(frozen=True, slots=True)
class ProgramFinished:
    """All tasks are done; the last event of a run.

    outputs: values of the flow's output variables, in the order of declaration.
    values: values of all variables, the inputs included.
    """

    program: str
    outputs: dict[str, str]
    values: dict[str, str]
    at: float


FlowEvent = TaskStarted | TokenEvent | TaskFinished | ProgramFinished


@dataclass(frozen=True, slots=True)
class FlowResult:
    """What a run gave.

    outputs, values: as in ProgramFinished.
    usage: token counts of each task's call, by task name.
    """

    program: str
    outputs: dict[str, str]
    values: dict[str, str]
    usage: dict[str, TokenUsage]
