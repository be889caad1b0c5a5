"""Flows that the engine tests run."""

from __future__ import annotations

from grape_lc import InputVar, IntermediateVar, OutputVar, Sampling, TaskFlow

SUBJECTS = (
    "bees", "the sea", "old trains", "bread", "a lost key", "the moon", "a chess game", "rain",
    "a garden in winter", "two brothers", "the number seven", "a bridge", "morning coffee",
    "a violin", "the desert", "an empty house", "a letter", "snow", "a market", "the first day",
    "a lighthouse", "the colour blue", "a long walk", "sorting a list",
)  # fmt: skip

EDITOR = (
    "You are the senior editor of a small magazine. You plan texts before they are written, keep "
    "every sentence short, never repeat yourself, and you always say what you would leave out. "
    "Your readers are curious, not experts. Dates and names need a source. "
)
WRITER = (
    "You are a staff writer. You follow the plan that you are given point by point, in plain "
    "words, with one concrete example for each point, and you stop when the plan is done. "
    "Headings are not wanted; lists only where the plan has one. "
)


def chain(max_tokens: int = 32, *, temperature: float = 0.0) -> TaskFlow:
    """Plan -> draft -> review; the last one reads both others and has text behind its slots."""
    flow = TaskFlow(name="chain")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("plan"))
    flow.add_variable(IntermediateVar("draft"))
    flow.add_variable(OutputVar("review"))
    sampling = Sampling(max_tokens=max_tokens, temperature=temperature)
    flow.add_task(
        [("system", EDITOR * 3), ("user", "Plan a text: {topic}.")], "plan", sampling=sampling
    )
    flow.add_task(
        [("system", WRITER * 3), ("user", "Topic: {topic}\nPlan:\n{plan|strip}\n\nWrite it now.")],
        "draft",
        sampling=sampling,
    )
    flow.add_task(
        [("system", EDITOR), ("user", "Plan:\n{plan}\nDraft: {draft}\nWhat is missing? Be brief.")],
        "review",
        sampling=sampling,
    )
    return flow


def fan_in(max_tokens: int = 24) -> TaskFlow:
    """Two branches side by side and a completion prompt that joins them."""
    flow = TaskFlow(name="fan_in")
    flow.add_variable(InputVar("topic"))
    flow.add_variable(IntermediateVar("pro"))
    flow.add_variable(IntermediateVar("contra"))
    flow.add_variable(OutputVar("verdict"))
    sampling = Sampling(max_tokens=max_tokens, temperature=0.0)
    flow.add_task([("user", "Praise {topic}.")], "pro", sampling=sampling)
    flow.add_task([("system", WRITER), ("user", "Blame {topic}.")], "contra", sampling=sampling)
    flow.add_task(
        "For: {pro}\nAgainst: {contra}\nAbout {topic}, we find that", "verdict", sampling=sampling
    )
    return flow
