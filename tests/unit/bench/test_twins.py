"""The hand-written flows make the prompts of their graphs, and are what tracing finds."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import attach, to_taskflow
from grape_lc.bench.twins import code_flow, search_flow, summary_flow
from grape_lc.engine.base import CallRequest
from grape_lc.errors import ConfigError
from grape_lc.flow import TaskFlow
from grape_lc.runtime.scripted import ScriptedEngine, VirtualClock
from grape_lc.workflow_package import load_workflow

CHUNKS = ["First {part}.\n", "second", "  third % part", "fourth"]
PASSAGES = "[1] Title {1}\nA passage."


class OnePassage(BaseRetriever):
    """Finds the same passage for every query."""

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return [Document("A passage.", metadata={"title": "Title {1}"})]


def answer(request: CallRequest) -> str:
    """Each prompt has an answer of its own, with what a template could stumble on."""
    assert request.messages is not None
    said = str(request.messages[-1]["content"])
    return f" {{answer}} to {len(said)} characters, {sum(map(ord, said))}:\n- 100%\n\n"


def graph_of(name: str, engine: ScriptedEngine, **options: Any) -> Any:
    if name == "search":
        options["retriever"] = OnePassage()
    workflow: Any = load_workflow(name)
    return workflow.build(ChatGrape(engine=engine, temperature=0), **options)


def scripted() -> ScriptedEngine:
    return ScriptedEngine(answer, clock=VirtualClock())


CASES: list[Any] = [
    pytest.param("code", {}, code_flow, {"problem": "Sort {these}."}, id="code"),
    pytest.param(
        "summary",
        {},
        lambda **limits: summary_flow(len(CHUNKS), **limits),
        {"chunks": CHUNKS},
        id="refine",
    ),
    pytest.param(
        "summary",
        {},
        lambda **limits: summary_flow(1, **limits),
        {"chunks": CHUNKS[:1]},
        id="refine-one-part",
    ),
    pytest.param(
        "summary",
        {"mode": "map_reduce"},
        lambda **limits: summary_flow(len(CHUNKS), mode="map_reduce", **limits),
        {"chunks": CHUNKS},
        id="map-reduce",
    ),
    pytest.param("search", {}, search_flow, {"question": "Which {statement}?"}, id="search"),
]


def inputs_of(state: dict[str, Any]) -> dict[str, str]:
    """What a flow without its graph is given: as ``attach`` names it, and what a tool found."""
    if "chunks" in state:
        return {f"chunks_{index}": chunk for index, chunk in enumerate(state["chunks"])}
    return dict(state) | ({"passages": PASSAGES} if "question" in state else {})


def sent(engine: ScriptedEngine, calls: slice = slice(None)) -> dict[str | None, tuple[Any, Any]]:
    return {
        call.request.task: (call.request.messages, call.request.sampling.max_tokens)
        for call in engine.calls[calls]
    }


@pytest.mark.parametrize("limits", [None, 50, "by role"])
@pytest.mark.parametrize(("name", "options", "twin", "state"), CASES)
def test_a_twin_sends_what_its_graph_sends(
    name: str, options: dict[str, Any], twin: Any, state: dict[str, Any], limits: Any
):
    if limits == "by role":
        limits = {"refine": 9, "summarise_part": 8, "searcher": 7, "code_generator": 6}
    engine, alone = scripted(), scripted()
    flow: TaskFlow = twin(max_tokens=limits)
    flow.validate_flow()
    result = attach(graph_of(name, engine, max_tokens=limits, **options), flow).invoke(dict(state))
    outputs = flow.run_sync(alone, inputs_of(state)).outputs
    assert len(engine.calls) == len(alone.calls) == len(flow.tasks)
    assert sent(engine) == sent(alone)
    assert set(sent(engine)) == {task.name for task in flow.tasks}
    assert outputs == {key: result[key] for key in outputs}


@pytest.mark.parametrize(("name", "options", "twin", "state"), CASES)
def test_the_program_of_a_run_is_the_twin_with_all_that_is_known(
    name: str, options: dict[str, Any], twin: Any, state: dict[str, Any]
):
    engine = scripted()
    app = attach(graph_of(name, engine, **options), twin(), model=engine)
    app.invoke(dict(state))
    [program] = engine.programs
    known = inputs_of(state)
    known.pop("passages", None)
    assert program.inputs == known
    writers = {task.name for task in program.flow.tasks}
    assert writers == set(program.fed)
    assert not program.open


@pytest.mark.parametrize(("name", "options", "twin", "state"), CASES)
def test_tracing_finds_the_twin(
    name: str, options: dict[str, Any], twin: Any, state: dict[str, Any]
):
    """Up to what the searcher finds, which neither knows."""
    flow: TaskFlow = twin()
    traced = to_taskflow(graph_of(name, scripted(), **options))
    names = {var.name: var.name for var in flow.variables if var.kind == "input"}
    names |= {t.output: traced.task(t.name).output for t in flow.tasks}
    for task in flow.tasks:
        expected = _texts(task.prompt, names)
        found = _texts(traced.task(task.name).prompt, {})
        if task.name == "searcher":
            head = expected[1].partition("{passages}")[0]
            assert found[0] == expected[0]
            assert found[1].startswith(head)
        elif task.name == "merge":
            # A trace cannot know how many parts there will be: it foresees a few more.
            assert found[0] == expected[0]
            assert found[1].startswith(expected[1].removesuffix(_MERGE_END))
            assert found[1].endswith(_MERGE_END)
        else:
            assert found == expected


_MERGE_END = "\n\nWrite the summary of the whole document."


def _texts(prompt: Any, names: dict[str, str]) -> list[str]:
    texts = [message.content for message in prompt.messages]
    for ours in sorted(names, key=len, reverse=True):
        texts = [text.replace(f"{{{ours}}}", f"{{{names[ours]}}}") for text in texts]
    return texts


def test_a_document_without_parts_or_an_unknown_mode_is_refused():
    with pytest.raises(ConfigError, match="chunks=0"):
        summary_flow(0)
    with pytest.raises(ConfigError, match=r"'chain'.*refine, map_reduce"):
        summary_flow(2, mode="chain")
