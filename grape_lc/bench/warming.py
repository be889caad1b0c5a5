r"""Prefix warming: the static head of every role's prompt is computed before anybody waits for it.

A head is what stands in a prompt before its first value:

    system: You are the planner ...    user: Problem statement:\n\n{problem}\n\nWrite ...
    |<------------------------ head ---------------------->|

Sent once, on an engine with a prefix cache, its full blocks are found by every later call of the
role, for as long as they are not evicted.
"""

from __future__ import annotations

from collections.abc import Iterable

from grape_lc.engine.base import CallRequest, EngineClient
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.taskflow import TaskFlow
from grape_lc.flow.template import Literal_, PromptTemplate


def static_heads(flow: TaskFlow, tenants: Iterable[str] = ("",)) -> list[CallRequest]:
    """One call of a single token for each different head, in the order of the tasks.

    Prompts that begin with a value have none. tenants: each has a prefix cache of its own, in
    which all heads are to be; one tenant after the other.
    """
    heads: list[CallRequest] = []
    for task in flow.tasks:
        head = _head(task.prompt)
        if head is not None and head not in heads:
            heads.append(head)
    return [head.model_copy(update={"tenant": tenant}) for tenant in tenants for head in heads]


def warm(engine: EngineClient, heads: Iterable[CallRequest]) -> None:
    """Send the heads one after another, and wait. Raises what the engine raises."""
    for head in heads:
        for _ in engine.stream(head):
            pass


def _head(prompt: PromptTemplate) -> CallRequest | None:
    found: list[tuple[str | None, str]] = []
    for role, segments in prompt.sections:
        static = []
        for segment in segments:
            if not isinstance(segment, Literal_):
                break
            static.append(segment.text)
        # A message of which nothing is known still begins as the template makes it begin.
        found.append((role, "".join(static)))
        if len(static) < len(segments):
            break
    if not any(text for _, text in found):
        return None
    sampling = Sampling(temperature=0.0, max_tokens=1)
    if prompt.messages is None:
        return CallRequest(text=found[0][1], sampling=sampling, label="warming")
    messages = tuple({"role": role, "content": text} for role, text in found)
    return CallRequest(messages=messages, sampling=sampling, label="warming")
