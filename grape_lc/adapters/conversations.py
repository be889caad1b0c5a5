"""Conversations that a checkpointer continues: the turns before stand in front of the new message.

A run of a later turn is begun with the new messages alone, and its prompts have all of them:

    turn 1   input  Hi                 prompt   Be brief. | Hi
    turn 2   input  Bye                prompt   Be brief. | Hi | Hello! | Bye
    template                                    Be brief. | {messages_0}

So that one template holds for all turns, earlier messages are taken out of what was sent before
anything is learned from it, and put in again, in front of the first new message, for a program.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from grape_lc.adapters.flow_builder import texts_of
from grape_lc.adapters.inputs import inner_name, input_items, messages_of
from grape_lc.adapters.learning import SeenCall
from grape_lc.adapters.messages import to_chat
from grape_lc.errors import RequestError
from grape_lc.flow.taskflow import Task, TaskFlow
from grape_lc.flow.template import MessageTemplate, Slot, parse_template
from grape_lc.flow.transducers import IDENTITY
from grape_lc.flow.variables import InputVar

History = tuple[tuple[str, str], ...]
"""Role and text of each message so far."""

Histories = Mapping[str, History]
"""By the key of the state that holds the messages."""


def histories_of(state: object) -> dict[str, History]:
    """The messages in a graph's state; without keys of which a template cannot hold them all."""
    found: dict[str, History] = {}
    for key, value in input_items(state):
        messages = messages_of(value)
        if not messages:
            continue
        try:
            texts = list(texts_of(to_chat(messages)))
        except RequestError:
            continue
        history = tuple((role, text) for role, text in texts if text is not None)
        if len(history) == len(texts):
            found[key] = history
    return found


class Conversations:
    """Which tasks are sent what was said before. Usable from any thread."""

    def __init__(self) -> None:
        self._without: set[str] = set()
        self._lock = threading.Lock()

    def told(self, calls: Sequence[SeenCall], histories: Histories) -> list[SeenCall]:
        """The calls of a run without the earlier messages of its conversation."""
        return [self._told(call, histories) for call in calls] if histories else list(calls)

    def _told(self, call: SeenCall, histories: Histories) -> SeenCall:
        if not call.messages:
            return call
        messages, had = list(call.messages), False
        for history in histories.values():
            sent = [(role, text) for role, text in texts_of(messages)]
            at = _position(sent, history)
            if at is not None:
                messages[at : at + len(history)] = []
                had = True
        with self._lock:
            if had:
                self._without.discard(call.task)
            else:
                self._without.add(call.task)
        return replace(call, messages=tuple(messages)) if had and messages else call

    def continued(self, flow: TaskFlow, histories: Histories) -> tuple[TaskFlow, dict[str, str]]:
        """The flow with the earlier messages in its prompts, and these as texts of its inputs."""
        with self._lock:
            without = set(self._without)
        added: dict[str, str] = {}
        places: dict[str, list[MessageTemplate]] = {}
        taken = {var.name for var in flow.variables}
        for key, history in histories.items():
            names = [f"{inner_name(key, 'before')}_{number}" for number in range(len(history))]
            if history and not taken.intersection(names):
                added |= {name: text for name, (_, text) in zip(names, history, strict=True)}
                places[inner_name(key, 0)] = [
                    MessageTemplate(role, f"{{{name}}}")
                    for name, (role, _) in zip(names, history, strict=True)
                ]
        if not places:
            return flow, {}
        tasks = tuple(
            task if task.name in without else _continued(task, places) for task in flow.tasks
        )
        read = {name for task in tasks for name in task.prompt.variables}
        added = {name: text for name, text in added.items() if name in read}
        if not added:
            return flow, {}
        variables = (*flow.variables, *(InputVar(name) for name in added))
        return flow.model_copy(update={"tasks": tasks, "variables": variables}), added


def _position(sent: Sequence[tuple[str, str | None]], history: History) -> int | None:
    """Where the whole history stands in a prompt."""
    last = len(sent) - len(history)
    if not history:
        return None
    return next(
        (at for at in range(last + 1) if tuple(sent[at : at + len(history)]) == history), None
    )


def _continued(task: Task, places: Mapping[str, Collection[MessageTemplate]]) -> Task:
    """The task with messages put in front of the first one that is nothing but a new message."""
    left = dict(places)
    messages: list[MessageTemplate] = []
    for message in task.prompt.messages or ():
        match parse_template(message.content):
            case (Slot(name, transducer),) if transducer == IDENTITY and name in left:
                messages += left.pop(name)
        messages.append(message)
    if len(left) == len(places):
        return task
    prompt = task.prompt.model_copy(update={"messages": tuple(messages)})
    return task.model_copy(update={"prompt": prompt})
