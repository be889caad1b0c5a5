"""Nodes that run again."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import RetryPolicy
from pydantic import BaseModel

from grape_lc import ChatGrape
from tests.shapes.shape import Run, Shape, runs

_MOST_ROUNDS = 3


class Review(BaseModel):
    grade: Literal["accept", "revise"]
    feedback: str


class Joke(TypedDict, total=False):
    topic: str
    joke: str
    feedback: str
    grade: str
    round: int


def optimizer(llm: ChatGrape) -> Any:
    """A writer and a critic, until the critic is content or three rounds have gone."""
    critic = llm.with_structured_output(Review)

    def write(state: Joke) -> Joke:
        if state.get("feedback"):
            prompt = f"Write a joke about {state['topic']}, and mind this: {state['feedback']}"
        else:
            prompt = f"Write a joke about {state['topic']}"
        return {"joke": str(llm.invoke(prompt).content), "round": state.get("round", 0) + 1}

    def review(state: Joke) -> Joke:
        verdict = critic.invoke(f"Grade this joke and say what is to be improved:\n{state['joke']}")
        assert isinstance(verdict, Review)
        return {"grade": verdict.grade, "feedback": verdict.feedback}

    def enough(state: Joke) -> str:
        done = state["grade"] == "accept" or state["round"] >= _MOST_ROUNDS
        return "done" if done else "again"

    builder = StateGraph(Joke).add_node("write", write).add_node("review", review)
    builder.add_edge(START, "write").add_edge("write", "review")
    builder.add_conditional_edges("review", enough, {"done": END, "again": "write"})
    return builder.compile()


def reflection(llm: ChatGrape) -> Any:
    """Writer and critic talk in one history of messages, whose roles the critic swaps."""

    def write(state: MessagesState) -> Any:
        system = ("system", "You write essays of three paragraphs. Revise when you are criticized.")
        return {"messages": [llm.invoke([system, *state["messages"]])]}

    def criticize(state: MessagesState) -> Any:
        swap = {"ai": HumanMessage, "human": AIMessage}
        first, *others = state["messages"]
        turned = [first, *(swap[message.type](message.content) for message in others)]
        system = ("system", "You are a teacher. Criticize the essay: length, depth, style.")
        answer = llm.invoke([system, *turned])
        return {"messages": [HumanMessage(answer.content)]}

    def more(state: MessagesState) -> str:
        return END if len(state["messages"]) > 4 else "criticize"

    builder = StateGraph(MessagesState).add_node("write", write).add_node("criticize", criticize)
    builder.add_edge(START, "write").add_edge("criticize", "write")
    return builder.add_conditional_edges("write", more, ["criticize", END]).compile()


class Query(TypedDict, total=False):
    question: str
    sql: str
    rows: str
    answer: str


def retries(llm: ChatGrape) -> Any:
    """A node that fails once for each question, behind its call, and is tried again."""
    failed: set[str] = set()

    def write(state: Query) -> Query:
        answer = llm.invoke(f"Table: sales(day, shop, sum). Write SQL for: {state['question']}")
        return {"sql": str(answer.content).strip()}

    def run(state: Query) -> Query:
        checked = llm.invoke(f"Check this SQL and give it back repaired:\n{state['sql']}")
        if state["question"] not in failed:
            failed.add(state["question"])
            raise ConnectionError("the database went away")
        return {"rows": f"{len(str(checked.content))} rows"}

    def answer(state: Query) -> Query:
        prompt = f"SQL:\n{state['sql']}\nResult: {state['rows']}\nAnswer: {state['question']}"
        return {"answer": str(llm.invoke(prompt).content)}

    again = RetryPolicy(initial_interval=0.001, max_attempts=3, jitter=False)
    builder = StateGraph(Query).add_node("write", write).add_node("run", run, retry_policy=again)
    builder.add_node("answer", answer)
    builder.add_edge(START, "write").add_edge("write", "run").add_edge("run", "answer")
    return builder.compile()


def _rounds(topic: str, count: int) -> Run:
    names = [f"{node}{'' if n == 1 else f'#{n}'}" for n in range(1, count + 1) for node in _PAIR]
    return Run(({"topic": topic},), tuple(names))


_PAIR = ("write", "review")

SHAPES = (
    Shape(
        "optimizer",
        optimizer,
        (
            _rounds("a cat in a library", 2),
            _rounds("two bakers who share an oven", 2),
            _rounds("the {last} bus home", 1),
            _rounds("a robot with a cold", 1),
            _rounds("Größenwahn im Zoo", 1),
            _rounds("a spoon that can't bend", 3),
        ),
    ),
    Shape(
        "reflection",
        reflection,
        runs(
            ("write", "criticize", "write#2", "criticize#2", "write#3"),
            {"messages": [("user", "An essay on why cities plant trees.")]},
            {"messages": [("user", "An essay on the use of boredom.")]},
            {"messages": [HumanMessage("Ein Aufsatz über {Regen}.")]},
            {"messages": [("user", 'An essay on "small" numbers\nand large ones.')]},
        ),
    ),
    Shape(
        "retries",
        retries,
        runs(
            ("write", "run", "run#2", "answer"),
            {"question": "How much did each shop sell in May?"},
            {"question": "Which day was the worst?"},
            {"question": "What's the mean of {sum} by shop?"},
            {"question": "Wie viel wurde im Juni verkauft?"},
        ),
    ),
)
