"""Summaries of long documents as a LangGraph graph, in two forms.

``refine`` reads the parts of a document in order; each step improves the summary so far:

    summarise -> refine -> refine -> ...

``map_reduce`` summarises all parts side by side (``Send``), and then merges the summaries:

    summarise_part, summarise_part, ... -> merge

The state holds the document in parts, so the same graph takes documents of any number of parts;
where it is cut, and into how many, is decided outside (``split_document``). That is why refining
is one node in a loop, and not a chain of a fixed number of nodes. A step's message begins with
its part, which is known from the start, and ends with the summary so far, which comes last. Any
LangChain chat model will do::

    graph = build(llm)
    graph.invoke({"chunks": split_document(text, 4)})["summary"]

From a shell, ``python -m workflows.summary --document 3`` runs it on one of the chapters of the
language reference that Python brings along; ``--llm MODULE:NAME`` says which class of chat model
to make (with temperature 0).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from ._asking import Layout, Limits, asker, checked_layout
from ._command import chosen, command, loaded, model, show
from .inputs import load_documents, split_document

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel
    from langgraph.graph.state import CompiledStateGraph

    Summariser = CompiledStateGraph[Any, None, Any, Any]

Mode = Literal["refine", "map_reduce"]
MODES: tuple[Mode, ...] = ("refine", "map_reduce")


class SummaryState(TypedDict, total=False):
    """The parts of the document, how many of them were read, the summary of those."""

    chunks: list[str]
    read: int
    summary: str


class PartsState(TypedDict, total=False):
    """The parts of the document, a summary of each in their order, the summary of all."""

    chunks: list[str]
    partial_summaries: Annotated[list[str], operator.add]
    summary: str


class PartState(TypedDict):
    """One part of the document."""

    chunk: str


SUMMARISER = """\
You are the first reader in a team that summarises long documents. You receive one part of a \
document and write a summary of this part alone. Others who have not seen the part will go on \
working with your summary, so what you leave out is lost.

How you read:
- Find out first what the part is for: does it define, argue, report a result, instruct, or \
list? Say so in your first sentence.
- Keep every definition, number, unit, name and condition that a later statement could depend \
on. "A large increase" is no summary of "an increase by 41 percent within two weeks".
- Keep apart what the document states as fact, what it assumes, and what it only mentions.
- If the part begins or ends in the middle of a thought, summarise what is there. Do not guess \
how it goes on.
- Examples and repetitions are left out, unless a rule can only be understood from its example.

How you write:
1. One paragraph of three to six sentences on what the part says.
2. Then "Details:" and a list of at most eight lines, one fact a line, in the order of the text.
3. Plain text. No headings but "Details:", no opinion of your own, nothing about the way you work.

An example of a line under "Details:", from another document:
- Samples were kept at 4 degrees for at most 36 hours; older ones were discarded (12 of 240).

Use the words of the document for its technical terms and do not replace them by synonyms. If the \
part holds nothing worth keeping, such as a list of references, write one sentence that says so."""

REFINER = """\
You are the editor in a team that summarises long documents. The document is read in parts, from \
its beginning to its end. You receive the next part and the summary of everything before it, and \
you write a new summary that covers both. The new summary replaces the old one: whatever it \
leaves out is lost for good.

How you work:
- Read the old summary as what is known so far, and ask of each statement of the new part: is \
it new, does it sharpen something known, does it correct it, or does it repeat it?
- New matter is added where it belongs in the order of the document, not simply at the end.
- If the part corrects or restricts an earlier statement, change that statement. Never let both \
versions stand side by side.
- What was important in one part alone may turn out to be a detail of the whole. Shorten it; do \
not drop numbers, names and conditions that conclusions rest on.
- Say nothing that is neither in the old summary nor in the part.

How you write:
1. One or two paragraphs, ten sentences at most, that can be read without the document.
2. Then "Details:" and a list of at most ten lines, one fact a line, in the order of the document.
3. The same terms for the same things throughout. Plain text, no other headings.
4. Do not mention parts, readers, or that this is a revision. A reader of the final text must not \
see where one part ended and the next began.

If the part adds nothing, give the old summary back unchanged. If the old summary is longer than \
it may be, shorten the oldest details first. For instance, "All three sites \
measured between 11 and 14 mm a year" takes the place of three lines, one on each site."""

MERGER = """\
You are the editor in chief of a team that summarises long documents. The parts of a document \
were summarised independently, each by a reader who saw no other part. You receive these \
summaries in the order of the parts, and you write the one summary of the whole document.

How you work:
- Look for the thread first: what is the document as a whole for, and what does each part add to \
that? Begin with it.
- The same thing may have been told several times under slightly different names, since no \
reader knew the others' words. Decide on one name and tell it once.
- Readers could not see what a later part takes back. Where two summaries disagree, the later \
part counts; if that is not certain, say that the document is not clear on the point.
- Weigh by importance for the whole and not by length: a part with little to say gets little \
room, however long its summary is.
- Numbers, names and conditions are carried over exactly. Do not compute new ones.
- Nothing is added that no summary holds.

How you write:
1. A first sentence that says what the document is and what it is about.
2. Two to four paragraphs, fifteen sentences at most, in the order that is easiest to follow.
3. Then "Key facts:" and a list of at most twelve lines, one fact a line.
4. Plain text, no other headings. Do not mention parts, readers or summaries.

For example, "Part 2: the valve opens at 3 bar" and "Part 5: the relief valve is set to 3 bar, \
2.8 in the export model" become one line: "- The relief valve opens at 3 bar (export model: \
2.8)." Write for somebody who will never see the document and must decide whether to ask for it."""


def build(
    llm: BaseChatModel,
    *,
    mode: Mode = "refine",
    max_tokens: Limits = None,
    layout: Layout = "role_first",
) -> Summariser:
    """Compile the team for a chat model.

    mode: ``refine`` or ``map_reduce``.
    max_tokens: limit of every role's answer, or limits by role name (a role that is not named
    has no limit of its own). Bound with ``llm.bind``.

    layout: the order of each prompt. Both are the same here: a call works from a part that no
    earlier call has read and from summaries that none of them was shown. So what calls share is
    their role's instructions alone, and those come first. To show each call all parts so far would
    share more, and undo what refining is for: prompts that do not grow with the document.

    A run needs ``chunks``, a list of one part or more. Raises ValueError for another mode or
    layout.
    """
    checked_layout(layout)
    if mode == "refine":
        return _refine(llm, max_tokens)
    if mode == "map_reduce":
        return _map_reduce(llm, max_tokens)
    raise ValueError(f"mode {mode!r}: there are {', '.join(MODES)}")


def _refine(llm: BaseChatModel, max_tokens: Limits) -> Summariser:
    ask = asker(llm, max_tokens)

    def summarise(state: SummaryState) -> SummaryState:
        message = first_message(state["chunks"][0])
        return {"summary": ask("summarise", SUMMARISER, message), "read": 1}

    def refine(state: SummaryState) -> SummaryState:
        message = (
            f"Next part of the document:\n\n{state['chunks'][state['read']]}\n\n"
            f"Summary of everything before it:\n\n{state['summary']}\n\n"
            "Write the new summary."
        )
        return {"summary": ask("refine", REFINER, message), "read": state["read"] + 1}

    def rest(state: SummaryState) -> str:
        return "refine" if state["read"] < len(state["chunks"]) else END

    builder = StateGraph(SummaryState)
    builder.add_node("summarise", summarise)
    builder.add_node("refine", refine)
    builder.add_edge(START, "summarise")
    builder.add_conditional_edges("summarise", rest, ["refine", END])
    builder.add_conditional_edges("refine", rest, ["refine", END])
    return builder.compile(name="summary")


def _map_reduce(llm: BaseChatModel, max_tokens: Limits) -> Summariser:
    ask = asker(llm, max_tokens)

    def scatter(state: PartsState) -> list[Send]:
        return [Send("summarise_part", {"chunk": chunk}) for chunk in state["chunks"]]

    def summarise_part(state: PartState) -> PartsState:
        written = ask("summarise_part", SUMMARISER, first_message(state["chunk"]))
        return {"partial_summaries": [written]}

    def merge(state: PartsState) -> PartsState:
        summaries = "\n\n".join(
            f"Part {number}:\n\n{text}"
            for number, text in enumerate(state["partial_summaries"], start=1)
        )
        message = f"{summaries}\n\nWrite the summary of the whole document."
        return {"summary": ask("merge", MERGER, message)}

    builder = StateGraph(PartsState)
    builder.add_node("summarise_part", summarise_part)
    builder.add_node("merge", merge)
    builder.add_conditional_edges(START, scatter, ["summarise_part"])
    builder.add_edge("summarise_part", "merge")
    builder.add_edge("merge", END)
    return builder.compile(name="summary_map_reduce")


def first_message(chunk: str) -> str:
    """What the reader of a part that stands alone is asked."""
    return f"Part of the document:\n\n{chunk}\n\nWrite the summary of this part."


def main(arguments: Sequence[str] | None = None) -> None:
    """Summarise one document and print each summary as it is finished."""
    parser = command("summary", __doc__, "document")
    parser.add_argument("--mode", choices=MODES, default="refine")
    parser.add_argument("--chunks", type=int, default=4, metavar="N", help="parts of the document")
    parser.add_argument("--longest", type=int, metavar="N", help="characters; the rest is cut off")
    options = parser.parse_args(arguments)
    documents = loaded(
        parser, lambda data: load_documents(data, longest=options.longest), options.data
    )
    document = chosen(parser, "document", documents, options)
    try:
        chunks = split_document(document.text, options.chunks)
    except ValueError as error:
        parser.error(f"--chunks {options.chunks}: {error}")
    llm = model(parser, options)
    print(f"# {document.title}: {len(document.text)} characters in {len(chunks)} parts\n")
    show(build(llm, mode=options.mode, max_tokens=options.max_tokens), {"chunks": chunks})


if __name__ == "__main__":
    main()
