"""The table of open prompts: what each running program may have prefilled, and from what.

Pure: events go in (a program was announced, an upstream call produced text), commands for the
engine come out (open, append, release). No clock, no I/O, so one thread owns it and tests drive
it directly.

State of one prompt (a task of a program):

    pending --open--> open --all text known--> complete
       |                |                         |
       +------+---------+-----------+-------------+
              | its call arrived    | program ended, upstream ran again
              v                     v
            taken                released
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Protocol

from grape_lc.engine.base import CallRequest
from grape_lc.flow.streams import TransducerStream
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import Slot
from grape_lc.limits import ENGINE_PROGRAMS, ENGINE_PROMPTS, PROGRAM_PROMPTS, TEXT_CHARS
from grape_lc.runtime import content
from grape_lc.runtime.commands import AppendPrompt, Command, OpenPrompt, ReleasePrompt
from grape_lc.runtime.hints import FlowShape
from grape_lc.runtime.odds import LEAST_ODDS, Odds
from grape_lc.runtime.splicer import Splicer
from grape_lc.scheduler.types import NO_HINT, Hint

APPEND_CHUNK = 8
"""Upstream tokens after which a prompt is extended: the weight of a partial edge."""


class PromptText(Protocol):
    """How the engine turns prompts into text and text into ids.

    markers: texts that become one special token each, such as ``<|im_end|>``.
    """

    @property
    def markers(self) -> Sequence[str]:
        """See the class."""
        ...

    def render(
        self, prompt: list[dict[str, Any]] | str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        """The text that is tokenised: chat template applied, answer marker added.

        tools: functions in OpenAI's form that the model is shown.
        """
        ...

    def encode(self, text: str, *, chat: bool) -> tuple[Sequence[int], Sequence[int] | None]:
        """Ids of a rendered text and the character index at which each ends (or None)."""
        ...


class State(StrEnum):
    """See the drawing above."""

    PENDING = "pending"
    OPEN = "open"
    COMPLETE = "complete"
    TAKEN = "taken"
    RELEASED = "released"


_MOVES: Mapping[State, frozenset[State]] = {
    State.PENDING: frozenset({State.OPEN, State.TAKEN, State.RELEASED}),
    State.OPEN: frozenset({State.COMPLETE, State.TAKEN, State.RELEASED}),
    State.COMPLETE: frozenset({State.TAKEN, State.RELEASED}),
    State.TAKEN: frozenset(),
    State.RELEASED: frozenset(),
}


@dataclass
class _Value:
    """Text of a variable: an input, or what an upstream call produced so far."""

    text: str = ""
    done: bool = False


@dataclass
class _Prompt:
    """One task's prompt while it grows."""

    task: Task
    key: str
    splicer: Splicer
    state: State = State.PENDING
    slot: Slot | None = None  # the slot that is being filled; None: all text known
    stream: TransducerStream | None = None
    seen: int = 0  # characters of the slot's source that went into the stream
    fresh: int = 0  # upstream tokens since the last commit
    story: list[str] = field(default_factory=list)

    def move(self, state: State, why: str) -> None:
        if state not in _MOVES[self.state]:
            raise AssertionError(
                f"open prompt {self.key}: {self.state} -> {state} ({why}) is not allowed; "
                f"story: {'; '.join(self.story)}"
            )
        self.story.append(f"{self.state}->{state}: {why}")
        self.state = state

    @property
    def alive(self) -> bool:
        return self.state in (State.PENDING, State.OPEN, State.COMPLETE)

    @property
    def in_engine(self) -> bool:
        return self.state in (State.OPEN, State.COMPLETE)


@dataclass
class _Program:
    """A run of a flow: values known so far and the prompts that wait for more."""

    id: str
    flow: TaskFlow
    shape: FlowShape
    values: dict[str, _Value]
    tenant: str = ""
    running: set[str] = field(default_factory=set)  # tasks with a call in flight
    called: set[str] = field(default_factory=set)  # tasks with a call in flight or answered
    prompts: dict[str, _Prompt] = field(default_factory=dict)
    # What is known of tasks that were not called, until a value that they read changes.
    known: dict[str, content.Known | None] = field(default_factory=dict)
    # Those of them by which a call can be told, in the flow's order; None: to be found again.
    telling: list[content.Known] | None = None

    @cached_property
    def writers(self) -> dict[str, str]:
        """The task that writes each variable; for a newest one the task that did so last."""
        return {task.output: task.name for task in self.flow.tasks}

    @property
    def runs_of(self) -> tuple[str, str]:
        """What tells runs that are alike: what one tenant's do says nothing of another's."""
        return self.tenant, self.shape.name

    def hint(self, task: str | None) -> Hint:
        """What a call of this task says."""
        return replace(self.shape.hint(task), tenant=self.tenant)

    def text_of(self, slot: Slot) -> str | None:
        """What stands in a slot, once nothing can change it."""
        value = self.values.get(slot.variable)
        return None if value is None else slot.transducer.settled(value.text, done=value.done)

    def changed(self, task: Task) -> None:
        """A call of a task begins or ends: its output is not what it was."""
        self.telling = None
        for name in self.flow.downstream(task.name):
            self.known.pop(name, None)


class PromptTable:
    """All programs of one engine. Every method returns the commands that the engine must run.

    A program is its tenant's: to calls of others it is one that is not there (``is_anothers``).

    ``enabled=False`` keeps the bookkeeping out altogether: no program is ever recorded.
    """

    def __init__(
        self, text: PromptText, *, chunk: int = APPEND_CHUNK, enabled: bool = True
    ) -> None:
        self._text = text
        self._chunk = chunk
        self._enabled = enabled
        self._programs: dict[str, _Program] = {}
        self._serial = 0
        self._odds = Odds()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._programs)

    def __contains__(self, program_id: object) -> bool:
        return program_id in self._programs

    @property
    def sizes(self) -> dict[str, int]:
        """Entries of what is kept: programs that are open, their prompts, flows seen so far."""
        return {"programs": len(self), "prompts": self._prompts, "flows": len(self._odds)}

    @property
    def _prompts(self) -> int:
        return sum(len(program.prompts) for program in self._programs.values())

    # ------------------------------------------------------------------ programs

    def open_program(
        self, program_id: str, flow: TaskFlow, inputs: Mapping[str, str], tenant: str = ""
    ) -> list[Command]:
        """Record a run of a tenant's and open the prompt of every task that waits for another one.

        Tasks that wait for none are left out: their call is about to arrive by itself. So are
        those that earlier runs of the flow seldom came to.
        """
        if not self._enabled or program_id in self._programs:
            return []
        if len(self._programs) >= ENGINE_PROGRAMS.value:
            self.counts["skipped_programs"] += 1
            return []
        if sum(map(len, inputs.values())) > TEXT_CHARS.value:
            self.counts["skipped_long_inputs"] += 1
            return []
        if any(content.MARK_START in value for value in inputs.values()):
            self.counts["skipped_marker_in_input"] += 1
            return []
        values = {name: _Value(text, True) for name, text in inputs.items()}
        for newest, of in flow.choices.items():
            if given := [values[name] for name in of if name in values]:
                values[newest] = given[-1]
        program = _Program(program_id, flow, FlowShape.of(flow), values, tenant)
        self._programs[program_id] = program
        self.counts["programs"] += 1
        odds = self._odds.of(program.runs_of, flow)
        commands: list[Command] = []
        most = min(PROGRAM_PROMPTS.value, ENGINE_PROMPTS.value - self._prompts)
        for task in flow.order():
            if not flow.upstream(task.name):
                continue
            if len(program.prompts) >= most:
                self.counts["skipped_prompts"] += 1
                continue
            if odds[task.name] < LEAST_ODDS:
                self.counts["unlikely"] += 1
                continue
            commands += self._begin(program, task)
        return commands

    def close_program(self, program_id: str) -> list[Command]:
        """Forget a run and release what it still holds."""
        program = self._programs.pop(program_id, None)
        if program is None:
            return []
        answered = {
            program.writers[name]
            for name, value in program.values.items()
            if value.done and name in program.writers
        }
        self._odds.ended(program.runs_of, program.flow, program.called, answered)
        return [c for p in program.prompts.values() for c in self._release(p, "program closed")]

    # ------------------------------------------------------------------ calls

    def call_started(self, program_id: str | None, task_name: str | None) -> list[Command]:
        """A call of this task begins to decode. If the task ran before, or another whose answer
        this one takes the place of, what was built on the old answer is released and begun again.
        """
        program, task = self._find(program_id, task_name)
        if program is None or task is None:
            return []
        commands: list[Command] = []
        written = program.flow.written_by(task)
        old = {name for name in written if name in program.values and program.values[name].text}
        program.running.add(task.name)
        program.called.add(task.name)
        program.known.pop(task.name, None)
        program.values |= dict.fromkeys(written, _Value())
        program.writers |= dict.fromkeys(written, task.name)
        program.changed(task)
        if old:
            for name in program.flow.downstream(task.name):
                prompt = program.prompts.get(name)
                reads = program.flow.task(name).prompt.variables
                if prompt is not None and prompt.alive and not old.isdisjoint(reads):
                    commands += self._release(prompt, f"{task.name} runs again")
                    commands += self._begin(program, program.flow.task(name))
        return commands

    def call_text(
        self, program_id: str | None, task_name: str | None, text: str, tokens: int
    ) -> list[Command]:
        """An upstream call produced ``text``, made of ``tokens`` tokens."""
        program, task = self._find(program_id, task_name)
        if program is None or task is None:
            return []
        value = program.values.setdefault(task.output, _Value())
        value.text += text
        commands: list[Command] = []
        for prompt in self._fed_by(program, task):
            prompt.fresh += tokens
            if prompt.fresh >= self._chunk:
                commands += self._grow(program, prompt)
        return commands

    def call_finished(
        self, program_id: str | None, task_name: str | None, *, complete: bool
    ) -> list[Command]:
        """An upstream call ended; ``complete`` says that its text stands as the task's output.

        Prompts that are more than one call away are left to ``catch_up``.
        """
        program, task = self._find(program_id, task_name)
        if program is None or task is None:
            return []
        program.running.discard(task.name)
        program.changed(task)
        value = program.values.setdefault(task.output, _Value())
        if not complete:
            program.called.discard(task.name)
            return []
        value.done = True
        # The next call is on its way: only its prompt is worth the time now.
        near = [p for p in self._fed_by(program, task) if self._hops(program, p.task.name) == 1]
        return [c for p in near for c in self._grow(program, p)]

    def catch_up(self, program_id: str) -> list[Command]:
        """Take in what became known for prompts that were put off."""
        program = self._programs.get(program_id)
        if program is None:
            return []
        return [c for p in program.prompts.values() for c in self._grow(program, p)]

    def hint(self, program_id: str | None, task_name: str | None) -> Hint:
        """What is known about a call of this task: its place, and whether prompts wait for it."""
        program, task = self._find(program_id, task_name)
        if program is None:
            return NO_HINT
        hint = program.hint(task_name)
        return replace(hint, feeds=task is not None and bool(self._fed_by(program, task)))

    def take(self, program_id: str | None, task_name: str | None) -> str | None:
        """The real call of this task arrived: hand its open prompt's key over, if it has one."""
        program, task = self._find(program_id, task_name)
        prompt = program.prompts.get(task.name) if program and task else None
        if prompt is None or not prompt.alive:
            return None
        held = prompt.in_engine
        prompt.move(State.TAKEN, "its call arrived")
        self.counts["taken" if held else "taken_before_open"] += 1
        return prompt.key if held else None

    def knows(self, program_id: str | None, task_name: str | None) -> bool:
        """Whether this is a task of a running program."""
        program = self._programs.get(program_id) if program_id is not None else None
        return program is not None and task_name in program.shape.hints

    def is_anothers(self, program_id: str | None, tenant: str) -> bool:
        """Whether this is a running program of another tenant than ``tenant``."""
        program = self._programs.get(program_id) if program_id is not None else None
        return program is not None and program.tenant != tenant

    def find(self, request: CallRequest) -> tuple[str, str] | None:
        """Program and task of a call that names no program, by its content (``content``).

        Only programs of the call's tenant are looked at. None if it fits none, or several that are
        not alike. Costs nothing while no such program is open; else a comparison for each task that
        was not called yet, and one rendering.
        """
        programs = [p for p in self._programs.values() if p.tenant == request.tenant]
        prompt = content.prompt_of(request) if programs else None
        if prompt is None:
            return None
        known = [item for program in programs for item in self._known(program)]
        if not known:
            return None
        choice = content.choose(
            self._render_bare(prompt),
            known,
            chat=request.messages is not None,
            greedy=content.is_greedy(request),
        )
        self.counts["matched_by_content"] += choice.known is not None
        self.counts["ambiguous"] += choice.ambiguous
        return None if choice.known is None else (choice.known.program, choice.known.task)

    def _known(self, program: _Program) -> list[content.Known]:
        """What is known of tasks that were not called yet, and tells a call."""
        if program.telling is None:
            found = [self._known_of(program, task) for task in program.flow.order()]
            program.telling = [known for known in found if known is not None and known.tells]
        return program.telling

    def _known_of(self, program: _Program, task: Task) -> content.Known | None:
        if task.name in program.called:
            return None
        if task.name not in program.known:
            program.known[task.name] = content.known_of(
                program.id,
                task,
                program.text_of,
                program.writers,
                program.running,
                self._render_bare,
            )
        return program.known[task.name]

    def _render_bare(self, prompt: list[dict[str, Any]] | str) -> str:
        return self._text.render(prompt, tools=())

    # ------------------------------------------------------------------ growing

    def _begin(self, program: _Program, task: Task) -> list[Command]:
        self._serial += 1
        chat = task.prompt.messages is not None
        splicer = Splicer(
            lambda text: self._text.encode(text, chat=chat), markers=self._text.markers
        )
        prompt = _Prompt(task, f"grape/{program.id}/{task.name}/{self._serial}", splicer)
        program.prompts[task.name] = prompt
        self._next_slot(program, prompt)
        return self._grow(program, prompt)

    def _grow(self, program: _Program, prompt: _Prompt) -> list[Command]:
        """Take in whatever text became known and commit what is certain of it."""
        if not prompt.alive or prompt.splicer.broken or prompt.state is State.COMPLETE:
            return []
        while prompt.slot is not None and self._fill(program, prompt):
            if not self._next_slot(program, prompt):
                return []
        prompt.fresh = 0
        complete = prompt.slot is None
        ids = prompt.splicer.commit(final=complete)
        if ids is None:
            self.counts["splice_broken"] += 1
            return []
        return self._emit(program, prompt, ids, complete)

    def _emit(
        self, program: _Program, prompt: _Prompt, ids: list[int], complete: bool
    ) -> list[Command]:
        if not ids and not complete:
            return []
        commands: list[Command] = []
        name = prompt.task.name
        hops = self._hops(program, name)
        source = program.writers.get(prompt.slot.variable) if prompt.slot is not None else None
        if prompt.state is State.PENDING and ids:
            prompt.move(State.OPEN, f"{len(ids)} tokens known")
            hint = replace(program.hint(name), program=program.id, hops=hops, source=source)
            commands.append(OpenPrompt(prompt.key, ids, hint))
        elif prompt.state is State.OPEN:
            commands.append(AppendPrompt(prompt.key, ids, hops, complete, source))
        if prompt.state is State.OPEN and complete:
            prompt.move(State.COMPLETE, "all text known")
        return commands

    def _fill(self, program: _Program, prompt: _Prompt) -> bool:
        """Feed the current slot from its source; True once the slot is full."""
        assert prompt.slot is not None
        value = program.values.get(prompt.slot.variable)
        if value is None:
            return False
        if prompt.stream is None:
            prompt.stream = prompt.slot.transducer.stream()
        if prompt.stream.stopped:
            return False  # the value has not the form that is needed: the prompt ends here
        prompt.splicer.feed(prompt.stream.feed(value.text[prompt.seen :]))
        prompt.seen = len(value.text)
        if value.done:
            prompt.splicer.feed(prompt.stream.finish())
        self.counts["slot_stopped"] += prompt.stream.stopped
        return prompt.stream.complete

    def _next_slot(self, program: _Program, prompt: _Prompt) -> bool:
        """Append the known text up to the next slot whose text is not; False if it cannot be."""
        template = prompt.task.prompt
        render = partial(self._text.render, tools=template.tools)
        prefix, slot = content.known_prefix(template, program.text_of, render)
        # The chat template may change the text of a slot: what is held back is as it says now.
        if not prompt.splicer.replace_held_back(prefix):
            # What was committed is kept, and compared when the call arrives.
            prompt.splicer.broken = True
            prompt.slot = None
            self.counts["template_rewrote_slot"] += 1
            return False
        prompt.slot, prompt.stream, prompt.seen = slot, None, 0
        return True

    # ------------------------------------------------------------------ look-ups

    def _find(
        self, program_id: str | None, task_name: str | None
    ) -> tuple[_Program | None, Task | None]:
        program = self._programs.get(program_id) if program_id is not None else None
        if program is None or task_name is None:
            return None, None
        task = next((t for t in program.flow.tasks if t.name == task_name), None)
        if task is None:
            self.counts["unknown_task"] += 1
        return program, task

    def _fed_by(self, program: _Program, task: Task) -> list[_Prompt]:
        """Prompts whose current slot is the output of ``task``."""
        return [
            prompt
            for prompt in program.prompts.values()
            if prompt.alive
            and prompt.slot is not None
            and program.writers.get(prompt.slot.variable) == task.name
        ]

    def _hops(self, program: _Program, task_name: str) -> int:
        """Calls that must still end before this task's call can begin (at least 1)."""
        flow = program.flow
        wait: dict[str, int] = {}
        for task in flow.order():  # upstream tasks come first
            value = program.values.get(task.output)
            if value is not None and value.done:
                wait[task.name] = 0
            elif task.name in program.running:
                wait[task.name] = 1
            else:
                wait[task.name] = 1 + _longest(wait, flow.needs(task.name), 0)
        return _longest(wait, flow.needs(task_name), 1) or 1

    def _release(self, prompt: _Prompt, why: str) -> list[Command]:
        if not prompt.alive:
            return []
        held = prompt.in_engine
        prompt.move(State.RELEASED, why)
        return [ReleasePrompt(prompt.key)] if held else []

    def validate(self) -> None:
        """Raise AssertionError if the table contradicts itself."""
        keys = [p.key for g in self._programs.values() for p in g.prompts.values()]
        assert len(keys) == len(set(keys)), "a key is used twice"
        for program in self._programs.values():
            assert program.running <= program.called, (program.running, program.called)
            assert program.called <= {t.name for t in program.flow.tasks}, program.called
            for prompt in program.prompts.values():
                prompt.splicer.validate()
                if prompt.state is State.COMPLETE:
                    assert prompt.slot is None, f"{prompt.key} is complete but waits for a slot"


def _longest(wait: Mapping[str, int], needs: Sequence[Sequence[str]], default: int) -> int:
    """Calls to wait for until one of each group is answered."""
    return max((min(wait[task] for task in group) for group in needs), default=default)
