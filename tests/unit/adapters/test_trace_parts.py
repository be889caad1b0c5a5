"""Small parts of a trace: ends in code, order of threads, volatile texts, thoughts, hooks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Literal, TypedDict

from langchain_core.documents import Document
from langchain_core.messages import ToolMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, tool
from langgraph.graph import END, START, StateGraph
from langgraph.graph._branch import BranchSpec
from langgraph.types import Command, Send

from grape_lc.adapters.markers import Damaged, Found
from grape_lc.adapters.trace_ends import Ends
from grape_lc.adapters.trace_hooks import director, hooks
from grape_lc.adapters.trace_lanes import Lane, Lanes, lane
from grape_lc.adapters.trace_merge import Seen
from grape_lc.adapters.trace_thoughts import with_cuts
from grape_lc.adapters.trace_volatile import changes, dates_in, shows_time


class State(TypedDict, total=False):
    plan: str
    write: str
    other: str


# -- ends -------------------------------------------------------------------------------------


def inner(state: State) -> State:
    return {}


def handing(state: State) -> Command[Literal["write", "plan"]]:
    return Command(goto="write")


def handing_freely(state: State):
    return Command(goto="write" if state["plan"] else END)


def graph_of(**nodes: Any) -> Any:
    builder = StateGraph(State)
    for name, node in nodes.items():
        builder.add_node(name, node)
    return builder.add_edge(START, next(iter(nodes))).compile()


def test_ends_that_are_declared_or_named_in_the_code() -> None:
    ends = Ends(graph_of(plan=inner, write=inner, other=inner))

    def named(state: State) -> str:
        if state["other"] == "x" or state.get("plan"):
            return "write"
        return max([state], key=lambda _: END)  # type: ignore[return-value]

    assert ends.of_edge("plan", named, None) == ("write", END)
    assert ends.of_edge("plan", named, ["a", "b"]) == ("a", "b")
    assert ends.of_edge("plan", lambda s: [Send("write", s)], ["write"]) == ()
    assert ends.of_edge("plan", str.upper, None) == ()


def test_ends_of_commands_and_of_subgraphs() -> None:
    sub = graph_of(plan=handing, write=handing_freely)
    ends = Ends(graph_of(outer=sub, plan=inner))
    assert ends.of_node("outer/plan") == ("write", "plan")
    assert ends.of_node("outer/write[3]") == (END, "write")
    assert ends.of_node("plan") == ()
    assert ends.of_node("nowhere/plan") == ()


# -- lanes ------------------------------------------------------------------------------------


def test_places_in_threads_are_in_the_order_of_their_start() -> None:
    lanes = Lanes()
    places = [lanes.of("node").next()]
    started = [Lane(lanes.of("node").next()) for _ in range(2)]
    places.append(lanes.of("node").next())
    for one in reversed(started):  # the second thread is the faster one
        token = lane.set(one)
        places.append(lanes.of("node").next())
        lane.reset(token)
    assert sorted(places) == [(0,), (1, 0), (2, 0), (3,)]
    assert lanes.of("other").next() == (0,)


# -- volatile texts ---------------------------------------------------------------------------


def test_dates_of_today_in_usual_forms() -> None:
    now = datetime(2026, 3, 7, 9, 5).astimezone()
    assert dates_in("Today is 2026-03-07.", now) == ["2026-03-07"]
    assert dates_in("Saturday, March 7, 2026", now) == ["March 7, 2026", "Saturday, March 7"]
    assert dates_in("7.3.2026", now) == ["7.3.2026"]
    assert dates_in("Since 2026-03-06, or 12026-03-8", now) == []


def test_times_of_day() -> None:
    assert shows_time("at 9:05")
    assert shows_time("(21:25:03)")
    assert not shows_time("ratio 123:456, verse 3:")


def test_where_a_prompt_changes() -> None:
    def seen(text: str, *, short: bool) -> Seen:
        return Seen((("user", ("Hello. ", text)),), {}, short)

    assert changes([seen("a", short=False), seen("a", short=True)]) is None
    place = changes([seen("a", short=False), seen("b", short=True)])
    assert place == "message 1, behind 'Hello. '"
    # Paths that differ are another matter, and so is a call that was seen in one kind of run.
    assert changes([seen("a", short=False), seen("b", short=False)]) is None
    differing = [seen("a", short=False), seen("b", short=False), seen("a", short=True)]
    assert changes(differing) is None


# -- thoughts ---------------------------------------------------------------------------------


def test_thoughts_that_were_cut() -> None:
    plain = (("user", (Found(1, "strip"), Found(2), Damaged())),)
    cut = (("user", (Found(1, "after_think|rstrip"), Found(2))),)
    both = (("user", (Found(1, "after_think|rstrip"), Found(1))),)
    assert with_cuts(plain, [cut]) == (("user", (Found(1, "after_think|strip"), *plain[0][1][1:])),)
    assert with_cuts(plain, [both]) == plain
    assert with_cuts(plain, []) == plain


# -- hooks ------------------------------------------------------------------------------------


class Directing:
    """Notes what it was asked; sends edges nowhere else."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def edge(self, site: str, function: Any, ends: Any, natural: Any) -> str | None:
        return None

    def goto(self, site: str, natural: Any) -> str | None:
        return None

    def lane(self, site: str) -> Lane:
        return Lane((7,))

    def unknown(self, what: str) -> str:
        self.asked.append(what)
        return "?"


@tool
def destroy(path: str) -> str:
    """Remove a file."""
    raise AssertionError("a tool was executed in a trace")


class Library(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document("real")]


def directed(work: Any) -> tuple[Any, Directing]:
    """The result of ``work`` in the context of a trace."""
    directing = Directing()

    def run() -> Any:
        director.set(directing)
        return work()

    import contextvars

    with hooks():
        return contextvars.copy_context().run(run), directing


def test_tools_and_retrievers_are_not_executed() -> None:
    def work() -> Any:
        call = {"name": "destroy", "args": {}, "id": "1", "type": "tool_call"}
        documents = Library().invoke("q")
        return (
            destroy.invoke({"path": "x"}),
            destroy.invoke(call),
            asyncio.run(destroy.ainvoke({"path": "x"})),
            documents[0].page_content + documents[0].metadata["source"],
            asyncio.run(Library().ainvoke("q"))[0].metadata.get("page"),
        )

    (plain, message, later, document, page), directing = directed(work)
    assert (plain, later, document, page) == ("?", "?", "??", "?")
    assert isinstance(message, ToolMessage)
    assert (message.content, message.tool_call_id) == ("?", "1")
    assert directing.asked[:2] == ["a document found by Library"] * 2
    assert directing.asked.count("the result of the tool 'destroy'") == 3


def test_other_code_of_the_process_sees_the_originals() -> None:
    before = (BranchSpec._finish, BaseTool.run, ThreadPoolExecutor.submit)
    with hooks(), hooks():
        assert Library().invoke("q")[0].page_content == "real"
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(lane.get).result() is None
    assert before == (BranchSpec._finish, BaseTool.run, ThreadPoolExecutor.submit)


def test_threads_of_a_pool_get_the_context_and_a_lane() -> None:
    def work() -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: (director.get(), lane.get())).result()

    (seen, own), directing = directed(work)
    assert seen is directing
    assert own is not None
    assert own.next() == (7, 0)


def test_hooks_of_traces_that_overlap() -> None:
    before = BaseTool.run
    inside, leave = threading.Event(), threading.Event()

    def trace() -> None:
        with hooks():
            inside.set()
            assert leave.wait(60)

    thread = threading.Thread(target=trace)
    thread.start()
    assert inside.wait(60)
    with hooks():
        pass
    assert BaseTool.run is not before
    leave.set()
    thread.join()
    assert BaseTool.run is before
