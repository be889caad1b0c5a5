"""Apps that somebody talks to: turns of a conversation, and questions to a person."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from grape_lc import ChatGrape
from tests.shapes.shape import Run, Shape


def chat(llm: ChatGrape) -> Any:
    """A history that a checkpointer keeps, and a second look at each answer."""

    def answer(state: MessagesState) -> Any:
        system = ("system", "You are a helpful gardener. You know the whole conversation.")
        return {"messages": [llm.invoke([system, *state["messages"]])]}

    def check(state: MessagesState) -> Any:
        last = state["messages"][-1]
        better = llm.invoke(
            [("system", "You make answers shorter."), ("user", f"Shorten:\n{last.content}")]
        )
        return {"messages": [better.model_copy(update={"id": last.id})]}

    builder = StateGraph(MessagesState).add_node("answer", answer).add_node("check", check)
    builder.add_edge(START, "answer").add_edge("answer", "check")
    return builder.compile(checkpointer=InMemorySaver())


class Letter(TypedDict, total=False):
    request: str
    draft: str
    wishes: str
    letter: str
    summary: str


def approval(llm: ChatGrape) -> Any:
    """``interrupt`` between two calls; a person says how to go on."""

    def draft(state: Letter) -> Letter:
        return {"draft": str(llm.invoke(f"Draft a letter: {state['request']}").content)}

    def ask(state: Letter) -> Letter:
        return {"wishes": interrupt({"draft": state["draft"]})}

    def revise(state: Letter) -> Letter:
        prompt = (
            "Revise this letter. Keep its tone and its length.\n"
            f"Letter:\n{state['draft'].strip()}\n\nWishes: {state['wishes']}"
        )
        return {"letter": str(llm.invoke(prompt).content)}

    def summarize(state: Letter) -> Letter:
        return {"summary": str(llm.invoke(f"Sum up this letter:\n{state['letter']}").content)}

    builder = StateGraph(Letter)
    for node in (draft, ask, revise, summarize):
        builder.add_node(node)
    builder.add_edge(START, "draft").add_edge("draft", "ask").add_edge("ask", "revise")
    return builder.add_edge("revise", "summarize").compile(checkpointer=InMemorySaver())


def _talk(*texts: str) -> Run:
    turns = tuple({"messages": [("user", text)]} for text in texts)
    calls = ("answer", "check", "answer#2", "check#2", "answer#3", "check#3")
    return Run(turns, calls[: 2 * len(turns)])


def _letter(request: str, wishes: str) -> Run:
    return Run(({"request": request}, Command(resume=wishes)), ("draft", "revise", "summarize"))


SHAPES = (
    Shape(
        "chat",
        chat,
        (
            _talk("When do I sow beans?", "And how deep?", "Thank you. Do they need water?"),
            _talk("My roses have spots.", "They are black.", "Will they grow again?"),
            _talk("What grows in {shade}?", 'I have "ferns" already.', "And near a wall?"),
            _talk("Wann blüht\nder Flieder?", "Und der weiße?", "Danke sehr!"),
        ),
    ),
    Shape(
        "approval",
        approval,
        (
            _letter("thank the neighbours for the cake", "mention the recipe"),
            _letter("complain about the late train", "be more polite"),
            _letter('invite {all} friends to a "party"', "name the day: Sunday"),
            _letter("kündige das Abonnement", "kürzer, bitte"),
        ),
    ),
)
