"""One call after the other."""

from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langgraph.graph import END, START, StateGraph

from grape_lc import ChatGrape, GrapeLLM
from tests.shapes.shape import Shape, runs


class Report(TypedDict, total=False):
    topic: str
    audience: str
    outline: str
    draft: str
    final: str


def chain(llm: ChatGrape) -> Any:
    """f-strings, messages, ``.strip()``; each step reads the one before."""

    def outline(state: Report) -> Report:
        """Plan."""
        answer = llm.invoke(f"Write an outline about {state['topic']} for {state['audience']}.")
        return {"outline": str(answer.content)}

    def draft(state: Report) -> Report:
        messages = [
            ("system", "You are a careful writer. Keep to the outline and invent nothing."),
            ("user", f"Outline:\n{state['outline'].strip()}\n\nNow write the text."),
        ]
        return {"draft": str(llm.invoke(messages).content)}

    def polish(state: Report) -> Report:
        prompt = (
            f"Topic: {state['topic']}\n\nDraft:\n{state['draft']}\n\n"
            "Rewrite the draft in plain words. Answer with the text only."
        )
        return {"final": str(llm.invoke(prompt).content).strip()}

    builder = StateGraph(Report)
    for node in (outline, draft, polish):
        builder.add_node(node)
    builder.add_edge(START, "outline").add_edge("outline", "draft").add_edge("draft", "polish")
    return builder.add_edge("polish", END).compile()


class Translation(TypedDict, total=False):
    text: str
    language: str
    facts: str
    translation: str
    check: str


def lcel(llm: ChatGrape) -> Any:
    """``prompt | llm | parser`` in each node."""
    system = "You translate for a scientific journal. Terms are never guessed."
    extract = (
        ChatPromptTemplate.from_messages(
            [("system", system), ("human", "List the facts in this text:\n{text}")]
        )
        | llm
        | StrOutputParser()
    )
    translate = (
        ChatPromptTemplate.from_messages(
            [
                ("system", system),
                ("human", "Facts to keep:\n{facts}\n\nTranslate to {language}:\n{text}"),
            ]
        )
        | llm
        | StrOutputParser()
    )
    review = (
        ChatPromptTemplate.from_template(
            "Does this translation keep every fact?\n<facts>{facts}</facts>\n"
            "<translation>{translation}</translation>"
        )
        | llm
        | StrOutputParser()
    )
    builder = StateGraph(Translation)
    builder.add_node("extract", lambda state: {"facts": extract.invoke(state)})
    builder.add_node("translate", lambda state: {"translation": translate.invoke(state)})
    builder.add_node("review", lambda state: {"check": review.invoke(state)})
    builder.add_edge(START, "extract").add_edge("extract", "translate")
    builder.add_edge("translate", "review")
    return builder.compile()


class Snippet(TypedDict, total=False):
    task: str
    code: str
    tests: str


def completion(llm: ChatGrape) -> Any:
    """A model for plain text, without a chat template."""
    model = GrapeLLM(engine=llm.engine, temperature=llm.temperature, max_tokens=llm.max_tokens)

    def code(state: Snippet) -> Snippet:
        return {"code": model.invoke(f'def solve():\n    """{state["task"]}"""\n')}

    def tests(state: Snippet) -> Snippet:
        return {"tests": model.invoke(f"# Module\n{state['code']}\n\n# Tests, with pytest\n")}

    builder = StateGraph(Snippet).add_node("code", code).add_node("tests", tests)
    return builder.add_edge(START, "code").add_edge("code", "tests").compile()


SHAPES = (
    Shape(
        "chain",
        chain,
        runs(
            ("outline", "draft", "polish"),
            {"topic": "the history of tea", "audience": "schoolchildren"},
            {"topic": "why bridges hum in the wind", "audience": "engineers"},
            {"topic": "sorting 1,000 {names}", "audience": 'people who "don\'t code"'},
            {"topic": "Größe & 数据: a primer", "audience": "new colleagues"},
            {"topic": "lines\nand\nbreaks", "audience": "poets of all ages"},
        ),
    ),
    Shape(
        "lcel",
        lcel,
        runs(
            ("extract", "translate", "review"),
            {"text": "Tea came by ship in 1610.", "language": "German"},
            {"text": "A bridge of steel may hum at night.", "language": "Portuguese"},
            {"text": "  Water boils at 100 °C {at sea level}.\n", "language": "Japanese"},
            {"text": "Ελλάδα has 6,000 islands; 227 are inhabited.", "language": "English"},
        ),
    ),
    Shape(
        "completion",
        completion,
        runs(
            ("code", "tests"),
            {"task": "Return the words of a text in order."},
            {"task": "Count the vowels of a line."},
            {"task": "Merge two sorted lists {in place}."},
            {"task": "Say whether a year is a leap year."},
        ),
    ),
)
