r"""Prompt templates: literal text and slots that are filled with the values of variables.

    "Plan for: {problem}\n\nDraft:\n{draft|strip}"
     └ literal ┘└ slot ┘└ literal ┘└ slot, with a transducer ┘

``{{`` and ``}}`` stand for braces. A transducer changes the value on its way into the
prompt (transducers.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pydantic import Field, field_validator, model_validator

from grape_lc.errors import (
    FlowError,
    FlowFormatError,
    FlowInputError,
    PromptSyntaxError,
    TransducerError,
)
from grape_lc.flow._model import FlowModel
from grape_lc.flow.transducers import IDENTITY, Transducer, parse_transducer
from grape_lc.limits import CALL_TOOLS, PROMPT_PIECES, TEXT_CHARS


@dataclass(frozen=True, slots=True)
class Literal_:  # noqa: N801  (`Literal` is typing's)
    """Text that stands in the prompt as it is; never empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that is filled with the value of ``variable``, through ``transducer``."""

    variable: str
    transducer: Transducer = IDENTITY

    def __str__(self) -> str:
        suffix = "" if self.transducer == IDENTITY else f"|{self.transducer.name}"
        return f"{{{self.variable}{suffix}}}"

    def text(self, value: str) -> str:
        """What stands here for ``value``. Raises TransducerError, which names the slot."""
        try:
            return self.transducer.apply(value)
        except TransducerError as error:
            raise TransducerError(f"slot {self}: {error}") from None


Segment = Literal_ | Slot


@dataclass(frozen=True, slots=True)
class StaticRun:
    """Neighbouring segments between two cuts of a prompt.

    parts: the segments, apart for each message that the run touches; none is empty.
    """

    parts: tuple[tuple[Segment, ...], ...]

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments in prompt order."""
        return tuple(segment for part in self.parts for segment in part)


# A run of ordinary text, a doubled brace, a slot without braces inside, or a stray brace.
_TOKEN = re.compile(r"(?P<text>[^{}]+)|(?P<brace>\{\{|\}\})|\{(?P<slot>[^{}]*)\}|(?P<stray>[{}])")


def parse_template(text: str) -> tuple[Segment, ...]:
    """Cut a template into segments; two literals never stand side by side.

    Raises PromptSyntaxError on a stray brace, a slot that is not ``{name}`` or
    ``{name|transducer}``, or an unknown transducer, and names the position; and on a template
    that is over ``limits.TEXT_CHARS`` or ``PROMPT_PIECES``.
    """
    # Longer ones are not kept: a thousand of them would fill the memory.
    return _parsed(text) if len(text) > _LONG_CHARS else _parsed_and_kept(text)


def _parsed(text: str) -> tuple[Segment, ...]:
    TEXT_CHARS.check(len(text), "a template", PromptSyntaxError)
    most = PROMPT_PIECES.value
    segments: list[Segment] = []
    literal: list[str] = []

    def end_literal() -> None:
        if literal:
            segments.append(Literal_("".join(literal)))
            literal.clear()

    for match in _TOKEN.finditer(text):
        if match["text"] is not None:
            literal.append(match["text"])
        elif match["brace"] is not None:
            literal.append(match["brace"][0])
        elif match["slot"] is not None:
            end_literal()
            if len(segments) >= most:
                raise PromptSyntaxError(f"a template: {PROMPT_PIECES.excess(len(segments) + 1)}")
            segments.append(_parse_slot(match["slot"], text, match.start()))
        else:
            raise PromptSyntaxError(
                f"stray {match['stray']!r} at {_position(text, match.start())}: write {{{{ or "
                "}} for a brace, {name} for a variable"
            )
    end_literal()
    return tuple(segments)


_LONG_CHARS = 1 << 14
_parsed_and_kept = lru_cache(maxsize=1024)(_parsed)


def _parse_slot(inside: str, text: str, at: int) -> Slot:
    """The slot at an index of a template, given what stands between its braces."""
    variable, bar, transducer = inside.partition("|")
    shown = repr(f"{{{inside}}}" if len(inside) <= 40 else f"{{{inside[:40]}...}}")
    if not variable.isidentifier():
        raise PromptSyntaxError(
            f"slot {shown} at {_position(text, at)} does not name a variable: write {{name}} or "
            "{name|transducer}, and {{ or }} for a brace"
        )
    if not bar:
        return Slot(variable)
    try:
        return Slot(variable, parse_transducer(transducer))
    except PromptSyntaxError as error:
        raise PromptSyntaxError(f"slot {shown} at {_position(text, at)}: {error}") from None


def _position(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    column = index - (text.rfind("\n", 0, index) + 1) + 1
    return f"line {line}, column {column}"


def literal_to_template(text: str) -> str:
    """The template that stands for exactly this text."""
    return text.replace("{", "{{").replace("}", "}}")


_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant"}


class MessageTemplate(FlowModel):
    """One chat message.

    role: as the model's chat template knows it: ``system``, ``user``, ``assistant``, ``tool``.
    content: a template.

    Raises FlowFormatError on a blank role, and on LangChain's names for roles, which a chat
    template would put into the prompt without complaint.
    """

    role: str
    content: str

    # A missing part is left to pydantic, which reports it with the place where it is missing.
    def __init__(self, /, role: str | None = None, content: str | None = None, **data: Any) -> None:
        given = {"role": role, "content": content}
        super().__init__(**{k: v for k, v in given.items() if v is not None}, **data)

    @field_validator("role")
    @classmethod
    def _role_is_usable(cls, role: str) -> str:
        if not role.strip():
            raise FlowFormatError(f"role {role!r} is blank")
        if role in _LANGCHAIN_ROLES:
            raise FlowFormatError(
                f"role {role!r} is LangChain's word: write {_LANGCHAIN_ROLES[role]!r}"
            )
        return role


class PromptTemplate(FlowModel):
    """The prompt of a task: either chat ``messages`` or one ``text`` for completion.

    tools: functions in OpenAI's form that the model is shown; chat templates put them in front.

    Raises PromptSyntaxError when a template does not parse or there is no text at all, and
    FlowFormatError when not exactly one of the two is given.
    """

    messages: tuple[MessageTemplate, ...] | None = None
    text: str | None = None
    tools: tuple[dict[str, Any], ...] = Field(default=(), exclude_if=lambda tools: not tools)

    @classmethod
    def of(cls, prompt: PromptLike) -> PromptTemplate:
        """A template from a text, or from messages as pairs, mappings or MessageTemplates."""
        if isinstance(prompt, PromptTemplate):
            return prompt
        if isinstance(prompt, str):
            return cls(text=prompt)
        if not isinstance(prompt, Iterable):
            raise FlowFormatError(
                f"a prompt is a text, messages or a PromptTemplate, not {type(prompt).__name__}"
            )
        return cls(messages=tuple(_message(index, item) for index, item in enumerate(prompt, 1)))

    @model_validator(mode="after")
    def _parses(self) -> PromptTemplate:
        if (self.messages is None) == (self.text is None):
            given = "neither" if self.text is None else "both"
            raise FlowFormatError(f"a prompt has either messages or text; {given} given")
        if self.messages is not None and not self.messages:
            raise PromptSyntaxError("the prompt is empty: it has no messages")
        CALL_TOOLS.check(len(self.tools), "a prompt", FlowFormatError)
        sections = self.sections
        pieces = sum(1 + len(segments) for _, segments in sections)
        PROMPT_PIECES.check(pieces, "a prompt", FlowFormatError)
        if not any(segments for _, segments in sections):
            raise PromptSyntaxError("the prompt is empty: it has no text at all")
        return self

    @property
    def sections(self) -> tuple[tuple[str | None, tuple[Segment, ...]], ...]:
        """(role, segments) of each message in order; of a text prompt one, with role None."""
        if self.messages is None:
            return ((None, parse_template(self.text or "")),)
        sections = []
        for index, message in enumerate(self.messages, 1):
            try:
                sections.append((message.role, parse_template(message.content)))
            except PromptSyntaxError as error:
                raise PromptSyntaxError(f"message {index} ({message.role}): {error}") from None
        return tuple(sections)

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Every slot in prompt order; a variable that is read twice appears twice."""
        return tuple(
            segment
            for _, segments in self.sections
            for segment in segments
            if isinstance(segment, Slot)
        )

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the variables that the prompt reads, each once, by first appearance."""
        return tuple(dict.fromkeys(slot.variable for slot in self.slots))

    def cut_at(self, variables: Collection[str]) -> tuple[Slot | StaticRun, ...]:
        """The prompt cut at each slot of one of these variables: the slots, and the runs between.

        Runs go on across messages, and there are no empty ones.
        """
        pieces: list[Slot | StaticRun] = []
        parts: list[tuple[Segment, ...]] = []
        for _, segments in self.sections:
            part: list[Segment] = []
            for segment in segments:
                if isinstance(segment, Slot) and segment.variable in variables:
                    parts += [tuple(part)] if part else []
                    pieces += [StaticRun(tuple(parts))] if parts else []
                    pieces.append(segment)
                    part, parts = [], []
                else:
                    part.append(segment)
            parts += [tuple(part)] if part else []
        pieces += [StaticRun(tuple(parts))] if parts else []
        return tuple(pieces)

    def render_partial(self, fill: Callable[[Slot], str]) -> list[dict[str, Any]] | str:
        """The prompt with ``fill(slot)`` in the place of each slot.

        ``fill`` is called once for each slot, in prompt order, and its text is used as it
        is: the slot's transducer is not applied. Returns messages or a text, as the
        prompt is.
        """
        rendered = [
            (role, "".join(s.text if isinstance(s, Literal_) else fill(s) for s in segments))
            for role, segments in self.sections
        ]
        if self.messages is None:
            return rendered[0][1]
        return [{"role": role, "content": content} for role, content in rendered]

    def render_messages(self, values: Mapping[str, str]) -> list[dict[str, Any]]:
        """The chat messages for these values.

        Raises FlowInputError on a missing value or one that is not a string, TransducerError on
        one that does not fit its slot, and FlowError when the prompt is a text.
        """
        rendered = self.render_partial(lambda slot: _fill(slot, values))
        if isinstance(rendered, str):
            raise FlowError("the prompt is a text, not messages: use render_text")
        return rendered

    def render_text(self, values: Mapping[str, str]) -> str:
        """The text for these values; errors as for ``render_messages``."""
        rendered = self.render_partial(lambda slot: _fill(slot, values))
        if not isinstance(rendered, str):
            raise FlowError("the prompt has messages, not a text: use render_messages")
        return rendered


PromptLike = PromptTemplate | str | Sequence[MessageTemplate | tuple[str, str] | Mapping[str, str]]


def _message(index: int, item: object) -> MessageTemplate:
    if isinstance(item, MessageTemplate):
        return item
    if isinstance(item, Mapping):
        parts = dict(item)
    elif isinstance(item, (tuple, list)) and len(item) == 2:
        parts = {"role": item[0], "content": item[1]}
    else:
        raise FlowFormatError(
            f"message {index} is {item!r:.60}: write (role, content), or a mapping with these keys"
        )
    if not all(isinstance(name, str) for name in parts):
        raise FlowFormatError(f"message {index}: its keys are {', '.join(map(repr, parts)):.60}")
    try:
        return MessageTemplate(**parts)
    except FlowFormatError as error:
        raise FlowFormatError(f"message {index}: {error}") from None


def _fill(slot: Slot, values: Mapping[str, str]) -> str:
    if slot.variable not in values:
        known = ", ".join(values) or "none"
        raise FlowInputError(f"no value for {slot}; values given: {known}")
    value = values[slot.variable]
    if not isinstance(value, str):
        raise FlowInputError(
            f"the value for {slot} is {type(value).__name__}, not a string: {value!r}"
        )
    return slot.text(value)
