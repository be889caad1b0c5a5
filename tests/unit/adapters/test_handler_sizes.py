"""What a graph's handler keeps is told: runs and calls go, threads and tenants are remembered."""

from __future__ import annotations

from typing import Any, TypedDict

from langgraph.graph import START, StateGraph

from grape_lc import ChatGrape, ScriptedEngine, attach


class Note(TypedDict, total=False):
    topic: str
    note: str


def test_sizes_during_and_after_a_run() -> None:
    during: list[dict[str, int]] = []

    def write(state: Note) -> Any:
        answer = llm.invoke(f"Write about {state['topic']}.").content
        during.append(handler.sizes)
        return {"note": answer}

    llm = ChatGrape(engine=ScriptedEngine(lambda request: "A note."))
    graph: Any = attach(
        StateGraph(Note).add_node("write", write).add_edge(START, "write").compile(),
        learned="memory",
    )
    (handler,) = graph.config["callbacks"]
    assert set(handler.sizes.values()) == {0}
    config: Any = {"configurable": {"thread_id": "t"}, "metadata": {"tenant": "north"}}
    assert graph.invoke({"topic": "bees"}, config)["note"] == "A note."
    assert during[0]["runs"] > 0
    assert handler.sizes == {"runs": 0, "calls": 0, "threads": 1, "tenants": 1}
