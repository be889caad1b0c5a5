"""What comes next depends on what the model said."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langgraph.graph import START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel

from grape_lc import ChatGrape
from tests.shapes.shape import Run, Shape


class Kind(BaseModel):
    kind: Literal["poem", "joke", "story"]


class Wish(TypedDict, total=False):
    wish: str
    kind: str
    text: str
    title: str


def route_literal(llm: ChatGrape) -> Any:
    """A conditional edge on a field that has one of three values."""
    router = llm.with_structured_output(Kind)

    def route(state: Wish) -> Wish:
        system = "Decide which form suits the wish: a poem, a joke or a story."
        chosen = router.invoke([("system", system), ("user", state["wish"])])
        assert isinstance(chosen, Kind)
        return {"kind": chosen.kind}

    def poem(state: Wish) -> Wish:
        return {"text": str(llm.invoke(f"Write a poem that fits: {state['wish']}").content)}

    def joke(state: Wish) -> Wish:
        return {"text": str(llm.invoke(f"Tell a joke about this: {state['wish']}").content)}

    def story(state: Wish) -> Wish:
        prompt = f"Tell a story for children. What they want: {state['wish']}. Keep it short."
        return {"text": str(llm.invoke(prompt).content)}

    def title(state: Wish) -> Wish:
        answer = llm.invoke(f"Find a title for this:\n{state['text'].strip()}\n\nOnly the title.")
        return {"title": str(answer.content)}

    builder = StateGraph(Wish)
    for node in (route, poem, joke, story, title):
        builder.add_node(node)
    builder.add_edge(START, "route")
    builder.add_conditional_edges("route", lambda state: state["kind"], ["poem", "joke", "story"])
    for name in ("poem", "joke", "story"):
        builder.add_edge(name, "title")
    return builder.compile()


class Case(TypedDict, total=False):
    ticket: str
    summary: str
    reply: str


def route_call(llm: ChatGrape) -> Any:
    """A conditional edge that calls the model itself."""

    def summarize(state: Case) -> Case:
        answer = llm.invoke(f"Summarize this ticket in two sentences:\n\n{state['ticket']}")
        return {"summary": str(answer.content)}

    def urgent(state: Case) -> str:
        question = f"Is this urgent? Answer yes or no.\n\n{state['summary'].strip()}"
        answer = str(llm.invoke(question).content)
        return "escalate" if len(answer) % 2 else "answer"

    def escalate(state: Case) -> Case:
        prompt = f"Write to the engineer on call.\nSummary: {state['summary']}"
        return {"reply": str(llm.invoke(prompt).content)}

    def answer(state: Case) -> Case:
        prompt = f"Write a friendly reply.\nSummary: {state['summary']}\nTicket: {state['ticket']}"
        return {"reply": str(llm.invoke(prompt).content)}

    builder = StateGraph(Case)
    for node in (summarize, escalate, answer):
        builder.add_node(node)
    builder.add_edge(START, "summarize")
    builder.add_conditional_edges("summarize", urgent, ["escalate", "answer"])
    return builder.compile()


class Verdict(BaseModel):
    needs_expert: bool
    reason: str


class Patient(TypedDict, total=False):
    question: str
    reason: str
    advice: str
    reply: str


def command_goto(llm: ChatGrape) -> Any:
    """``Command(goto=...)``: nodes that hand over to one another."""
    judge = llm.with_structured_output(Verdict, method="json_schema")

    def triage(state: Patient) -> Command[Literal["expert", "write"]]:
        verdict = judge.invoke(
            [
                ("system", "You sort questions to a pharmacy. Say if an expert is needed and why."),
                ("user", state["question"]),
            ]
        )
        assert isinstance(verdict, Verdict)
        goto: Literal["expert", "write"] = "expert" if verdict.needs_expert else "write"
        return Command(goto=goto, update={"reason": verdict.reason, "advice": "none needed"})

    def expert(state: Patient) -> Command[Literal["write"]]:
        prompt = f"As an expert, advise on: {state['question']}\nWhy you: {state['reason']}"
        return Command(goto="write", update={"advice": str(llm.invoke(prompt).content)})

    def write(state: Patient) -> Patient:
        prompt = (
            f"Answer the customer's question.\nQuestion: {state['question']}\n"
            f"The expert's advice: {state['advice'].strip()}\nStay polite."
        )
        return {"reply": str(llm.invoke(prompt).content)}

    builder = StateGraph(Patient)
    builder.add_node("triage", triage).add_node("expert", expert).add_node("write", write)
    return builder.add_edge(START, "triage").compile()


def _wish(text: str, kind: str) -> Run:
    return Run(({"wish": text},), ("route", kind, "title"))


def _ticket(text: str, way: str) -> Run:
    return Run(({"ticket": text},), ("summarize", "summarize#2", way))


def _question(text: str, *way: str) -> Run:
    return Run(({"question": text},), ("triage", *way))


SHAPES = (
    Shape(
        "route_literal",
        route_literal,
        (
            _wish("something about the sea and two old friends", "joke"),
            _wish("a thing to read aloud on a birthday", "story"),
            _wish('how the fox {Reineke} lost his "hat"', "story"),
            _wish("why snow is quiet", "poem"),
            _wish("Грустное, but with a happy end", "joke"),
            _wish("a letter that never came", "joke"),
        ),
    ),
    Shape(
        "route_call",
        route_call,
        (
            _ticket("The app stops when I open the camera.\nIt says: Error 7.", "escalate"),
            _ticket("How do I change my address? I moved last week.", "escalate"),
            _ticket("All invoices of May are missing!!", "answer"),
            _ticket("I'd like a dark theme {if you have one}.", "escalate"),
            _ticket("Meine Rechnung ist doppelt; bitte prüfen.", "answer"),
        ),
    ),
    Shape(
        "command_goto",
        command_goto,
        (
            _question("May I take this syrup after a meal?", "write"),
            _question("Which cream helps against sunburn?", "write"),
            _question("Can children of 3 have it, too? {syrup}", "write"),
            _question('Is it safe to mix both pills with "coffee"?', "expert", "write"),
            _question("Où puis-je acheter des pansements?", "write"),
        ),
    ),
)
