"""Graphs inside of graphs, and the functional API."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.func import entrypoint, task
from langgraph.graph import START, StateGraph

from grape_lc import ChatGrape
from tests.shapes.shape import Shape, runs


class Paper(TypedDict, total=False):
    topic: str
    question: str
    findings: str
    paper: str


def _research(llm: ChatGrape) -> Any:
    def narrow(state: Paper) -> Paper:
        answer = llm.invoke(f"Turn this topic into one research question: {state['topic']}")
        return {"question": str(answer.content).strip()}

    def study(state: Paper) -> Paper:
        messages = [
            ("system", "You are a researcher. You answer in numbered findings."),
            ("user", f"Topic: {state['topic']}\nQuestion: {state['question']}"),
        ]
        return {"findings": str(llm.invoke(messages).content)}

    builder = StateGraph(Paper).add_node("narrow", narrow).add_node("study", study)
    return builder.add_edge(START, "narrow").add_edge("narrow", "study").compile()


def subgraph_node(llm: ChatGrape) -> Any:
    """A compiled graph as a node."""

    def write(state: Paper) -> Paper:
        prompt = f"Write a summary.\nFindings:\n{state['findings']}\nAsked: {state['question']}"
        return {"paper": str(llm.invoke(prompt).content)}

    builder = StateGraph(Paper).add_node("research", _research(llm)).add_node("write", write)
    return builder.add_edge(START, "research").add_edge("research", "write").compile()


class Desk(TypedDict, total=False):
    subject: str
    article: str
    teaser: str


def subgraph_call(llm: ChatGrape) -> Any:
    """A compiled graph that a node invokes, with a state of its own."""
    research = _research(llm)

    def report(state: Desk) -> Desk:
        found = research.invoke({"topic": state["subject"]})
        prompt = f"Write an article about {state['subject']} from:\n{found['findings'].strip()}"
        return {"article": str(llm.invoke(prompt).content)}

    def teaser(state: Desk) -> Desk:
        answer = llm.invoke([("user", f"One line to make people read it:\n{state['article']}")])
        return {"teaser": str(answer.content)}

    builder = StateGraph(Desk).add_node("report", report).add_node("teaser", teaser)
    return builder.add_edge(START, "report").add_edge("report", "teaser").compile()


def functional(llm: ChatGrape) -> Any:
    """``@entrypoint`` and ``@task``."""

    @task
    def essay(topic: str) -> str:
        return str(llm.invoke(f"Write an essay about this topic: {topic}").content)

    @task
    def score(text: str) -> str:
        prompt = f"Score this essay from 1 to 10, and say why:\n\n{text.strip()}"
        return str(llm.invoke(prompt).content)

    @task
    def reply(text: str, verdict: str) -> str:
        prompt = f"Write to the student.\nEssay: {text}\nVerdict: {verdict}\nBe kind."
        return str(llm.invoke(prompt).content)

    @entrypoint()
    def school(topic: str) -> dict[str, str]:
        text = essay(topic).result()
        verdict = score(text).result()
        return {"essay": text, "verdict": verdict, "reply": reply(text, verdict).result()}

    return school


_TOPICS = (
    "tides and the moon",
    "the price of salt in old towns",
    'do {sets} have "edges"?',
    "Ameisen,\nBienen und Wespen",
)

SHAPES = (
    Shape(
        "subgraph_node",
        subgraph_node,
        runs(
            ("research/narrow", "research/study", "write"),
            *({"topic": topic} for topic in _TOPICS),
        ),
    ),
    Shape(
        "subgraph_call",
        subgraph_call,
        runs(
            ("report/narrow", "report/study", "report", "teaser"),
            *({"subject": topic} for topic in _TOPICS),
        ),
    ),
    Shape(
        "functional",
        functional,
        runs(("school/essay", "school/reply", "school/score"), *_TOPICS),
        example="any topic",
        parallel=True,  # the entrypoint goes on beside its tasks
    ),
)
