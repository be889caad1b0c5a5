"""Branches side by side, and what gathers them."""

from __future__ import annotations

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, TypedDict

from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send
from pydantic import BaseModel

from grape_lc import ChatGrape
from tests.shapes.shape import Run, Shape, runs


class Team(TypedDict, total=False):
    problem: str
    prd: str
    design: str
    tests: str
    code: str


def fan_out(llm: ChatGrape) -> Any:
    """One plan, two readers of it, one that joins both."""

    def ask(prompt: Any) -> str:
        return str(llm.invoke(prompt).content)

    def prd(state: Team) -> Team:
        return {"prd": ask(f"Write requirements for this problem:\n{state['problem']}")}

    def design(state: Team) -> Team:
        system = "You design software. You write short documents without code."
        return {"design": ask([("system", system), ("user", f"Requirements:\n{state['prd']}")])}

    def tests(state: Team) -> Team:
        return {"tests": ask(f"Name the tests that these requirements need:\n{state['prd']}\n")}

    def code(state: Team) -> Team:
        parts = [f"## Design\n{state['design'].strip()}", f"## Tests\n{state['tests'].strip()}"]
        return {"code": ask("Write the program.\n\n" + "\n\n".join(parts) + "\n\nOnly code.")}

    builder = StateGraph(Team)
    for node in (prd, design, tests, code):
        builder.add_node(node)
    builder.add_edge(START, "prd").add_edge("prd", "design").add_edge("prd", "tests")
    return builder.add_edge(["design", "tests"], "code").add_edge("code", END).compile()


class Files(TypedDict, total=False):
    question: str
    documents: list[str]
    notes: Annotated[list[str], operator.add]
    answer: str


class OneFile(TypedDict):
    question: str
    document: str


def map_reduce(llm: ChatGrape) -> Any:
    """``Send`` over a list whose length is known when the run starts."""

    def spread(state: Files) -> list[Send]:
        return [
            Send("read", {"question": state["question"], "document": document})
            for document in state["documents"]
        ]

    def read(state: OneFile) -> Files:
        prompt = (
            f"Question: {state['question']}\nDocument:\n{state['document']}\n"
            "Note what the document says about the question."
        )
        return {"notes": [str(llm.invoke(prompt).content)]}

    def reduce(state: Files) -> Files:
        notes = "\n---\n".join(note.strip() for note in state["notes"])
        prompt = f"Answer the question from these notes only.\n\n{notes}\n\n{state['question']}"
        return {"answer": str(llm.invoke(prompt).content)}

    builder = StateGraph(Files).add_node("read", read).add_node("reduce", reduce)
    builder.add_conditional_edges(START, spread, ["read"])
    return builder.add_edge("read", "reduce").compile()


class Section(BaseModel):
    title: str
    goal: str


class Outline(BaseModel):
    sections: list[Section]


class Book(TypedDict, total=False):
    topic: str
    sections: list[Section]
    chapters: Annotated[list[str], operator.add]
    book: str


class Chapter(TypedDict):
    topic: str
    section: Section


def send_plan(llm: ChatGrape) -> Any:
    """``Send`` over a plan that the model wrote as an object."""
    planner = llm.with_structured_output(Outline)

    def plan(state: Book) -> Book:
        outline = planner.invoke(f"Plan the sections of a short book about {state['topic']}.")
        assert isinstance(outline, Outline)
        return {"sections": outline.sections}

    def spread(state: Book) -> list[Send]:
        return [
            Send("write", {"topic": state["topic"], "section": section})
            for section in state["sections"]
        ]

    def write(state: Chapter) -> Book:
        section = state["section"]
        messages = [
            ("system", f"You write one section of a book about {state['topic']}."),
            ("user", f"Title: {section.title}\nGoal: {section.goal}\nWrite it."),
        ]
        return {"chapters": [f"# {section.title}\n{llm.invoke(messages).content}"]}

    def bind(state: Book) -> Book:
        prompt = "Write a preface for this book.\n\n" + "\n\n".join(state["chapters"])
        return {"book": str(llm.invoke(prompt).content)}

    builder = StateGraph(Book)
    builder.add_node("plan", plan).add_node("write", write).add_node("bind", bind)
    builder.add_edge(START, "plan").add_conditional_edges("plan", spread, ["write"])
    return builder.add_edge("write", "bind").compile()


class Debate(TypedDict, total=False):
    claim: str
    facts: str
    sides: list[str]
    verdict: str


def sequence(llm: ChatGrape) -> Any:
    """Several calls in one node, one after the other, and words of its own in the stream."""

    def debate(state: Debate) -> Debate:
        write = get_stream_writer()
        write({"step": "facts"})
        facts = str(llm.invoke(f"State the facts behind this claim: {state['claim']}").content)
        write({"step": "sides", "facts": facts})
        pro = str(llm.invoke(f"Facts:\n{facts}\nArgue for it: {state['claim']}").content)
        con = str(llm.invoke(f"Facts:\n{facts}\nSpeak against this:\n{pro}").content)
        return {"facts": facts, "sides": [pro, con]}

    def judge(state: Debate) -> Debate:
        pro, con = state["sides"]
        prompt = f"Judge the debate.\nFor: {pro.strip()}\nAgainst: {con.strip()}\nWho is right?"
        return {"verdict": str(llm.invoke(prompt).content)}

    builder = StateGraph(Debate).add_node("debate", debate).add_node("judge", judge)
    return builder.add_edge(START, "debate").add_edge("debate", "judge").compile()


def gather(llm: ChatGrape) -> Any:
    """Several calls in one node at once, with ``asyncio.gather``."""

    async def facts(state: Debate) -> Debate:
        answer = await llm.ainvoke(f"State the facts behind this claim: {state['claim']}")
        return {"facts": str(answer.content)}

    async def argue(state: Debate) -> Debate:
        answers = await asyncio.gather(
            llm.ainvoke(f"Facts:\n{state['facts']}\nArgue for this claim: {state['claim']}"),
            llm.ainvoke(f"Facts:\n{state['facts']}\nArgue against this claim: {state['claim']}"),
        )
        return {"sides": [str(answer.content) for answer in answers]}

    async def judge(state: Debate) -> Debate:
        pro, con = state["sides"]
        answer = await llm.ainvoke(f"Who is right?\nFor: {pro}\nAgainst: {con}")
        return {"verdict": str(answer.content)}

    builder = StateGraph(Debate)
    builder.add_node("facts", facts).add_node("argue", argue).add_node("judge", judge)
    builder.add_edge(START, "facts").add_edge("facts", "argue").add_edge("argue", "judge")
    return builder.compile()


def pool(llm: ChatGrape) -> Any:
    """A thread pool of the user's own, whose threads get no context."""

    def facts(state: Debate) -> Debate:
        answer = llm.invoke(f"State the facts behind this claim: {state['claim']}")
        return {"facts": str(answer.content)}

    def argue(state: Debate) -> Debate:
        prompts = [
            f"You argue {side} a claim, from facts only.\nClaim: {state['claim']}\n"
            f"Facts: {state['facts'].strip()}\nArgue {side} the claim now."
            for side in ("for", "against")
        ]
        with ThreadPoolExecutor(2) as threads:
            return {"sides": [str(answer.content) for answer in threads.map(llm.invoke, prompts)]}

    def judge(state: Debate) -> Debate:
        answer = llm.invoke("Who is right?\n" + "\n\n".join(state["sides"]))
        return {"verdict": str(answer.content)}

    builder = StateGraph(Debate)
    builder.add_node("facts", facts).add_node("argue", argue).add_node("judge", judge)
    builder.add_edge(START, "facts").add_edge("facts", "argue").add_edge("argue", "judge")
    return builder.compile()


_CLAIMS = (
    {"claim": "Cats are better at sleeping than dogs."},
    {"claim": "Tabs waste less paper than spaces."},
    {"claim": 'It\'s "obvious" that {x} > 0.'},
    {"claim": "水 is wet, and so is 冰."},
)


def _reading(question: str, *documents: str) -> Run:
    calls = ("reduce", *(f"read[{n}]" for n in range(len(documents))))
    given = {"question": question, "documents": list(documents)}
    return Run((given,), tuple(sorted(calls)))


SHAPES = (
    Shape(
        "fan_out",
        fan_out,
        runs(
            ("code", "design", "prd", "tests"),
            {"problem": "Sort the lines of a file that is larger than memory."},
            {"problem": "Find the shortest path in a maze."},
            {"problem": "Parse dates such as '3rd of May' {any year}."},
            {"problem": "Zähle die Wörter\neines Textes."},
        ),
        parallel=True,
    ),
    Shape(
        "map_reduce",
        map_reduce,
        (
            _reading("Who built the mill?", "The mill stood by the river.", "Ann built much."),
            _reading("When did it rain?", "May was dry.", "In June it rained.", "July: snow."),
            _reading("Where is the key?", "The key hung by the door.", "Then it fell down."),
            _reading("What is {x}?", "x is a letter.", "{x} is a set.", "A set has members."),
            _reading("Why tea?", "Tea is warm and does not cost much."),
        ),
        example={"question": "What?", "documents": ["one document", "another document"]},
        parallel=True,
    ),
    Shape(
        "send_plan",
        send_plan,
        tuple(
            Run(({"topic": topic},), ("bind", "plan", *(f"write[{n}]" for n in range(count))))
            for topic, count in (
                ("the life of bees", 2),
                ("old maps", 3),
                ("radio waves", 2),
                ("naïve {sets}", 2),
                ('wind, sails and "knots"', 3),
            )
        ),
        parallel=True,
    ),
    Shape("sequence", sequence, runs(("debate", "debate#2", "debate#3", "judge"), *_CLAIMS)),
    Shape(
        "gather",
        gather,
        runs(("argue", "argue#2", "facts", "judge"), *_CLAIMS),
        parallel=True,
        sync=False,
    ),
    Shape(
        "pool",
        pool,
        runs(("facts", "judge", "model", "model#2"), *_CLAIMS),
        parallel=True,
        reach="bare",
    ),
)
