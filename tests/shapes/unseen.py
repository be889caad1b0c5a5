"""Shapes that were written last, when tracing and learning stood: what they say is no fitting.

They are measured apart, and run plain and attached like the others.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from functools import partial
from string import Template
from textwrap import dedent
from typing import Annotated, Any, Literal, TypedDict

from langchain_core.documents import Document
from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph, add_messages
from langgraph.types import Command, Send
from pydantic import BaseModel, Field

from grape_lc import ChatGrape
from grape_lc.adapters.callsite import numbered
from tests.shapes.answers import prose, seed
from tests.shapes.shape import Run, Shape, runs

# -- a supervisor and its workers ----------------------------------------------------------------


class Next(BaseModel):
    next: Literal["researcher", "coder", "FINISH"]
    instructions: str


class Crew(MessagesState, total=False):
    rounds: int


def supervisor(llm: ChatGrape) -> Any:
    """A supervisor that sends work to others, over one history of messages."""
    boss = llm.with_structured_output(Next)
    system = (
        "You supervise two workers: researcher and coder. Given the conversation, say who acts "
        "next and what is to be done. Answer FINISH when all is done."
    )

    def supervise(state: Crew) -> Command[Literal["researcher", "coder", "__end__"]]:
        choice = boss.invoke([("system", system), *state["messages"]])
        assert isinstance(choice, Next)
        rounds = state.get("rounds", 0)
        if choice.next == "FINISH" or rounds >= 2:
            return Command(goto="__end__")
        message = HumanMessage(choice.instructions, name="supervisor")
        goto: Literal["researcher", "coder"] = choice.next
        return Command(goto=goto, update={"messages": [message], "rounds": rounds + 1})

    def work(name: str, role: str, state: Crew) -> Command[Literal["supervise"]]:
        answer = llm.invoke([("system", f"You are {role}."), *state["messages"]])
        message = HumanMessage(answer.content, name=name)
        return Command(goto="supervise", update={"messages": [message]})

    builder = StateGraph(Crew).add_node("supervise", supervise)
    builder.add_node("researcher", partial(work, "researcher", "a researcher who cites sources"))
    builder.add_node("coder", partial(work, "coder", "a programmer who writes Python"))
    return builder.add_edge(START, "supervise").compile()


# -- answers from documents ----------------------------------------------------------------------


class Shelf(BaseRetriever):
    """Documents that depend on the question."""

    def _get_relevant_documents(self, query: str, **kwargs: Any) -> list[Document]:
        words = [word.strip("?.,") for word in query.split() if len(word) > 4]
        return [Document(f"A note on {word}: it is {len(word)} letters long.") for word in words]


class Rag(TypedDict, total=False):
    question: str
    rewritten: str
    documents: list[Document]
    answer: str
    grounded: str


def rag(llm: ChatGrape) -> Any:
    """Rewrite the question, retrieve, answer from the documents, check."""
    shelf = Shelf()
    answer_chain = (
        ChatPromptTemplate.from_messages(
            [
                (
                    "system",
                    "Answer from the context only. If it does not say, say that you do not know.",
                ),
                ("human", "Question: {question}\n\nContext:\n{context}"),
            ]
        )
        | llm
        | StrOutputParser()
    )

    def rewrite(state: Rag) -> Rag:
        prompt = f"Rewrite this question so that a search finds more:\n{state['question']}"
        return {"rewritten": str(llm.invoke(prompt).content).strip()}

    def retrieve(state: Rag) -> Rag:
        return {"documents": shelf.invoke(state["rewritten"])}

    def answer(state: Rag) -> Rag:
        context = "\n\n".join(document.page_content for document in state["documents"])
        return {"answer": answer_chain.invoke({"question": state["question"], "context": context})}

    def check(state: Rag) -> Rag:
        prompt = f"Is this answer about the question?\nQ: {state['question']}\nA: {state['answer']}"
        return {"grounded": str(llm.invoke(prompt).content)}

    builder = StateGraph(Rag)
    for node in (rewrite, retrieve, answer, check):
        builder.add_node(node)
    builder.add_edge(START, "rewrite").add_edge("rewrite", "retrieve")
    return builder.add_edge("retrieve", "answer").add_edge("answer", "check").compile()


# -- plan and execute ----------------------------------------------------------------------------


class Steps(BaseModel):
    """What is to be done, in order."""

    steps: list[str] = Field(description="Each a short order.")


class Work(TypedDict, total=False):
    goal: str
    steps: list[str]
    past: Annotated[list[tuple[str, str]], operator.add]
    report: str


def plan_execute(llm: ChatGrape) -> Any:
    """A list of steps that one node works off; each prompt tells what was done before."""
    planner = llm.with_structured_output(Steps)

    def plan(state: Work) -> Work:
        steps = planner.invoke([("system", "Make a plan of few steps."), ("user", state["goal"])])
        assert isinstance(steps, Steps)
        return {"steps": steps.steps[:2]}

    def execute(state: Work) -> Work:
        step, *others = state["steps"]
        done = "\n".join(f"{task} -> {result}" for task, result in state.get("past", []))
        prompt = f"Goal: {state['goal']}\nDone so far:\n{done}\n\nNow do this: {step}"
        return {"past": [(step, str(llm.invoke(prompt).content).strip())], "steps": others}

    def report(state: Work) -> Work:
        prompt = f"Report on the goal '{state['goal']}':\n{state['past'][-1][1]}"
        return {"report": str(llm.invoke(prompt).content)}

    builder = StateGraph(Work)
    builder.add_node("plan", plan).add_node("execute", execute).add_node("report", report)
    builder.add_edge(START, "plan").add_edge("plan", "execute")
    builder.add_conditional_edges(
        "execute", lambda state: "execute" if state["steps"] else "report", ["execute", "report"]
    )
    return builder.compile()


# -- LCEL of a larger kind -----------------------------------------------------------------------


class Review(TypedDict, total=False):
    text: str
    views: dict[str, str]
    verdict: dict[str, Any]
    letter: str


def parallel_lcel(llm: ChatGrape) -> Any:
    """``RunnableParallel``, ``RunnablePassthrough.assign`` and ``JsonOutputParser``."""

    def ask(template: str) -> Any:
        return ChatPromptTemplate.from_template(template) | llm | StrOutputParser()

    views = RunnableParallel(
        style=ask("Judge the style of this text, not its content:\n\n{text}"),
        facts=ask("Which claims of this text need a source?\n\n{text}"),
    )
    verdict = (
        ChatPromptTemplate.from_template(
            "Style:\n{style}\n\nFacts:\n{facts}\n\n"
            'Answer in JSON: {{"publish": true or false, "reason": "..."}}'
        )
        | llm.bind(response_format={"type": "json_schema", "json_schema": _VERDICT})
        | JsonOutputParser()
    )
    letter = RunnablePassthrough.assign(reason=RunnableLambda(lambda s: s["verdict"]["reason"])) | (
        ask("Write to the author of this text:\n{text}\n\nWhat the editors say: {reason}")
    )

    builder = StateGraph(Review)
    builder.add_node("look", lambda state: {"views": views.invoke({"text": state["text"]})})
    builder.add_node("judge", lambda state: {"verdict": verdict.invoke(state["views"])})
    builder.add_node("write", lambda state: {"letter": letter.invoke(state)})
    builder.add_edge(START, "look").add_edge("look", "judge").add_edge("judge", "write")
    return builder.compile()


_VERDICT = {
    "name": "verdict",
    "schema": {
        "type": "object",
        "properties": {"publish": {"type": "boolean"}, "reason": {"type": "string"}},
        "required": ["publish", "reason"],
    },
}

# -- other ways to make a text -------------------------------------------------------------------


class Mail(TypedDict, total=False):
    mail: str
    sender: str
    summary: str
    tone: str
    reply: str


_SUMMARY = Template("Summarize the mail of $sender.\n---\n$mail\n---\nTwo sentences.")
_TONE = "Mail of %(sender)s, in short: %(summary)s\nName its tone in one word."
_REPLY = dedent("""
    You answer mail.

    <summary>
    {summary}
    </summary>
    <tone>{tone}</tone>

    Write a reply to {sender} in at most {words} words.
    """).strip()


class Answerer:
    """A node that is an object."""

    def __init__(self, llm: ChatGrape, words: int) -> None:
        self._llm, self._words = llm, words

    def __call__(self, state: Mail) -> Mail:
        """Write the reply."""
        prompt = _REPLY.format(
            summary=state["summary"].strip(),
            tone=state["tone"].strip(),
            sender=state["sender"],
            words=self._words,
        )
        return {"reply": str(self._llm.invoke(prompt).content)}


def formats(llm: ChatGrape) -> Any:
    """``string.Template``, ``%``, ``str.format``, ``dedent``; a node that is an object."""

    async def summarize(state: Mail) -> Mail:
        text = _SUMMARY.substitute(sender=state["sender"], mail=state["mail"])
        return {"summary": str((await llm.ainvoke(text)).content)}

    async def tone(state: Mail) -> Mail:
        return {"tone": str((await llm.ainvoke(_TONE % state)).content)}

    builder = StateGraph(Mail).add_node("summarize", summarize).add_node("tone", tone)
    builder.add_node("answer", Answerer(llm, 80))
    builder.add_edge(START, "summarize").add_edge("summarize", "tone")
    return builder.add_edge("tone", "answer").compile()


# -- a conversation that is summed up ------------------------------------------------------------


class Memory(TypedDict, total=False):
    messages: Annotated[list[AnyMessage], add_messages]
    summary: str


def memory(llm: ChatGrape) -> Any:
    """After some turns the conversation is summed up and old messages are dropped."""
    chain = (
        ChatPromptTemplate.from_messages(
            [
                ("system", "You are a coach. What was said before: {summary}"),
                ("human", "Shall I run?"),
                ("ai", "Walk first."),
                MessagesPlaceholder("messages"),
            ]
        )
        | llm
    )

    def talk(state: Memory) -> Memory:
        summary = state.get("summary") or "nothing"
        return {"messages": [chain.invoke({"summary": summary, "messages": state["messages"]})]}

    def sum_up(state: Memory) -> Any:
        request = HumanMessage("Sum up our conversation in three sentences.")
        answer = llm.invoke([*state["messages"], request])
        dropped = [RemoveMessage(id=str(message.id)) for message in state["messages"][:-2]]
        return {"summary": answer.content, "messages": dropped}

    builder = StateGraph(Memory).add_node("talk", talk).add_node("sum_up", sum_up)
    builder.add_edge(START, "talk")
    builder.add_conditional_edges(
        "talk", lambda state: "sum_up" if len(state["messages"]) > 3 else END, ["sum_up", END]
    )
    return builder.compile(checkpointer=InMemorySaver())


# -- what cannot be followed ---------------------------------------------------------------------


class Sum(TypedDict, total=False):
    problem: str
    work: str
    answer: str
    check: str


def tagged(request: Any) -> str:
    """Prose with an answer between tags."""
    random = seed(request)
    return f"{prose(random, 6, 12)}\n<answer>{prose(random, 4, 8).strip()}</answer>\n"


def regex(llm: ChatGrape) -> Any:
    """A part of an answer that a regular expression finds, and one upper-case."""

    def solve(state: Sum) -> Sum:
        text = f"Solve this, and put the result in <answer> tags.\n{state['problem']}"
        work = str(llm.invoke(text).content)
        found = re.search(r"<answer>(.*?)</answer>", work, re.DOTALL)
        return {"work": work, "answer": found.group(1) if found else ""}

    def check(state: Sum) -> Sum:
        prompt = f"Problem: {state['problem']}\nIs this right? {state['answer']}\nExplain."
        return {"check": str(llm.invoke(prompt).content)}

    builder = StateGraph(Sum).add_node("solve", solve).add_node("check", check)
    return builder.add_edge(START, "solve").add_edge("solve", "check").compile()


# -- a batch in a node, and Send within a subgraph -----------------------------------------------


class Poll(TypedDict, total=False):
    question: str
    voices: list[str]
    result: str


def batch(llm: ChatGrape) -> Any:
    """``llm.batch`` over three roles."""
    roles = ("a baker", "a nurse", "a pilot")

    def ask(state: Poll) -> Poll:
        prompts: list[Any] = [
            f"You are {role}. Answer in your words: {state['question']}" for role in roles
        ]
        return {"voices": [str(answer.content) for answer in llm.batch(prompts)]}

    def count(state: Poll) -> Poll:
        lines = "\n".join(
            f"{role}: {voice.strip()}" for role, voice in zip(roles, state["voices"], strict=True)
        )
        return {"result": str(llm.invoke(f"Who agrees with whom?\n{lines}").content)}

    builder = StateGraph(Poll).add_node("ask", ask).add_node("count", count)
    return builder.add_edge(START, "ask").add_edge("ask", "count").compile()


class Tour(TypedDict, total=False):
    city: str
    ideas: Annotated[list[str], operator.add]
    tour: str


def nested_send(llm: ChatGrape) -> Any:
    """``Send`` to fixed kinds inside of a subgraph, joined outside of it."""

    def kinds(state: Tour) -> list[Send]:
        return [Send("idea", {"city": state["city"], "kind": k}) for k in ("food", "walks")]

    def idea(state: Any) -> Tour:
        prompt = f"City: {state['city']}\nOne idea for {state['kind']}, in a line."
        return {"ideas": [str(llm.invoke(prompt).content)]}

    inner = StateGraph(Tour).add_node("idea", idea)
    inner.add_conditional_edges(START, kinds, ["idea"])

    def join(state: Tour) -> Tour:
        ideas = "; ".join(idea.strip() for idea in state["ideas"])
        return {"tour": str(llm.invoke(f"Make a tour of {state['city']} from: {ideas}").content)}

    builder = StateGraph(Tour).add_node("ideas", inner.compile()).add_node("join", join)
    return builder.add_edge(START, "ideas").add_edge("ideas", "join").compile()


def _messages(*texts: str) -> tuple[Any, ...]:
    return tuple({"messages": [("user", text)]} for text in texts)


def _crew(text: str, workers: tuple[str, ...]) -> Run:
    """The supervisor's choice comes before and after each worker's turn."""
    seen: Counter[str] = Counter()
    order = ["supervise", *(name for worker in workers for name in (worker, "supervise"))]
    return Run(_messages(text), tuple(numbered(name, seen) for name in order))


UNSEEN = (
    Shape(
        "supervisor",
        supervisor,
        (
            _crew("Find the best sorting algorithm and write it.", ()),
            _crew("Plot the growth of a town.", ()),
            _crew("What is {new} in Python, and show it.", ("researcher",)),
            _crew('Zähle alle "Wörter".', ("researcher", "researcher")),
            _crew("Count the ships in a harbor.", ("researcher",)),
        ),
    ),
    Shape(
        "rag",
        rag,
        runs(
            ("rewrite", "answer", "check"),
            {"question": "Who built the mill by the river?"},
            {"question": "When were lanterns first used in harbors?"},
            {"question": "What does {braced} mean?"},
            {"question": "Wo liegt der Garten?"},
        ),
        outside="A note on ",
    ),
    Shape(
        "plan_execute",
        plan_execute,
        runs(
            ("plan", "execute", "execute#2", "report"),
            {"goal": "plant a small garden"},
            {"goal": "learn to cook in a week"},
            {"goal": "clean {all} windows"},
            {"goal": 'ein "Fest" vorbereiten'},
        ),
    ),
    Shape(
        "parallel_lcel",
        parallel_lcel,
        runs(
            ("judge", "look", "look#2", "write"),
            {"text": "The bridge was built in a day, people say."},
            {"text": "Tea cures everything but impatience."},
            {"text": "We counted {every} star\nand found none."},
            {"text": 'Ein kurzer, "guter" Text.'},
        ),
        parallel=True,
    ),
    Shape(
        "formats",
        formats,
        runs(
            ("summarize", "tone", "answer"),
            {"mail": "The delivery came late again.", "sender": "Ms. Ray"},
            {"mail": "Thank you for the quick help!", "sender": "Ann from the shop"},
            {"mail": "50% off {today}; $5 only.\nReally.", "sender": '"Deals"'},
            {"mail": "Wo ist mein Paket? Grüße", "sender": "Jörg"},
        ),
        sync=False,
    ),
    Shape(
        "memory",
        memory,
        example={"messages": [("user", "any text")]},  # without a summary
        runs=tuple(
            Run(turns, ("talk", "talk#2", "sum_up", "talk#3", "sum_up#2"))
            for turns in (
                _messages("I want to run ten miles.", "I have new shoes.", "What about food?"),
                _messages("My knee hurts.", "Since Monday.", "It was the stairs."),
                _messages("Is {this} a plan?", "Twice a week.", 'And "rest"?'),
                _messages("Ich bin müde.", "Seit gestern.", "Danke!"),
            )
        ),
    ),
    Shape(
        "regex",
        regex,
        runs(
            ("solve", "check"),
            {"problem": "Three friends share seven apples."},
            {"problem": "A train leaves at noon."},
            {"problem": "What is {x} if 2x = 6?"},
            {"problem": "Wie viele Tage hat ein Jahr?"},
        ),
        answer=tagged,
    ),
    Shape(
        "batch",
        batch,
        runs(
            ("ask", "ask#2", "ask#3", "count"),
            {"question": "Should shops open on Sundays?"},
            {"question": "Is coffee better than tea?"},
            {"question": "Who needs {more} rain?"},
            {"question": 'Sind "Züge" zu laut?'},
        ),
        parallel=True,
    ),
    Shape(
        "nested_send",
        nested_send,
        runs(
            ("ideas/idea[0]", "ideas/idea[1]", "join"),
            {"city": "Lisbon"},
            {"city": "Ghent in winter"},
            {"city": '"Old" {Oslo}'},
            {"city": "Zürich"},
        ),
        parallel=True,
    ),
)
