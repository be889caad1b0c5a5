"""The orders in which the workflows' prompts can tell things."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.langgraph import to_taskflow
from grape_lc.runtime.scripted import ScriptedEngine
from grape_lc.workflow_package import load_workflow
from tests.unit.workflows import recorder

LENGTH = 2000  # characters of a problem, a passage or an answer


class Recorder(recorder.Recorder):
    """Writes long answers, each of them different."""

    responses: list[str] = Field(
        default_factory=lambda: [f"<{n}>" * (LENGTH // 3) for n in "abcde"]
    )


class Library(BaseRetriever):
    """Finds one long passage."""

    def _get_relevant_documents(self, query: str, **_: Any) -> list[Document]:
        return [Document("passage " * (LENGTH // 8), metadata={"title": "T"})]


CASES: list[Any] = [
    pytest.param("code", {}, {"problem": "problem " * (LENGTH // 8)}, id="code"),
    pytest.param("search", {"retriever": Library()}, {"question": "Who?" * 500}, id="search"),
]


def prompts(name: str, layout: str, options: dict[str, Any], state: dict[str, Any]) -> list[str]:
    """The text of each prompt of a program, its system prompt first."""
    llm = Recorder()
    load_workflow(name).build(llm, layout=layout, **options).invoke(dict(state))
    return ["\n".join(prompt) for prompt in llm.prompts]


def same_beginning(text: str, other: str) -> int:
    """Characters that both begin with."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, other, strict=False))
    )


def shared(texts: list[str]) -> list[int]:
    """Characters of each prompt but the first that an earlier one begins with as well."""
    return [
        max(same_beginning(texts[at], earlier) for earlier in texts[:at])
        for at in range(1, len(texts))
    ]


@pytest.mark.parametrize(("name", "options", "state"), CASES)
def test_history_first_lets_each_prompt_begin_as_the_ones_before_it(
    name: str, options: dict[str, Any], state: dict[str, Any]
):
    by_layout = {
        layout: prompts(name, layout, options, state) for layout in ("role_first", "history_first")
    }
    share = {
        layout: sum(shared(texts)) / sum(map(len, texts[1:])) for layout, texts in by_layout.items()
    }
    assert share["role_first"] < 0.02
    assert share["history_first"] > 0.4
    texts = by_layout["history_first"]
    # All but the role's own text, and what has come to be since.
    for text, same in zip(texts[1:], shared(texts), strict=True):
        own = text.rindex("\n\nYou are the ")
        assert 0 < own - same < 2 * LENGTH + 200


@pytest.mark.parametrize(("name", "options", "state"), CASES)
def test_history_first_tells_all_there_is_in_order_and_the_role_last(
    name: str, options: dict[str, Any], state: dict[str, Any]
):
    module: Any = load_workflow(name)
    last = prompts(name, "history_first", options, state)[-1]
    assert last.startswith(module.TEAM)
    places = [last.index(f"{title}:\n\n") for title in module.TITLES.values()]
    assert places == sorted(places)
    assert places[-1] < last.index("You are the ") < last.rindex("\n\n")


@pytest.mark.parametrize("mode", ["refine", "map_reduce"])
def test_calls_of_a_summary_share_their_roles_only_and_keep_them_first(mode: str):
    state = {"chunks": ["one", "two", "three"]}
    options = {"mode": mode}
    expected = prompts("summary", "role_first", options, state)
    assert prompts("summary", "history_first", options, state) == expected


@pytest.mark.parametrize("name", ["code", "search", "summary"])
def test_another_layout_is_refused(name: str):
    with pytest.raises(ValueError, match="layout 'tail': there are role_first, history_first"):
        load_workflow(name).build(Recorder(), layout="tail")


@pytest.mark.parametrize(("name", "options", "state"), CASES)
def test_the_graph_has_the_same_calls_in_the_same_stages(
    name: str, options: dict[str, Any], state: dict[str, Any]
):
    llm = ChatGrape(engine=ScriptedEngine({"": "ok"}), temperature=0)
    flows = [
        to_taskflow(load_workflow(name).build(llm, layout=layout, **options))
        for layout in ("role_first", "history_first")
    ]
    first, second = ([task.name for task in flow.tasks] for flow in flows)
    assert first == second
    # Each call reads all answers before it, so it waits for the last one.
    last = flows[1].tasks[-1].name
    assert flows[1].ancestors(last) >= flows[0].ancestors(last)
