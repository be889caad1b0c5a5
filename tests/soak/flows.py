"""The programs as TaskFlows: one to three calls, a few tokens each."""

from __future__ import annotations

from functools import cache

from grape_lc import InputVar, IntermediateVar, OutputVar, Sampling, TaskFlow
from tests.soak.plan import Shape

HEAD = (
    "You are one of a team that writes short notes for busy people. Be brief, be plain, and "
    "never say the same thing twice."
)
GREEDY = Sampling(max_tokens=3, temperature=0.0)
SAMPLED = Sampling(max_tokens=3, temperature=0.9, seed=7)
BAD = Sampling(max_tokens=3, temperature=0.0, extra={"no_such_parameter": 1})
"""That of the last call of a program with bad sampling: those before it are served."""

# What each task writes, and what it is sent.
_PROMPTS: dict[Shape, tuple[tuple[str, str], ...]] = {
    Shape.ONE: (("note", "Say something about {topic}."),),
    Shape.CHAIN: (
        ("plan", "Plan a note about {topic}."),
        ("draft", "Topic: {topic}. Plan: {plan} Write it."),
        ("review", "Draft: {draft} What is missing?"),
    ),
    Shape.FAN_OUT: (
        ("idea", "One idea about {topic}."),
        ("praise", "Idea: {idea} Praise it."),
        ("blame", "Idea: {idea} Blame it."),
    ),
    Shape.FAN_IN: (
        ("pro", "Praise {topic}."),
        ("contra", "Blame {topic}."),
        ("verdict", "For: {pro} Against: {contra} Judge {topic}."),
    ),
}


@cache
def flow_of(shape: Shape, *, sampled: bool = False, bad: bool = False) -> TaskFlow:
    """The flow of a shape. Its tasks are ``ask_`` and the variable that they write."""
    flow = TaskFlow(name=f"soak {shape}")
    flow.add_variable(InputVar("topic"))
    prompts = _PROMPTS[shape]
    for name, _ in prompts:
        read = any(f"{{{name}}}" in prompt for _, prompt in prompts)
        flow.add_variable(IntermediateVar(name) if read else OutputVar(name))
    for name, prompt in prompts:
        sampling = SAMPLED if sampled else GREEDY
        if bad and name == prompts[-1][0]:
            sampling = BAD
        messages = [("system", HEAD), ("user", prompt)]
        flow.add_task(messages, name, name=f"ask_{name}", sampling=sampling)
    return flow
